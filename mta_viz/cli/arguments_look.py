"""Flags of the commands that look at one prompt's attention and predictions."""

from argparse import ArgumentParser

from mta_viz.cli.flags import Commands, add_model, add_output, add_prompt, positive, span_list


def add_heads(commands: Commands) -> None:
    """The flags of `heads`."""
    heads = commands.add_parser("heads", help="what every head does on a prompt, by its scores")
    add_model(heads)
    add_prompt(heads)
    heads.add_argument(
        "--score", metavar="KEY", help="this score alone, its heads ranked; for example induction"
    )
    heads.add_argument(
        "--span", type=span_list, metavar="3:8", help="also what each head gives these positions"
    )
    heads.add_argument(
        "--query", type=int, metavar="N", help="the row of scores of one row (default: the last)"
    )
    add_output(heads)


def add_decompose(commands: Commands) -> None:
    """The flags of `decompose`."""
    decompose = commands.add_parser("decompose", help="why a cell of a map has its value, as an exact sum")
    _add_head(decompose)
    decompose.add_argument(
        "--query", type=int, metavar="N", help="the cell's row (default: the prompt's last)"
    )
    decompose.add_argument("--key", type=int, required=True, metavar="N", help="the cell's column")
    add_output(decompose)


def add_cells(commands: Commands) -> None:
    """The flags of `cells`."""
    cells = commands.add_parser("cells", help="the cells of a head's map that stand out")
    _add_head(cells)
    cells.add_argument(
        "--by",
        choices=("value", "change", "contribution"),
        default="value",
        help="value (default), change by the step before, or contribution |P| ||v|| of final weights",
    )
    cells.add_argument("--count", type=positive, default=50, metavar="N", help="how many (default 50)")
    add_output(cells)


def add_lens(commands: Commands) -> None:
    """The flags of `lens`."""
    lens = commands.add_parser("lens", help="the next token after a position, layer by layer (logit lens)")
    add_model(lens)
    add_prompt(lens)
    lens.add_argument("--position", type=int, metavar="N", help="default: the prompt's last token")
    lens.add_argument(
        "--follow", metavar="TEXT", help="its tokens at every depth (default: the likeliest ones)"
    )
    lens.add_argument("--count", type=positive, default=5, metavar="N", help="likeliest tokens (default 5)")
    add_output(lens)


def _add_head(command: ArgumentParser) -> None:
    """A model, a prompt, and one head's map at a stage."""
    add_model(command)
    add_prompt(command)
    command.add_argument("--layer", type=int, required=True, metavar="L", help="counted from 0")
    command.add_argument("--head", type=int, required=True, metavar="H", help="counted from 0")
    command.add_argument(
        "--stage", required=True, metavar="NAME", help="for example kq, final, or hook_scores_kq"
    )

"""`paper-figures PATH --out DIR`: the paper's figures of kernels, with numbers, captions and sidecars."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import add_model, open_model
from mta_viz.cli.output import ProgressLine, check_output, note
from mta_viz.cli.values import layer_list, name_list, output_path
from mta_viz.errors import MtaVizError
from mta_viz.writing import write, write_folder

HELP = "the paper's figures of kernels, ready to print"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser)
    about = "a folder, or FILE.pdf for all in one file"
    add("--out", type=output_path, required=True, metavar="DIR", help=about)
    about = "kernels, kernel-map, head-kernels, head-diagonal, head-ratio (default: all there is)"
    add("--which", type=name_list, metavar="A,B", help=about)
    add("--format", choices=("pdf", "svg", "png", "html"), default="pdf")
    add("--width", choices=("column", "page"), default="page", help="84 or 174 mm (default)")
    add("--layer", type=layer_list, metavar="0,3", help="layers to draw (default: all)")
    add("--head", type=layer_and_head, metavar="L,H", help="the kernel beside its map")
    add("--prompt", metavar="TEXT", help="for the map (default: a needle prompt)")
    add("--keys", metavar="TEXT", help="part of the prompt whose keys the map shows")
    add("--rows", metavar="TEXT", help="part whose queries it shows (default: the question)")
    add("--force", action="store_true", help="replace files of the same names")


def layer_and_head(text: str) -> tuple[int, int]:
    """`5,7` -> (5, 7)."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise ArgumentTypeError(f"{text!r} is not a layer and a head such as 5,7")
    return int(parts[0]), int(parts[1])


def run(arguments: Namespace) -> dict[str, Any]:
    """Make every figure that the model has something for, then write all files at once."""
    from mta_viz.cli.paper_saved import LOOKS, make, wanted_figures
    from mta_viz.exporting.saved import all_files

    wanted = wanted_figures(arguments.which)
    if (arguments.keys or arguments.rows) and not arguments.prompt:
        raise MtaVizError("--keys and --rows name parts of --prompt TEXT, which is missing")
    if arguments.out.suffix.lower() == ".pdf":
        return _one_file(wanted, arguments)
    if arguments.out.exists() and not arguments.out.is_dir():
        raise MtaVizError(f"{arguments.out} is a file; name a folder with --out")
    made, left_out = make(open_model(arguments, kernels_do=True), wanted, arguments)
    suffixes = (arguments.format, "csv", "txt", "json")
    names = [figure.file(suffix) for figure in made for suffix in suffixes]
    replaced = _check_free(arguments.out, names, arguments.force)
    with ProgressLine("drawing") as progress:

        def fill(folder: Path) -> None:
            for place, figure in enumerate(made, start=1):
                for name, content in all_files(figure, arguments.format, LOOKS).items():
                    (folder / name).write_bytes(content)
                progress(place / len(made))

        write_folder(arguments.out, fill, overwrite=arguments.force)
    if replaced:
        note(f"replaced in {arguments.out}: {', '.join(replaced)}")
    return {"out": str(arguments.out), "written": names, "left_out": left_out}


def _one_file(wanted: tuple[str, ...], arguments: Namespace) -> dict[str, Any]:
    """All figures as pages of one PDF. Raises MtaVizError where another format is asked for."""
    from mta_viz.cli.paper_saved import LOOKS, make
    from mta_viz.exporting.saved import together

    if arguments.format != "pdf":
        raise MtaVizError(
            f"{arguments.out} is one PDF of all figures; leave out --format {arguments.format}, or name a "
            "folder"
        )
    check_output(arguments.out, arguments.force)
    made, left_out = make(open_model(arguments, kernels_do=True), wanted, arguments)
    with ProgressLine("drawing") as progress:
        content = together(made, "pdf", choices=LOOKS, progress=progress)
    write(arguments.out, content)
    return {"out": str(arguments.out), "pages": len(made), "left_out": left_out}


def _check_free(out: Path, names: list[str], force: bool) -> list[str]:
    """The files that would be replaced. Raises MtaVizError for any without --force."""
    there = [name for name in names if (out / name).exists()]
    if there and not force:
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise MtaVizError(
            f"{out} holds {', '.join(there[:3])}{more} already; choose another folder, or replace them "
            "with --force"
        )
    return there

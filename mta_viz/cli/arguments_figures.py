"""Flags of the commands that draw."""

from pathlib import Path

from mta_viz.cli.flags import Commands, add_model, layer_and_head, layer_list, name_list, positive


def add_paper_figures(commands: Commands) -> None:
    """The flags of `paper-figures`."""
    figures = commands.add_parser("paper-figures", help="the paper's figures of kernels, ready to print")
    add_model(figures, dtype="float32")
    figures.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a folder, or FILE.pdf for all in one file"
    )
    figures.add_argument(
        "--which",
        type=name_list,
        metavar="A,B",
        help="kernels, kernel-map, head-kernels, head-diagonal, head-ratio (default: all there is)",
    )
    figures.add_argument("--format", choices=("pdf", "svg", "png", "html"), default="pdf")
    figures.add_argument("--width", choices=("column", "page"), default="page", help="84 or 174 mm (default)")
    figures.add_argument("--layer", type=layer_list, metavar="0,3", help="layers to draw (default: all)")
    figures.add_argument("--head", type=layer_and_head, metavar="L,H", help="the kernel beside its map")
    figures.add_argument("--prompt", metavar="TEXT", help="for the map (default: a needle prompt)")
    figures.add_argument("--keys", metavar="TEXT", help="part of the prompt whose keys the map shows")
    figures.add_argument("--rows", metavar="TEXT", help="part whose queries it shows (default: the question)")
    figures.add_argument("--force", action="store_true", help="replace files of the same names")


def add_figure(commands: Commands) -> None:
    """The flags of `figure`."""
    figure = commands.add_parser("figure", help="make a figure the app saved again, from its checkpoint")
    figure.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="FILE",
        help="a figure's sidecar (.json), or the .png, .svg, .pdf or .html file itself",
    )
    figure.add_argument(
        "path", type=Path, nargs="?", metavar="PATH", help="its checkpoint (default: a model the app finds)"
    )
    figure.add_argument("--page", type=positive, metavar="N", help="of a PDF of many figures, from 1")
    figure.add_argument("--out", type=Path, metavar="FILE", help=".png, .svg, .pdf, .html, .csv or .json")
    figure.add_argument("--dpi", type=positive, default=300, metavar="N", help="of a .png (default 300)")
    figure.add_argument("--force", action="store_true", help="overwrite an existing file")

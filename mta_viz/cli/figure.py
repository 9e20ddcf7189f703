"""`figure --from FILE [PATH] [--page N] [--out FILE]`: a saved figure made again from its checkpoint."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint.files import replacing
from mta_viz.cli.flags import add_file, positive
from mta_viz.errors import MtaVizError

if TYPE_CHECKING:
    from mta_viz.exporting.saved import Choices, Saved

HELP = "make a figure the app saved again, from its checkpoint"


def add_flags(parser: ArgumentParser) -> None:
    """A saved figure, its checkpoint, and the file to make of it."""
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="FILE",
        help="a figure's sidecar (.json), or the .png, .svg, .pdf or .html file itself",
    )
    add("path", type=Path, nargs="?", metavar="PATH", help="its checkpoint (default: a model the app finds)")
    add("--page", type=positive, metavar="N", help="of a PDF of many figures, from 1")
    add_file(parser, "--out", ".png, .svg, .pdf, .html, .csv or .json")
    add("--dpi", type=positive, default=300, metavar="N", help="of a .png (default 300)")


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the figure; the answer says what it is. Without `--out` only that, and whether it can be made."""
    from mta_viz.exporting.again import make_again
    from mta_viz.exporting.carriers import read
    from mta_viz.exporting.saved import choices_of, saved

    provenance = read(arguments.source, arguments.page)
    choices = choices_of(provenance, arguments.dpi)
    suffix = _suffix(arguments.out) if arguments.out else ""
    figure = saved(make_again(provenance, arguments.path))
    if arguments.out:
        content = _content(figure, suffix, choices)
        with replacing(arguments.out) as partial:
            partial.write_bytes(content)
    return {
        "figure": figure.provenance.figure,
        "parameters": figure.provenance.parameters,
        "checkpoint": provenance.run.checkpoint,
        "sha256": provenance.run.sha256,
        "caption": figure.caption,
        "rows": figure.csv.count("\n") - 1,
        "out": str(arguments.out) if arguments.out else None,
    }


def _suffix(out: Path) -> str:
    from mta_viz.exporting.pictures import FORMATS

    suffixes = (*FORMATS, "csv", "json")
    suffix = out.suffix.lower().removeprefix(".")
    if suffix not in suffixes:
        raise MtaVizError(f"{out} ends with none of .{', .'.join(suffixes)}: which format is it to have?")
    return suffix


def _content(figure: "Saved", suffix: str, choices: "Choices") -> bytes:
    from mta_viz.exporting.pictures import FORMATS
    from mta_viz.exporting.saved import picture, sidecar

    if suffix == "csv":
        return figure.csv.encode()
    if suffix == "json":
        return sidecar(figure, choices)
    return picture(figure, next(format for format in FORMATS if format == suffix), choices)

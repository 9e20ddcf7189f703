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
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="FILE",
        help="a figure's sidecar (.json), or the .png, .svg, .pdf or .html file itself",
    )
    parser.add_argument(
        "path", type=Path, nargs="?", metavar="PATH", help="its checkpoint (default: a model the app finds)"
    )
    parser.add_argument("--page", type=positive, metavar="N", help="of a PDF of many figures, from 1")
    add_file(parser, "--out", ".png, .svg, .pdf, .html, .csv or .json")
    parser.add_argument("--dpi", type=positive, default=300, metavar="N", help="of a .png (default 300)")


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the figure; the answer says what it is. Without `--out` only that, and whether it can be made."""
    from mta_viz.exporting.provenance import read
    from mta_viz.exporting.saved import choices_of

    said = read(arguments.source, arguments.page)
    choices = choices_of(said, arguments.dpi)
    suffix = _suffix(arguments.out) if arguments.out else None
    from mta_viz.ui.shell.headless import make_again

    saved = make_again(said, arguments.path)
    if arguments.out:
        content = _content(saved, str(suffix), choices)
        with replacing(arguments.out) as partial:
            partial.write_bytes(content)
    return {
        "figure": said.figure,
        "page": said.page,
        "checkpoint": said.checkpoint,
        "sha256": said.sha256,
        "caption": saved.caption,
        "rows": saved.csv.count("\n") - 1,
        "out": str(arguments.out) if arguments.out else None,
    }


def _suffix(out: Path) -> str:
    from mta_viz.exporting.pictures import FORMATS

    suffixes = (*FORMATS, "csv", "json")
    suffix = out.suffix.lower().removeprefix(".")
    if suffix not in suffixes:
        raise MtaVizError(f"{out} ends with none of .{', .'.join(suffixes)}: which format is it to have?")
    return suffix


def _content(saved: "Saved", suffix: str, choices: "Choices") -> bytes:
    from mta_viz.exporting.pictures import FORMATS
    from mta_viz.exporting.saved import picture, sidecar

    if suffix == "csv":
        return saved.csv.encode()
    if suffix == "json":
        return sidecar(saved, choices)
    return picture(saved, next(format for format in FORMATS if format == suffix), choices)

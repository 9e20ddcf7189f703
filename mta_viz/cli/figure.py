"""`figure --from FILE [PATH] [--page N] [--out FILE]`: a saved figure made again from its checkpoint."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import add_base, add_file
from mta_viz.cli.values import positive
from mta_viz.errors import MtaVizError
from mta_viz.writing import write

HELP = "make a figure the app saved again, from its checkpoint"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    about = "a figure's sidecar (.json), or the .png, .svg, .pdf or .html file itself"
    add("--from", dest="source", type=Path, required=True, metavar="FILE", help=about)
    add("path", type=Path, nargs="?", metavar="PATH", help="its checkpoint (default: a model the app finds)")
    add_base(parser)
    add("--page", type=positive, metavar="N", help="of a PDF of many figures, from 1")
    add_file(parser, "--out", ".png, .svg, .pdf, .html, .csv or .json", ending="")
    add("--dpi", type=positive, default=300, metavar="N", help="of a .png (default 300)")


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the figure; the answer says what it is. Without `--out` only that, and whether it can be made."""
    from mta_viz.exporting import provenance as origin
    from mta_viz.exporting import saved
    from mta_viz.exporting.pictures import FORMATS

    provenance, out = origin.read(arguments.source, arguments.page), arguments.out
    choices = saved.choices_of(provenance, arguments.dpi)
    suffixes = (*FORMATS, "csv", "json")
    suffix = out.suffix.lower().removeprefix(".") if out else ""
    if out and suffix not in suffixes:
        raise MtaVizError(f"{out} ends with none of .{', .'.join(suffixes)}: which format is it to have?")
    figure = saved.saved(origin.make_again(provenance, arguments.path, arguments.base))
    if out:
        if suffix == "csv":
            content = figure.csv.encode()
        elif suffix == "json":
            content = saved.sidecar(figure, choices)
        else:
            content = saved.picture(figure, next(known for known in FORMATS if known == suffix), choices)
        write(out, content)
    return {
        "figure": figure.provenance.figure,
        "parameters": figure.provenance.parameters,
        "checkpoint": provenance.run.checkpoint,
        "sha256": provenance.run.sha256,
        "caption": figure.caption,
        "rows": figure.csv.count("\n") - 1,
        "out": str(out) if out else None,
    }

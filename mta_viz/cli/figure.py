"""`figure --from FILE [PATH] [--page N] [--out FILE]`: a saved figure made again from its checkpoint."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from mta_viz.checkpoint.files import replacing
from mta_viz.cli.output import check_output
from mta_viz.errors import MtaVizError
from mta_viz.exporting.again import make_again
from mta_viz.exporting.carriers import read
from mta_viz.exporting.pictures import FORMATS
from mta_viz.exporting.saved import Choices, Saved, choices_of, picture, sidecar
from mta_viz.exporting.saved import saved as remade

SUFFIXES = (*FORMATS, "csv", "json")


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the figure; the answer says what it is. Without `--out` only that, and whether it can be made."""
    provenance = read(arguments.source, arguments.page)
    choices = choices_of(provenance, arguments.dpi)
    suffix = _suffix(arguments.out) if arguments.out else None
    if arguments.out:
        check_output(arguments.out, arguments.force)
    saved = remade(make_again(provenance, arguments.path))
    if arguments.out:
        content = _content(saved, str(suffix), choices)
        with replacing(arguments.out) as partial:
            partial.write_bytes(content)
    return {
        "figure": saved.provenance.figure,
        "parameters": saved.provenance.parameters,
        "checkpoint": provenance.run.checkpoint,
        "sha256": provenance.run.sha256,
        "caption": saved.caption,
        "rows": saved.csv.count("\n") - 1,
        "out": str(arguments.out) if arguments.out else None,
    }


def _suffix(out: Path) -> str:
    suffix = out.suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        raise MtaVizError(f"{out} ends with none of .{', .'.join(SUFFIXES)}: which format is it to have?")
    return suffix


def _content(saved: Saved, suffix: str, choices: Choices) -> bytes:
    if suffix == "csv":
        return saved.csv.encode()
    if suffix == "json":
        return sidecar(saved, choices)
    return picture(saved, next(format for format in FORMATS if format == suffix), choices)

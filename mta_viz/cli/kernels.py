"""`kernels PATH [--format json|csv]`: one row per kernel, with its shape, scores and significance."""

from argparse import Namespace
from dataclasses import asdict
from typing import Any

from mta_viz.analysis.shapes.table import kernel_frame, kernel_table, shape_counts
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.cli.progress import ProgressLine, note


def run(arguments: Namespace) -> dict[str, Any] | str:
    """The rows and the counts over the model; as CSV the rows alone, no value is an empty field."""
    with ProgressLine("reading") as progress:
        checkpoint = read_checkpoint(arguments.path, progress=progress)
    for text in checkpoint.notes:
        note(text)
    rows = kernel_table(checkpoint.state_dict, checkpoint.config)
    if not rows:
        note("the model has no key-query kernels and mixes no heads")
    if arguments.format == "csv":
        return kernel_frame(rows).to_csv(index=False, lineterminator="\n").rstrip("\n")
    return {"kernels": list(rows), "counts": asdict(shape_counts(rows))}

"""`kernels PATH [--format json|csv] [--save FOLDER]`: one row per kernel: shape, scores, significance."""

from argparse import Namespace
from dataclasses import asdict
from typing import Any

from mta_viz.analysis.kernels.kernels import kernel_offsets
from mta_viz.analysis.kernels.table import kernel_frame, kernel_table, shape_counts
from mta_viz.analysis.kernels.measures import cannot_show
from mta_viz.checkpoint.native import write_kernels
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.cli.output import ProgressLine, note
from mta_viz.config import ModelConfig


def run(arguments: Namespace) -> dict[str, Any] | str:
    """The rows and the counts over the model; as CSV the rows alone, no value is an empty field."""
    with ProgressLine("reading") as progress:
        checkpoint = read_checkpoint(arguments.path, progress=progress)
    for text in checkpoint.notes:
        note(text)
    if arguments.save is not None:
        write_kernels(arguments.save, checkpoint.config, checkpoint.state_dict)
        note(f"the kernels alone are in {arguments.save}")
    rows = kernel_table(checkpoint.state_dict, checkpoint.config)
    if not rows:
        note("the model has no key-query kernels and mixes no heads")
    for text in _limits(checkpoint.config):
        note(text)
    if arguments.format == "csv":
        return kernel_frame(rows).to_csv(index=False, lineterminator="\n").rstrip("\n")
    return {"kernels": list(rows), "counts": asdict(shape_counts(rows))}


def _limits(config: ModelConfig) -> list[str]:
    """What kernels of these sizes have no room to show, so that an absence is not taken for a finding."""
    found = []
    for c_q, c_k in sorted({size for size in (config.mta.pre_kernel, config.mta.post_kernel) if size}):
        missing = cannot_show(kernel_offsets(config, c_q, c_k))
        if missing:
            found.append(f"a kernel of {c_q} x {c_k} cannot show: {', '.join(missing)}")
    return found

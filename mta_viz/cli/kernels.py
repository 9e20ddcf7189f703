"""`kernels PATH [--format json|csv] [--save FOLDER]`: one row per kernel: shape, scores, significance."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import add_format, output_path
from mta_viz.cli.output import ProgressLine, note

HELP = "what every kernel learned: shapes, scores, significance"


def add_flags(parser: ArgumentParser) -> None:
    """PATH, how to print the rows, and where to keep the kernels."""
    parser.add_argument("path", type=Path, metavar="PATH", help="a checkpoint folder")
    add_format(parser, _rows_as_csv, "json (default): rows and counts; csv: rows")
    about = "also write the kernels alone, to be opened without the model"
    parser.add_argument("--save", type=output_path, metavar="FOLDER", help=about)


def run(arguments: Namespace) -> dict[str, Any]:
    """The rows and the counts over the model."""
    from mta_viz.analysis.kernels import kernels, measures, table
    from mta_viz.checkpoint.native import write_kernels
    from mta_viz.checkpoint.reading import read_checkpoint

    with ProgressLine("reading") as progress:
        checkpoint = read_checkpoint(arguments.path, progress=progress)
    config = checkpoint.config
    for text in checkpoint.notes:
        note(text)
    if arguments.save is not None:
        write_kernels(arguments.save, config, checkpoint.state_dict)
        note(f"the kernels alone are in {arguments.save}")
    rows = table.kernel_table(checkpoint.state_dict, config)
    if not rows:
        note("the model has no key-query kernels and mixes no heads")
    for c_q, c_k in sorted({size for size in (config.mta.pre_kernel, config.mta.post_kernel) if size}):
        missing = measures.cannot_show(kernels.kernel_offsets(config, c_q, c_k))
        if missing:  # so that an absence is not taken for a finding
            note(f"a kernel of {c_q} x {c_k} cannot show: {', '.join(missing)}")
    return {"kernels": list(rows), "counts": asdict(table.shape_counts(rows))}


def _rows_as_csv(answer: dict[str, Any]) -> str:
    """No value is an empty field."""
    from mta_viz.analysis.kernels.table import kernel_frame

    return kernel_frame(answer["kernels"]).to_csv(index=False, lineterminator="\n")

"""`merge ADAPTER --base BASE --out FOLDER`: an adapter and its base as one checkpoint."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import add_base, output_path
from mta_viz.cli.output import ProgressLine
from mta_viz.errors import MtaVizError

HELP = "an adapter and its base as one checkpoint, in the project's format or Lingua's"


def add_flags(parser: ArgumentParser) -> None:
    """The adapter, its base, and the folder to write."""
    parser.add_argument("path", type=Path, metavar="ADAPTER", help="an adapter's file, or its folder")
    add_base(parser)
    about = "a new folder for the whole model"
    parser.add_argument("--out", dest="folder", type=output_path, required=True, metavar="FOLDER", help=about)
    about = "write consolidated.pth and Lingua's params.json instead"
    parser.add_argument("--lingua", action="store_true", help=about)


def run(arguments: Namespace) -> dict[str, Any]:
    """What was written, with its sha256. Tensors are those of the two files, bit for bit."""
    from mta_viz.checkpoint.basing import read_model
    from mta_viz.checkpoint.locate import locate, sha256
    from mta_viz.checkpoint.merging import write_merged
    from mta_viz.checkpoint.types import parameter_count

    if locate(arguments.path).format != "adapter":
        raise MtaVizError(f"{arguments.path} is no adapter; it is a whole checkpoint already")
    with ProgressLine("reading") as progress:
        whole = read_model(arguments.path, base=arguments.base, progress=progress)
    if whole.source.missing_base:
        raise MtaVizError(f"{whole.source.missing_base}; give it with --base PATH")
    write_merged(arguments.folder, whole, whole.config, whole.state_dict, lingua=arguments.lingua)
    return {
        "folder": str(arguments.folder),
        "format": "lingua" if arguments.lingua else "native",
        "base": str(whole.source.base),
        "parameters": parameter_count(whole.config),
        "sha256": sha256(arguments.folder),
    }

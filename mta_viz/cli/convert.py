"""`convert PATH --to native|lingua|kernels|adapter --out OUT`: a checkpoint of any format read, in another.

`merge`, the older word, is the same of an adapter and its base.
"""

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.cli.flags import PATH, add_base
from mta_viz.cli.output import ProgressLine, check_output, note
from mta_viz.cli.values import output_path
from mta_viz.errors import MtaVizError, refuse_all
from mta_viz.writing import check_free

if TYPE_CHECKING:
    from mta_viz.checkpoint.types import Checkpoint

HELP = "a checkpoint in another format: the project's, Lingua's, its kernels alone, or an adapter of its base"
OLDER = ("merge",)
FORMATS = ("native", "lingua", "kernels", "adapter")


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=Path, metavar="PATH", help=PATH)
    add_base(parser)
    about = (
        "native (default): model.safetensors; lingua: consolidated.pth; kernels; adapter: what --base lacks"
    )
    add("--to", choices=FORMATS, default="native", help=about)
    about = "a new folder; of an adapter its file, .safetensors"
    add("--out", dest="folder", type=output_path, required=True, metavar="OUT", help=about)
    add("--lingua", dest="to", action="store_const", const="lingua", help="older word for --to lingua")


def run(arguments: Namespace) -> dict[str, Any]:
    """What was written, with its sha256. Every value is that of the file read, bit for bit."""
    from mta_viz.checkpoint.locate import sha256

    refuse_all([partial(_check_base, arguments), partial(_check_out, arguments)], "What to convert")
    checkpoint = _read(arguments)
    for text in checkpoint.notes:
        note(text)
    write = _write_adapter if arguments.to == "adapter" else _write_folder
    more = write(arguments, checkpoint)
    return {
        "folder": str(arguments.folder),
        "format": arguments.to,
        **more,
        "sha256": sha256(arguments.folder),
    }


def _check_base(arguments: Namespace) -> None:
    from mta_viz.checkpoint.locate import locate

    adapter = locate(arguments.path).format == "adapter"
    if arguments.base is not None and not adapter and arguments.to != "adapter":
        raise MtaVizError(f"{arguments.path} is no adapter, so it has no base: leave --base out")
    if arguments.base is None and not adapter and arguments.to == "adapter":
        raise MtaVizError("an adapter is what a model has beyond its base: give the base with --base PATH")


def _check_out(arguments: Namespace) -> None:
    from mta_viz.checkpoint import lingua, native
    from mta_viz.checkpoint.files import PARAMS

    out = arguments.folder
    if arguments.to != "adapter":
        weights = {"native": native.WEIGHTS, "lingua": lingua.WEIGHTS, "kernels": native.KERNELS}
        check_free(out, [PARAMS, weights[arguments.to]])
        return
    if out.suffix != ".safetensors":
        raise MtaVizError(f"{out} is to be an adapter's file: give it a name that ends with .safetensors")
    if out.is_file():
        raise MtaVizError(f"{out} is there already; choose another name")
    check_output(out, force=True)


def _read(arguments: Namespace) -> "Checkpoint":
    """An adapter together with its base, unless its kernels are all that is wanted."""
    from mta_viz.checkpoint.locate import locate
    from mta_viz.checkpoint.reading import read_checkpoint
    from mta_viz.checkpoint.relatives import read_model

    kind = locate(arguments.path).format
    if kind == "kernels" and arguments.to != "kernels":
        raise MtaVizError(
            f"{arguments.path} holds kernels only, no whole model; write them with --to kernels"
        )
    with ProgressLine("reading") as progress:
        if kind != "adapter" or (arguments.to == "kernels" and arguments.base is None):
            return read_checkpoint(arguments.path, progress=progress)
        whole = read_model(arguments.path, base=arguments.base, progress=progress)
    if whole.source.missing_base:
        raise MtaVizError(f"{whole.source.missing_base}; give it with --base PATH")
    return whole


def _write_folder(arguments: Namespace, checkpoint: "Checkpoint") -> dict[str, Any]:
    from mta_viz.checkpoint.layout import kernel_entries
    from mta_viz.checkpoint.native import write_kernels, write_merged
    from mta_viz.checkpoint.types import parameter_count

    config, state = checkpoint.config, checkpoint.state_dict
    if arguments.to == "kernels":
        write_kernels(arguments.folder, config, state)
        return {"parameters": sum(state[name].numel() for name in kernel_entries(config))}
    write_merged(arguments.folder, checkpoint, config, state, lingua=arguments.to == "lingua")
    base = checkpoint.source.base
    return {"base": None if base is None else str(base), "parameters": parameter_count(config)}


def _write_adapter(arguments: Namespace, checkpoint: "Checkpoint") -> dict[str, Any]:
    from torch import Tensor

    from mta_viz.checkpoint.adapter import AdapterAbout, open_adapter, write_adapter
    from mta_viz.checkpoint.locate import adapter_file, locate
    from mta_viz.checkpoint.native import beyond
    from mta_viz.checkpoint.reading import read_checkpoint
    from mta_viz.checkpoint.relatives import base_of

    place, file = checkpoint.source.base or arguments.base, arguments.folder
    base, names = read_checkpoint(place), set[str]()
    about = AdapterAbout(base_of(base.source), checkpoint.config.mta)
    if checkpoint.source.format == "adapter":  # what it says of its training, and what it holds, it keeps
        own = open_adapter(adapter_file(locate(arguments.path)))
        about, names = own.about, {*own.entries}
    names.update(beyond(checkpoint, base))
    tensors = {name: tensor for name, tensor in checkpoint.state_dict.items() if name in names}
    write_adapter(file, checkpoint.config, tensors, about)
    held, whole = (sum(map(Tensor.numel, some.values())) for some in (tensors, checkpoint.state_dict))
    if held > whole / 2:
        note(f"the adapter holds {held:,} of {whole:,} values: weights or their dtype are not the base's")
    return {"base": str(base.source.path), "parameters": held}

"""`trace PATH ... --out F.safetensors`: every hook of a run under its name, or a run to be opened again.

Hooks are float32 and as the model's own forward gives them. A run (`--format run`) is `run.files`'.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mta_viz
from mta_viz.checkpoint.files import replacing
from mta_viz.cli.flags import add_file, add_prompt, layer_list, name_list, open_prompt, stage_named
from mta_viz.cli.output import note
from mta_viz.errors import MtaVizError
from mta_viz.model.stages import Stage
from mta_viz.printed import size_text
from mta_viz.tokenizers.base import Tokens

if TYPE_CHECKING:
    from torch import Tensor

    from mta_viz.model.transformer import HookedMTA

HELP = "run a prompt and save what happened inside, or the run itself"
ASK_ABOVE = 4 * 2**30  # bytes


def add_flags(parser: ArgumentParser) -> None:
    """A prompt, what of its run is saved, and where."""
    add = parser.add_argument
    add_prompt(parser)
    add("--layers", type=layer_list, metavar="0,3", help="layers to save (default: all)")
    add(
        "--stages",
        type=name_list,
        metavar="NAMES",
        help="hooks to save, for example hook_scores_kq,hook_pattern (default: all; of a run maps, or none)",
    )
    add(
        "--format",
        choices=("hooks", "run"),
        default="hooks",
        help="hooks (default): tensors for other programs; run: a file the app and open_trace open again",
    )
    add_file(parser, "--out", "file to write", required=True, metavar="F.safetensors")
    add("--yes", action="store_true", help="write more than 4 GiB")


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the file; the answer says what is in it."""
    model, tokens = open_prompt(arguments)
    save = _save_run if arguments.format == "run" else _save_hooks
    contents = save(arguments, model, tokens)
    out = arguments.out
    return {"out": str(out), "n_tokens": len(tokens), "bytes": out.stat().st_size, **contents}


def _save_hooks(arguments: Namespace, model: "HookedMTA", tokens: Tokens) -> dict[str, Any]:
    import torch

    from mta_viz.run.tracing import run_hooks

    names = select_hooks(model, arguments.layers, arguments.stages)
    _note_size(model, len(tokens), names, arguments.yes)
    tensors = {"tokens": torch.tensor(tokens.ids), **run_hooks(model, tokens.ids, names)}
    write_tensors(arguments.out, tensors)
    return {"tensors": {name: list(tensor.shape) for name, tensor in tensors.items()}}


def _save_run(arguments: Namespace, model: "HookedMTA", tokens: Tokens) -> dict[str, Any]:
    from mta_viz.run.files import read_run, save_trace, trace_size

    _check_layers(model, arguments.layers)
    chosen = {"stages": map_stages(arguments.stages), "layers": arguments.layers}
    trace = mta_viz.capture(model, tokens)
    note(f"{len(tokens)} tokens: {size_text(trace_size(trace, **chosen))}")
    save_trace(trace, arguments.out, **chosen, force=arguments.force)
    about = read_run(arguments.out).about
    return {
        "checkpoint": about.checkpoint,
        "sha256": about.sha256,
        "maps": [stage.hook_name(layer) for layer, stage in about.stored],
    }


def map_stages(names: Sequence[str] | None) -> tuple[Stage, ...]:
    """The T x T stages of hook names (None: all; `none`: none). Raises PromptError for what is no map."""
    if names is None:
        return tuple(Stage)
    return () if tuple(names) == ("none",) else tuple(stage_named(name.rpartition(".")[2]) for name in names)


def select_hooks(
    model: "HookedMTA", layers: Sequence[int] | None, stages: Sequence[str] | None
) -> tuple[str, ...]:
    """Full names of the hooks of `layers` (None: everything) that `stages` names (None: all).

    A stage is named with or without what comes before it: `hook_z`, `attn.hook_z` or
    `blocks.1.attn.hook_z`. Raises MtaVizError saying what exists for a layer or stage that does not.
    """
    _check_layers(model, layers)
    every = tuple(model.hook_dict)
    inside = [name for name in every if layers is None or _layer_of(name) in layers]
    if stages is None:
        return tuple(inside)
    for stage in stages:
        if not any(_is_named(name, stage) for name in inside):
            raise MtaVizError(_unknown_stage(stage, every))
    return tuple(name for name in inside if any(_is_named(name, stage) for stage in stages))


def stored_bytes(model: "HookedMTA", n_tokens: int, names: Sequence[str]) -> int:
    """Size of a trace of `n_tokens` tokens, from runs of one and two.

    Each tensor has `n_tokens` to the power 0, 1 or 2 times as many elements as for one token:
    doubling the tokens shows which.
    """
    from mta_viz.run.tracing import run_hooks

    single, double = (run_hooks(model, (0,) * length, names) for length in (1, 2))
    power = {1: 1, 2: n_tokens, 4: n_tokens**2}
    elements = (
        tensor.numel() * power[double[name].numel() // tensor.numel()] for name, tensor in single.items()
    )
    return 4 * sum(elements) + 8 * n_tokens


def _note_size(model: "HookedMTA", n_tokens: int, names: Sequence[str], agreed: bool) -> None:
    n_bytes = stored_bytes(model, n_tokens, names)
    size = size_text(n_bytes)
    if n_bytes > ASK_ABOVE and not agreed:
        raise MtaVizError(
            f"the trace would take {size}, in memory and on disk; narrow it with --layers and --stages, "
            "or add --yes"
        )
    note(f"{n_tokens} tokens, {len(names)} hooks: {size}")


def _check_layers(model: "HookedMTA", layers: Sequence[int] | None) -> None:
    missing = [layer for layer in layers or () if layer >= model.config.n_layers]
    if missing:
        raise MtaVizError(
            f"no layer {', '.join(map(str, missing))}; the model has layers 0 to {model.config.n_layers - 1}"
        )


def _layer_of(name: str) -> int | None:
    found = re.match(r"blocks\.(\d+)\.", name)
    return int(found[1]) if found else None


def _is_named(name: str, stage: str) -> bool:
    return name == stage or name.endswith(f".{stage}")


def _unknown_stage(stage: str, every: Sequence[str]) -> str:
    found = {_layer_of(name) for name in every if _is_named(name, stage)}
    layers = sorted(layer for layer in found if layer is not None)
    if layers:
        return f"{stage} is computed in layers {', '.join(map(str, layers))} only; choose among them"
    known = dict.fromkeys(re.sub(r"^blocks\.\d+\.(attn\.)?", "", name) for name in every)
    return f"no hook {stage!r}; the model has: {', '.join(known)}"


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Save as safetensors through a file beside `path`, put in its place when complete.

    Raises MtaVizError when the place cannot be written (no permission, disk full).
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        with replacing(path) as partial:
            save_file(_separate(tensors), partial)
    except (OSError, SafetensorError) as error:
        raise MtaVizError(f"{path} cannot be written ({error}); choose another place") from error


def _separate(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Hooks that pass a tensor on unchanged share its memory, which the format refuses: copy those."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        separate[name] = tensor.clone().contiguous() if shared else tensor.contiguous()
    return separate

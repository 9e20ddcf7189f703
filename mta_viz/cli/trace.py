"""`trace PATH ... --out F.safetensors`: every hook of a run under its name, or a run to be opened again.

Hooks are float32 and as the model's own forward gives them. A run (`--format run`) is `traces.files`'.
"""

import re
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import torch

from mta_viz.cli.loading import open_prompt
from mta_viz.cli.output import check_output, note, write_tensors
from mta_viz.errors import MtaVizError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import size_text
from mta_viz.run.files import read_run, save_trace, trace_size
from mta_viz.run.tracing import capture, run_hooks
from mta_viz.tokenizers.base import Tokens

ASK_ABOVE = 4 * 2**30  # bytes


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the file; the answer says what is in it."""
    check_output(arguments.out, arguments.force)
    model, tokens = open_prompt(arguments)
    if arguments.format == "run":
        return _save_run(arguments, model, tokens)
    names = select_hooks(model, arguments.layers, arguments.stages)
    _state_size(model, len(tokens), names, arguments.yes)
    tensors = {"tokens": torch.tensor(tokens.ids), **run_hooks(model, tokens.ids, names)}
    write_tensors(arguments.out, tensors)
    return {
        "out": str(arguments.out),
        "n_tokens": len(tokens),
        "bytes": arguments.out.stat().st_size,
        "tensors": {name: list(tensor.shape) for name, tensor in tensors.items()},
    }


def _save_run(arguments: Namespace, model: HookedMTA, tokens: Tokens) -> dict[str, Any]:
    _check_layers(model, arguments.layers)
    chosen = {"stages": map_stages(arguments.stages), "layers": arguments.layers}
    trace = capture(model, tokens)
    note(f"{len(tokens)} tokens: {size_text(trace_size(trace, **chosen))}")
    save_trace(trace, arguments.out, **chosen, force=arguments.force)
    about = read_run(arguments.out).about
    return {
        "out": str(arguments.out),
        "n_tokens": len(tokens),
        "bytes": arguments.out.stat().st_size,
        "checkpoint": about.checkpoint,
        "sha256": about.sha256,
        "maps": [stage.hook_name(layer) for layer, stage in about.stored],
    }


def map_stages(names: Sequence[str] | None) -> tuple[Stage, ...]:
    """The T x T stages of hook names (None: all; `none`: none). Raises MtaVizError for what is no map."""
    if names is None:
        return tuple(Stage)
    stages = {stage.value.hook: stage for stage in Stage}
    wanted = [] if tuple(names) == ("none",) else [name.rpartition(".")[2] for name in names]
    unknown = [name for name in wanted if name not in stages]
    if unknown:
        raise MtaVizError(
            f"a run's file holds maps only, not {', '.join(unknown)}; maps: {', '.join(stages)}"
        )
    return tuple(stages[name] for name in wanted)


def select_hooks(
    model: HookedMTA, layers: Sequence[int] | None, stages: Sequence[str] | None
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


def stored_bytes(model: HookedMTA, n_tokens: int, names: Sequence[str]) -> int:
    """Size of a trace of `n_tokens` tokens, from runs of one and two.

    Each tensor has `n_tokens` to the power 0, 1 or 2 times as many elements as for one token:
    doubling the tokens shows which.
    """
    one, two = (run_hooks(model, (0,) * length, names) for length in (1, 2))
    growth = {name: two[name].numel() // one[name].numel() for name in one}
    power = {1: 1, 2: n_tokens, 4: n_tokens**2}
    return sum(4 * one[name].numel() * power[growth[name]] for name in one) + 8 * n_tokens


def _state_size(model: HookedMTA, n_tokens: int, names: Sequence[str], agreed: bool) -> None:
    n_bytes = stored_bytes(model, n_tokens, names)
    size = size_text(n_bytes)
    if n_bytes > ASK_ABOVE and not agreed:
        raise MtaVizError(
            f"the trace would take {size}, in memory and on disk; narrow it with --layers and --stages, "
            "or add --yes"
        )
    note(f"{n_tokens} tokens, {len(names)} hooks: {size}")


def _check_layers(model: HookedMTA, layers: Sequence[int] | None) -> None:
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

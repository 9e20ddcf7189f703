"""`trace PATH ... --out F.safetensors`: every hook of a run under its name, or a run to be opened again.

Hooks are float32 and as the model's own forward gives them. A run (`--format run`) is `run.files`'.
"""

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mta_viz
from mta_viz.cli.flags import add_file, add_prompt, open_prompt
from mta_viz.cli.output import note
from mta_viz.cli.values import layer_list, name_list, stage_named
from mta_viz.errors import MtaVizError
from mta_viz.model.stages import Stage
from mta_viz.printed import size_text
from mta_viz.tokenizers.base import Tokens
from mta_viz.version import VERSION
from mta_viz.writing import replacing

if TYPE_CHECKING:
    from torch import Tensor

    from mta_viz.model.transformer import HookedMTA

HELP = "run a prompt and save what happened inside, or the run itself"
ASK_ABOVE = 4 * 2**30  # bytes


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_prompt(parser)
    add("--layers", type=layer_list, metavar="0,3", help="layers to save (default: all)")
    about = "hooks to save, for example hook_scores_kq,hook_pattern (default: all; of a run maps, or none)"
    add("--stages", type=name_list, metavar="NAMES", help=about)
    about = "hooks (default): tensors for other programs; run: a file the app and open_trace open again"
    add("--format", choices=("hooks", "run"), default="hooks", help=about)
    add_file(parser, "--out", "file to write", required=True, metavar="F.safetensors", ending=".safetensors")
    add("--yes", action="store_true", help="write more than 4 GiB")


def run(arguments: Namespace) -> dict[str, Any]:
    """Write the file; the answer says what is in it."""
    model, tokens = open_prompt(arguments)
    save, out = _save_run if arguments.format == "run" else _save_hooks, arguments.out
    contents = save(arguments, model, tokens)
    return {"out": str(out), "n_tokens": len(tokens), "bytes": out.stat().st_size, **contents}


def _save_hooks(arguments: Namespace, model: "HookedMTA", tokens: Tokens) -> dict[str, Any]:
    import torch

    from mta_viz.run.files import weights_digest
    from mta_viz.run.tracing import run_hooks

    names = select_hooks(model, arguments.layers, arguments.stages)
    n_bytes = stored_bytes(model, len(tokens), names)
    size = size_text(n_bytes)
    if n_bytes > ASK_ABOVE and not arguments.yes:
        raise MtaVizError(
            f"the trace would take {size}, in memory and on disk; narrow it with --layers and --stages, "
            "or add --yes"
        )
    note(f"{len(tokens)} tokens, {len(names)} hooks: {size}")
    hooks = run_hooks(model, tokens.ids, names)
    about = {
        "checkpoint": model.source.name if model.source else "",
        "sha256": weights_digest(model),
        "not_finite": not_finite(hooks),
    }
    tensors = {"tokens": torch.tensor(tokens.ids), **hooks}
    write_tensors(arguments.out, tensors, _described(about, model, tokens))
    return {**about, "tensors": {name: list(tensor.shape) for name, tensor in tensors.items()}}


def _described(about: Mapping[str, Any], model: "HookedMTA", tokens: Tokens) -> dict[str, str]:
    """What the file says of its run: each entry JSON, but for texts, which are as they are."""
    from mta_viz.checkpoint.types import dtype_name

    facts: dict[str, Any] = {
        "format": "mta_viz hooks 1",
        "version": VERSION,
        **about,
        "dtype": dtype_name(model.dtype),
        "pieces": tokens.pieces,
        **({} if tokens.text is None else {"prompt": tokens.text}),
    }
    return {name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in facts.items()}


def not_finite(tensors: "Mapping[str, Tensor]") -> dict[str, int]:
    """How many values are NaN or infinite, of the tensors that have such; a note says so."""
    counts = {name: int((~tensor.isfinite()).sum()) for name, tensor in tensors.items()}
    counts = {name: count for name, count in counts.items() if count}
    if counts:
        first = next(iter(counts))
        note(f"NaN or infinite values in {len(counts)} tensors, first {counts[first]:,} in {first}")
    return counts


def _save_run(arguments: Namespace, model: "HookedMTA", tokens: Tokens) -> dict[str, Any]:
    from mta_viz.model.backends import described
    from mta_viz.run.files import read_run, save_trace, trace_size

    _check_layers(model, arguments.layers)
    layers = range(model.config.n_layers) if arguments.layers is None else arguments.layers
    computed = {stage for layer in layers for stage in model.blocks[layer].attn.stages}
    stages: Iterable[Stage] = (stage for stage in Stage if stage in computed)
    if arguments.stages is not None:  # the T x T stages of hook names; `none`: none
        names = () if arguments.stages == ("none",) else arguments.stages
        stages = (stage_named(name.rpartition(".")[2]) for name in names)
    chosen = {"stages": tuple(stages), "layers": arguments.layers}
    trace = mta_viz.capture(model, tokens)
    note(f"{len(tokens)} tokens: {size_text(trace_size(trace, **chosen))}")
    save_trace(trace, arguments.out, **chosen, force=arguments.force)
    run = read_run(arguments.out)
    about, maps = run.about, {stage.hook_name(layer): map for (layer, stage), map in run.maps.items()}
    return {
        "checkpoint": about.checkpoint,
        "sha256": about.sha256,
        "attention": described(trace.backends),
        "not_finite": not_finite({"residuals": run.residuals, **maps}),
        "maps": [stage.hook_name(layer) for layer, stage in about.stored],
    }


def select_hooks(
    model: "HookedMTA", layers: Sequence[int] | None, stages: Sequence[str] | None
) -> tuple[str, ...]:
    """Full names of the hooks of `layers` (None: everything) that `stages` names (None: all).

    A stage is named with or without what comes before it: `hook_z`, `attn.hook_z` or
    `blocks.1.attn.hook_z`. Raises MtaVizError saying what exists for a layer or stage that does not.
    """
    _check_layers(model, layers)
    every = {name: re.match(r"blocks\.(\d+)\.", name) for name in model.hook_dict}
    layer_of = {name: int(block[1]) if block else None for name, block in every.items()}
    inside = tuple(name for name in every if layers is None or layer_of[name] in layers)
    if stages is None:
        return inside
    for stage in stages:
        if not any(f".{name}".endswith(f".{stage}") for name in inside):
            raise MtaVizError(_unknown_stage(stage, layer_of))
    endings = tuple(f".{stage}" for stage in stages)
    return tuple(name for name in inside if f".{name}".endswith(endings))


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


def _check_layers(model: "HookedMTA", layers: Sequence[int] | None) -> None:
    missing = [layer for layer in layers or () if layer >= model.config.n_layers]
    if missing:
        raise MtaVizError(
            f"no layer {', '.join(map(str, missing))}; the model has layers 0 to {model.config.n_layers - 1}"
        )


def _unknown_stage(stage: str, layer_of: Mapping[str, int | None]) -> str:
    having = {layer_of[name] for name in layer_of if f".{name}".endswith(f".{stage}")}
    layers = sorted(layer for layer in having if layer is not None)
    if layers:
        return f"{stage} is computed in layers {', '.join(map(str, layers))} only; choose among them"
    known = dict.fromkeys(re.sub(r"^blocks\.\d+\.(attn\.)?", "", name) for name in layer_of)
    return f"no hook {stage!r}; the model has: {', '.join(known)}"


def write_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None
) -> None:
    """Save as safetensors with `metadata`, through a file beside `path`, put in its place when complete.

    Raises as `replacing`.
    """
    from safetensors.torch import save_file

    separate, memory = {}, set[int]()
    for name, tensor in tensors.items():  # hooks that pass a tensor on share it, which the format refuses
        start = tensor.untyped_storage().data_ptr()
        separate[name] = (tensor.clone() if start in memory else tensor).contiguous()
        memory.add(start)
    with replacing(path) as partial:
        save_file(separate, partial, metadata=metadata)

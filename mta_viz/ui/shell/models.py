"""Where the app looks for checkpoints: `assets/`, `--models DIR` after `--`, `MTA_VIZ_MODELS`.

Owns the list of roots and the words for a checkpoint in the picker; what a checkpoint is belongs
to `mta_viz.checkpoint.reading`.

Other models to run beside the page's: on the same device, in the same precision.
"""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from mta_viz.checkpoint.reading import Found
from mta_viz.checkpoint.types import parameter_count
from mta_viz.config import ModelConfig
from mta_viz.printed import size_text
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell.cache import ModelKey
from mta_viz.ui.shell.site import ASSETS
from mta_viz.ui.shell.uploads import TokenizerFiles

VARIANTS = {
    "transformer": "Transformer",
    "talking_heads": "Talking heads",
    "mta": "MTA",
    "differential": "DIFF Transformer",
}


def roots(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The folders to search, shipped models first, each once.

    `argv` (default: the process's) may hold `--models DIR` or `--models=DIR` any number of times;
    `environ["MTA_VIZ_MODELS"]` a list separated like PATH.
    """
    given = _option_values(sys.argv[1:] if argv is None else argv, "--models")
    listed = (os.environ if environ is None else environ).get("MTA_VIZ_MODELS", "")
    given += [part for part in listed.split(os.pathsep) if part]
    return tuple(dict.fromkeys([ASSETS, *(Path(part).expanduser().absolute() for part in given)]))


def _option_values(argv: Sequence[str], option: str) -> list[str]:
    values = [argument.removeprefix(f"{option}=") for argument in argv if argument.startswith(f"{option}=")]
    return values + [value for name, value in pairwise(argv) if name == option]


def label(found: Found, names: Sequence[str] = ()) -> str:
    """The picker's line, short enough for the sidebar: `blocks-n5-mta · MTA`.

    `names` are the names of all models on offer; where two are alike the parent folder is added.
    """
    name = found.name
    if list(names).count(name) > 1:
        name = f"{name} ({found.path.parent.name})"
    if found.summary is None:
        return f"{name} · cannot be read"
    return f"{name} · {VARIANTS[found.summary.config.variant]}"


def identity(found: Found, names: Sequence[str]) -> str:
    """What tells a checkpoint among those with `names`: its name, or its path where two are alike."""
    return found.name if list(names).count(found.name) == 1 else str(found.path)


def twin_of(name: str, others: Sequence[str]) -> str | None:
    """The plain twin of `x-mta`, which is `x-transformer`, or the other way round; None if it is gone."""
    ends = {"-mta": "-transformer", "-transformer": "-mta"}
    twins = [name.removesuffix(end) + other for end, other in ends.items() if name.endswith(end)]
    return next((twin for twin in twins if twin in others), None)


def grey_line(found: Found, run_dtype: str) -> str:
    """The rest: size, kernels, mixing, dtype in the file and of the run, format."""
    if found.summary is None:
        return ""
    config, summary = found.summary.config, found.summary
    kernels = [config.kernels(layer) for layer in range(config.n_layers)]
    parts = [
        f"{config.n_layers} layers x {config.n_heads} heads, {size_text(summary.n_bytes)}",
        _kernel_words("before softmax", config.mta.pre_kernel, [bool(k.pre) for k in kernels]),
        _kernel_words("after softmax", config.mta.post_kernel, [bool(k.post) for k in kernels]),
        "head mixing" if any(k.head_pre or k.head_post for k in kernels) else "",
        f"{summary.dtype or 'no weights in the'} file, {run_dtype} run",
        f"{summary.format} format",
    ]
    return " · ".join(part for part in parts if part)


def _kernel_words(place: str, size: tuple[int, int] | None, present: list[bool]) -> str:
    layers = [layer for layer, there in enumerate(present) if there]
    if not layers or size is None:
        return ""
    where = "all layers" if all(present) else "L" + ",".join(map(str, layers))
    return f"kernels {size[0]}x{size[1]} {place} in {where}"


def shape_lines(config: ModelConfig) -> list[str]:
    """What a configuration alone tells: how many parameters, and each layer's kernels and mixing."""
    lines = [f"parameters: {parameter_count(config):,}"]
    for layer in range(config.n_layers):
        kernels = config.kernels(layer)
        places = {
            "kernels before softmax": kernels.pre,
            "after": kernels.post,
            "mixing before": kernels.head_pre,
            "mixing after": kernels.head_post,
        }
        told = [f"{place} {'x'.join(map(str, shape))}" for place, shape in places.items() if shape]
        lines.append(f"L{layer}: {', '.join(told) or 'no kernels, no mixing'}")
    return lines


def nothing_found(searched: Sequence[Path], problems: Sequence[str]) -> str:
    """What to say when no root holds a checkpoint: where the app looked, and what to do."""
    places = ", ".join(str(root) for root in searched)
    text = (
        f"No model found. Looked in: {places}. A model is a folder with params.json and "
        "model.safetensors, consolidated.pth or .metadata. Start with `make app MODELS=/your/runs` "
        "or `streamlit run app.py -- --models /your/runs`."
    )
    return "\n".join([text, *problems])


def beside(own: ModelKey, path: str, step: int | None = None) -> ModelKey:
    """The model at `path`, of a run folder its `step`, to be run as `own` is."""
    return dataclasses.replace(
        own,
        path=path,
        changed=cache.changed(Path(path), step),
        tokenizer=state.part(TokenizerFiles).of.get(path),
        step=step,
    )


def twin_beside(own: ModelKey) -> tuple[str, ModelKey] | None:
    """The name and key of the model beside `own` in its folder that is named as its twin, if it can run."""
    folder = Path(own.path).parent
    found = cache.discovery(tuple(map(str, roots()))).found
    there = {one.path.name: one for one in found if one.path.parent == folder and can_run(one)}
    name = twin_of(Path(own.path).name, list(there))
    return None if name is None else (there[name].name, beside(own, str(there[name].path)))


def can_run(one: Found) -> bool:
    """Whether it has weights for a prompt; kernels alone, or a params.json alone, have not."""
    return one.problem is None and one.summary is not None and one.summary.format not in ("kernels", "params")

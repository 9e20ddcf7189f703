"""The app's models: where they are looked for, their words in the sidebar, and how they are loaded and run.

They are looked for in `--models DIR` after `--`, `MTA_VIZ_MODELS`, `assets/`, and where those lie that were
made here. Work beside the page loads and runs them; results go to the stores of `cache`.
"""

import dataclasses
import functools
import gc
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from mta_viz.checkpoint.hub import root_path
from mta_viz.checkpoint.locate import locate
from mta_viz.checkpoint.reading import Found, read_checkpoint
from mta_viz.checkpoint.relatives import named_roots, read_model, twin_of, usual_roots
from mta_viz.checkpoint.types import parameter_count
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError, MemoryFullError, MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import size_text
from mta_viz.run import tracing
from mta_viz.run.devices import conversion, multiply_adds
from mta_viz.run.placing import first_device, placed
from mta_viz.run.trace import Trace
from mta_viz.tokenizers.base import tokens_of
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell.cache import ModelKey, RunKey, Stores
from mta_viz.ui.shell.widgets import Bases, TokenizerFiles, layer_list
from mta_viz.ui.shell.work import Work

SHOW_SECONDS_FROM = 5.0  # shorter runs are not worth an estimate
# What the libraries made is left out of the search for garbage: Streamlit searches after every run of a page,
# which took 0.3 s with them. Once only: garbage that is there at the moment stays for good.
_set_libraries_apart = functools.cache(gc.freeze)
VARIANTS = {
    **{"transformer": "Transformer", "talking_heads": "Talking heads"},
    **{"mta": "MTA", "differential": "DIFF Transformer"},
}


class Uploaded(list[str]):
    """The folders of this session's uploaded models."""


def given_roots() -> list[Path]:
    """The folders that whoever started the app named."""
    words = sys.argv[1:]
    given = [word.removeprefix("--models=") for word in words if word.startswith("--models=")]
    given += [value for name, value in pairwise(words) if name == "--models"]
    return [*map(root_path, given), *named_roots()]


def roots() -> tuple[Path, ...]:
    """The folders to search, the visitor's own first, each once."""
    own = [Path(folder) for folder in state.part(Uploaded) if Path(folder).is_dir()]
    return tuple(dict.fromkeys([*given_roots(), *own, *usual_roots()]))


def found() -> tuple[Found, ...]:
    """What is in these folders."""
    return cache.discovery(tuple(map(str, roots()))).found


def named() -> dict[str, Found]:
    """The same by what tells each among them."""
    there = found()
    names = [model.name for model in there]
    return {identity(model, names): model for model in there}


def label(found: Found, names: Sequence[str] = ()) -> str:
    """The picker's line: `blocks-n5-mta · MTA`, with the parent folder where two of `names` are alike."""
    parent = f" ({found.path.parent.name})" if list(names).count(found.name) > 1 else ""
    summary = found.summary
    kind = "cannot be read" if summary is None else VARIANTS[summary.config.variant]
    of = f" adapter of {summary.base}" if summary is not None and summary.base else ""
    return f"{found.name}{parent} · {kind}{of}"


def identity(found: Found, names: Sequence[str]) -> str:
    """What tells a checkpoint among those with `names`: its name, or its path where two are alike."""
    return found.name if list(names).count(found.name) == 1 else str(found.path)


def grey_line(found: Found, run_dtype: str) -> str:
    """The rest: size, kernels, mixing, dtype in the file and of the run, format."""
    summary = found.summary
    if summary is None:
        return ""
    config = summary.config
    kernels = [config.kernels(layer) for layer in range(config.n_layers)]
    # of a GGUF file the summary has the dtype its values are read in, which is not the file's
    stored = "" if summary.format == "gguf" else f"{summary.dtype or 'no weights in the'} file, "
    parts = [
        f"{config.n_layers} layers x {config.n_heads} heads, {size_text(summary.n_bytes)}",
        _kernel_words("before softmax", config.mta.pre_kernel, [bool(k.pre) for k in kernels]),
        _kernel_words("after softmax", config.mta.post_kernel, [bool(k.post) for k in kernels]),
        "head mixing" if any(k.head_pre or k.head_post for k in kernels) else "",
        f"{stored}{run_dtype} run",
        f"{summary.format} format",
    ]
    return " · ".join(part for part in parts if part)


def _kernel_words(place: str, size: tuple[int, int] | None, present: list[bool]) -> str:
    layers = [layer for layer, there in enumerate(present) if there]
    if not layers or size is None:
        return ""
    where = "all layers" if all(present) else f"L{layer_list(layers, 0)}"
    return f"kernels {size[0]}x{size[1]} {place} in {where}"


def shape_lines(config: ModelConfig) -> list[str]:
    """What a configuration alone tells: how many parameters, and each layer's kernels and mixing."""
    lines = [f"parameters: {parameter_count(config):,}"]
    for layer in range(config.n_layers):
        kernels = config.kernels(layer)
        there = (kernels.pre, kernels.post, kernels.head_pre, kernels.head_post)
        places = zip(("kernels before softmax", "after", "mixing before", "mixing after"), there, strict=True)
        shapes = [f"{place} {'x'.join(map(str, shape))}" for place, shape in places if shape]
        lines.append(f"L{layer}: {', '.join(shapes) or 'no kernels, no mixing'}")
    return lines


def nothing_found(searched: Sequence[Path], problems: Sequence[str]) -> str:
    """What to say when no root holds a checkpoint: where the app looked, and what to do."""
    text = (
        f"No model found. Looked in: {', '.join(map(str, searched))}. A model is a folder with params.json "
        "and model.safetensors, consolidated.pth or .metadata, or one of Hugging Face: config.json and "
        "model.safetensors. Start with `make app MODELS=/your/runs` "
        "or `streamlit run app.py -- --models /your/runs`."
    )
    return "\n".join([text, *problems])


def beside(own: ModelKey, path: str, step: int | None = None) -> ModelKey:
    """The model at `path`, of a run folder its `step`, to be run as `own` is."""
    given, newest = state.part(TokenizerFiles).get(path), cache.changed(Path(path), step)
    base = base_of(path).path if _is_adapter(path) else None
    return dataclasses.replace(own, path=path, changed=newest, tokenizer=given, step=step, base=base)


def base_of(path: str) -> cache.Base:
    """The base of the adapter at `path`: where the visitor said, else where it is found."""
    given = state.part(Bases).get(path)
    return cache.base_of(path, cache.changed(Path(path)), given, tuple(map(str, roots())))


def on_base(adapter: Found, base: cache.Base) -> Found:
    """An adapter with what its base brings: the tokenizer, and the size of its weights."""
    if adapter.summary is None or base.summary is None:
        return adapter
    named = {name: getattr(base.summary, name) for name in ("tokenizer_name", "tokenizer_path", "dtype")}
    size = adapter.summary.n_bytes + base.summary.n_bytes
    return dataclasses.replace(adapter, summary=dataclasses.replace(adapter.summary, n_bytes=size, **named))


def _is_adapter(path: str) -> bool:
    try:
        return locate(Path(path)).format == "adapter"
    except CheckpointError:  # reading it will say what is wrong
        return False


def twin_beside(own: ModelKey) -> tuple[str, ModelKey] | None:
    """The name and key of what `own` is compared with: an adapter's base, else the twin in its folder."""
    if own.base is not None:
        return Path(own.base).name, beside(own, own.base)
    folder = Path(own.path).parent
    there = {model.path.name: model for model in found() if model.path.parent == folder}
    twin = there.get(twin_of(Path(own.path).name, list(there)) or "")
    return None if twin is None or not can_run(twin) else (twin.name, beside(own, str(twin.path)))


def can_run(model: Found) -> bool:
    """Whether it has weights for a prompt; kernels, a params.json or an adapter alone have not."""
    if model.problem is not None or model.summary is None:
        return False
    if model.summary.format == "adapter":
        return base_of(str(model.path)).path is not None
    return model.summary.format not in ("kernels", "params")


def has_kernels(model: Found) -> bool:
    """Whether it is multi-token attention: of any layer a key-query kernel."""
    return model.summary is not None and model.summary.config.variant == "mta"


def takes(model: Found, text: str) -> bool:
    """Whether it can run a text: it has weights, a tokenizer, and tokens for all of it."""
    summary = model.summary
    if summary is None or summary.tokenizer_name is None or summary.base or not can_run(model):
        return False
    path, given = str(model.path), state.part(TokenizerFiles).get(str(model.path))
    name = (summary.tokenizer_name, summary.tokenizer_path)
    try:
        return bool(tokens_of(cache.tokenizer(*name, path, given, cache.changed(model.path)), text))
    except MtaVizError:
        return False


def trace_of(key: RunKey, stores: Stores, work: Work) -> Trace:
    """The run of a prompt from `stores.traces`, made by this work if it is not there."""

    def run() -> Trace:
        model = model_of(key.model, stores, work)
        work.begin("Running the prompt", expected_seconds(model, key.prompt))
        try:
            return tracing.capture(model, key.prompt, progress=work.report)
        except MemoryFullError:  # once more, without the runs that are kept
            stores.traces.clear()
            stores.of_runs.clear()
            return tracing.capture(model, key.prompt, progress=work.report)

    return stores.traces.get_or_make(key, run)


def model_of(key: ModelKey, stores: Stores, work: Work) -> HookedMTA:
    """The model from `stores.models`, read by this work if it is not there."""

    def read() -> HookedMTA:
        _set_libraries_apart()
        work.begin(f"Reading {Path(key.path).name}")
        path, tokenizer = Path(key.path), Path(key.tokenizer) if key.tokenizer else None
        dtype = getattr(torch, key.dtype)
        how: dict[str, Any] = {
            "tokenizer": tokenizer,
            "progress": work.report,
            "conversion": conversion(first_device(key.device), dtype),
        }
        if key.base is None:
            checkpoint = read_checkpoint(path, step=key.step, **how)
        else:
            checkpoint = read_model(path, base=Path(key.base), **how)
        return placed(checkpoint, key.device, dtype)

    return stores.models.get_or_make(key, read)


def expected_seconds(model: HookedMTA, prompt: str | tuple[int, ...]) -> float | None:
    """How long a run should take, if it is long enough to be worth the measuring."""
    n_tokens = len(tracing.tokenize(model, prompt))
    if multiply_adds(model.config, n_tokens) < 4 * tracing.CALIBRATION:
        return None
    tracing.check_length(model, n_tokens)
    seconds = tracing.estimate_seconds(model, n_tokens)
    return seconds if seconds > SHOW_SECONDS_FROM else None

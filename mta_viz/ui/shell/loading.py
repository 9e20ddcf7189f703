"""Loading a model and running a prompt beside the page; results go to the stores of `cache`."""

import gc
from functools import cache
from pathlib import Path
from typing import Any

from mta_viz.ui.shell.cache import ModelKey, RunKey, Stores
from mta_viz.ui.shell.work import Work

SHOW_SECONDS_FROM = 5.0  # shorter runs are not worth an estimate


def trace_of(key: RunKey, stores: Stores, work: Work) -> Any:
    """The run (a Trace) of a prompt, its checkpoint read if needed; for `stores.traces`."""
    model = model_of(key.model, stores, work)
    work.begin("Running the prompt", expected_seconds(model, key.prompt))
    from mta_viz.run.tracing import capture

    return capture(model, key.prompt, progress=work.report)


def model_of(key: ModelKey, stores: Stores, work: Work) -> Any:
    """The model (a HookedMTA) from `stores.models`, read by this work if it is not there."""
    return stores.models.get_or_make(key, lambda: _load(key, work))


def _load(key: ModelKey, work: Work) -> object:
    work.begin("Loading the libraries (first time only)")
    from mta_viz.checkpoint.reading import read_checkpoint
    from mta_viz.model.transformer import build_model

    _set_libraries_apart()
    work.begin(f"Reading {Path(key.path).name}")
    override = Path(key.tokenizer) if key.tokenizer else None
    checkpoint = read_checkpoint(Path(key.path), tokenizer=override, step=key.step, progress=work.report)
    return build_model(checkpoint, device=key.device, dtype=torch_dtype(key.dtype))


@cache
def _set_libraries_apart() -> None:
    """Leave what the libraries made out of the search for garbage.

    Streamlit searches after every run of a page, which took 0.3 s with them. Once only: garbage
    that is there at the moment stays for good.
    """
    gc.freeze()


def expected_seconds(model: Any, prompt: str | tuple[int, ...]) -> float | None:
    """How long a run should take, if it is long enough to be worth the measuring."""
    from mta_viz.run.cost import multiply_adds
    from mta_viz.run.tracing import CALIBRATION, estimate_seconds, tokenize

    n_tokens = len(tokenize(model, prompt))
    if multiply_adds(model.config, n_tokens) < 4 * CALIBRATION:
        return None
    seconds = estimate_seconds(model, n_tokens)
    return seconds if seconds > SHOW_SECONDS_FROM else None


def torch_dtype(name: str) -> Any:
    """`torch.float32` for "float32"; torch is imported only here, in the work's thread."""
    import torch

    return getattr(torch, name)

"""What a page needs before it draws: the sidebar's request, a loaded model, a run; with progress and Stop.

Importing this imports torch, which takes seconds; `open_page` does so when something is on screen.

The parts of the sidebar that need a loaded model: health card, estimate, self-check.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.health import Health, SelfCheck, health
from mta_viz.checkpoint import door
from mta_viz.checkpoint.types import parameter_count
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import size_text
from mta_viz.run.cost import capture_bytes
from mta_viz.run.tracing import estimate_seconds
from mta_viz.ui.shell import cache, link, saved_runs, state
from mta_viz.ui.shell.cache import ModelKey, RunKey, Stores, stores
from mta_viz.ui.shell.loading import SHOW_SECONDS_FROM, model_of, trace_of
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.sidebar import FIRST_TOKEN, NUMBERING, RUN, Request, draw_settings, request_run
from mta_viz.ui.shell.widgets import plain
from mta_viz.ui.shell.work import (
    QUIET_SECONDS,
    Work,
    current,
    draw_stop,
    known,
    show_progress,
    start,
    stop_all,
)

STAGE_TOLERANCE = 2e-4  # float32 noise of a whole model, several times over
HASH_UP_TO = 200e6  # bytes: the sha256 of larger weights is computed when asked for


def draw_estimate(request: Request, model: HookedMTA) -> None:
    """Tokens, time when it is long, memory; and whether the prompt is longer than the training."""
    if not request.n_tokens or request.estimate is None:
        return
    parts = [f"{request.n_tokens:,} tokens"]
    seconds = estimate_seconds(model, request.n_tokens)
    if seconds > SHOW_SECONDS_FROM:
        parts.append(f"about {seconds:.0f} s")
    parts.append(size_text(capture_bytes(model.config, request.n_tokens, model.device.type)))
    if request.n_tokens > model.config.n_ctx:
        parts.append(f"beyond the trained length of {model.config.n_ctx:,}")
    request.estimate.caption(plain(" · ".join(parts)))


def draw_details(request: Request, page: Page) -> Any:
    """Where the weights come from; returns the place above it for the health card."""
    with request.details:
        st.caption("Health on this prompt" if page.trace else "Health of the weights")
        card = st.empty()
        st.code(provenance(request, page), language=None, wrap_lines=True)
        for note in request.summary.notes:
            st.caption(plain(note))
        readme = door.own_file(Path(request.model_key.path), "README.md", door.SETTINGS)
        if readme is not None:
            st.download_button("Model card", readme, "model-card.md", on_click="ignore")
    return card


def provenance(request: Request, page: Page) -> str:
    """Where the weights come from and how many they are, one fact a line."""
    lines = {
        "parameters": f"{parameter_count(page.model.config):,}",
        "trained length": f"{page.model.config.n_ctx:,} tokens",
        "tokenizer": request.summary.tokenizer_name or "none named",
        "sha256": _digest(request),
        "path": request.model_key.path,
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


def health_lines(found: Health) -> list[str]:
    """The health card: one line a fact, trouble marked."""
    at_identity, kernels = found.kernels_at_identity
    lines = [
        f"{'! ' if found.n_nan or found.n_inf else ''}NaN {found.n_nan:,}, infinite {found.n_inf:,}",
        f"kernels at identity: {at_identity} of {kernels}",
    ]
    if found.largest_tap is not None:
        lines.append(f"{_mark(found.largest_tap)}largest |tap|: {_number(found.largest_tap, '.3g')}")
    if found.gates_below_0_05 is not None:
        gates = found.gates_below_0_05
        lines.append(f"{_mark(gates)}gates below 0.05: {_number(gates, '.0%')}")
    if found.row_sum_range is not None:
        low, high = found.row_sum_range
        ends = f"{_number(low, '.3g')} to {_number(high, '.3g')}"
        lines.append(f"{_mark(low, high)}row sums of the final weights: {ends}")
    return lines


def _mark(*values: float) -> str:
    return "" if all(map(isfinite, values)) else "! "


def _number(value: float, form: str) -> str:
    return "NaN" if isnan(value) else format(value, form)


@dataclass
class Hashed:
    """Large models whose sha256 was asked for."""

    models: set[ModelKey] = field(default_factory=set)


def _digest(request: Request) -> str:
    """The sha256 of the weights; large ones get a button, since reading them takes long."""
    key = request.model_key
    asked = state.part(Hashed)
    if request.summary.n_bytes > HASH_UP_TO and key not in asked.models:
        st.button("Compute sha256", key="sha256", on_click=asked.models.add, args=(key,))
        return f"not computed ({size_text(request.summary.n_bytes)} to read)"
    return cache.digest(key)


def draw_health(request: Request, page: Page, card: Any) -> None:
    """The health card into `card`, and one line: a second run of the prompt against the first.

    Both are worked out beside the page, once for each run; meanwhile the line says so.
    """
    line, key = request.check.empty(), ("health", page.key)
    report = known(key)
    if report is None:
        line.caption("Checking this run ..." if page.trace else "Checking the weights ...")
        report = _wait_for_health(page, key)
    line.empty()
    if report is None:
        return
    card.code("\n".join(health_lines(report)), language=None, wrap_lines=True)
    if report.self_check is not None:
        line.caption(plain(check_line(report.self_check, page.model.dtype.itemsize >= 4)))


def _wait_for_health(page: Page, key: Hashable) -> Health | None:
    """None where another page of this session stopped it. Raises what the check raised."""
    work = current("health", key)
    if work is None or not work.running:
        drawn = stores().drawn
        work = start(
            "health", key, lambda _: drawn.get_or_make(key, lambda: health(page.model, page.trace)), "model"
        )
    while not work.wait(0.2):
        pass
    if work.failure is not None:
        raise work.failure
    return known(key)


def check_line(check: SelfCheck, exact: bool) -> str:
    """`Self-check 2.1e-06 ✓`; in half precision no verdict, only the number; never a tick beside NaN."""
    errors = (check.residual_error, check.logits_error)
    if not all(map(isfinite, errors)):  # first: max() with a NaN in it depends on the order
        return "Self-check NaN: the run holds NaN or inf, see Details"
    worst = max(errors)
    if not exact:
        return f"Self-check: largest difference {worst:.1e} (half precision)"
    if worst <= STAGE_TOLERANCE:
        return f"Self-check {worst:.1e} ✓"
    return f"Self-check {worst:.1e}: the maps differ from the model's own run"


def devices() -> list[str]:
    """The CPU, and each CUDA device torch sees."""
    import torch

    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]


@dataclass
class PageRun:
    """The model and run the page shows, by their keys."""

    model: ModelKey | None = None
    run: RunKey | None = None


def ready(request: Request) -> Page | None:
    """Everything the page needs, after loading and running what is missing; None: it was said why not."""
    if request.model is None:
        (st.info if request.found is None else st.error)(plain(request.problem))
        return None
    if state.part(PageRun).model != request.model:
        stop_all("page", "model")
    state.session().parts[PageRun] = PageRun(request.model, request.run)
    wanted = request.run or request.model
    opened = saved_runs.find(wanted)
    result = _result(wanted) if opened is None else opened.trace
    if result is None:
        result = _make(request, wanted)
    _draw_run(request)
    if result is None:
        st.info("Stopped. Press Run to see this prompt.")
        return None
    trace = result if request.run else None
    computed = request.run.text if request.run else repr(request.model)
    return Page(
        model=trace.model if trace else result,
        trace=trace,
        key=computed if opened is None else opened.key,
        empty=request.empty,
        stale=request.stale,
        numbering=NUMBERING.value,
        first_token=FIRST_TOKEN.value,
        model_key=request.model,
    )


def _result(wanted: RunKey | ModelKey) -> Any | None:
    return (stores().traces if isinstance(wanted, RunKey) else stores().models).get(wanted)


def _make(request: Request, wanted: RunKey | ModelKey) -> Any | None:
    """Wait for the work that makes `wanted`, showing it. None after Stop; raises what the work raised."""
    work = current(RUN, wanted) or start(RUN, wanted, partial(_load_and_run, wanted, stores()), "model")
    if not work.wait(QUIET_SECONDS):
        with request.button:
            draw_stop(RUN, work, width="stretch")
        show_progress(work)
    if work.failure is not None:
        _draw_run(request)
        raise work.failure
    return _result(wanted)


def _load_and_run(wanted: RunKey | ModelKey, kept: Stores, work: Work) -> None:
    if isinstance(wanted, RunKey):
        kept.traces.get_or_make(wanted, lambda: trace_of(wanted, kept, work))
    else:
        model_of(wanted, kept, work)


def _draw_run(request: Request) -> None:
    """The Run button. Never disabled: a disabled one would swallow the click that ends the typing."""
    if not request.runs:
        return
    up_to_date = request.run is not None and not request.stale and not request.empty
    request.button.button(
        "Run",
        key="run",
        type="secondary" if up_to_date else "primary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter",
        width="stretch",
        on_click=request_run,
        help="Up to date: what is shown is of this prompt." if up_to_date else None,
    )


def finish(request: Request, page: Page) -> None:
    """The parts of the sidebar that need a loaded model; drawn after the page's own content.

    The check comes last: it runs the prompt once more, and everything else is on screen by then.
    """
    draw_estimate(request, page.model)
    card = draw_details(request, page)
    draw_settings(request, devices())
    if request.runs:
        with st.sidebar:
            saved_runs.draw_saved_runs(page)
    draw_health(request, page, card)


def say_left_out(request: Request) -> None:
    """What the link asked for that this page could not give, until another prompt is run."""
    left_out = state.left_out()
    if left_out:
        st.sidebar.warning(plain(f"The link's settings that could not be restored: {'; '.join(left_out)}."))
    weights = state.part(link.PromptLink).weights
    if weights and request.model is not None and cache.digest(request.model) != weights:
        st.sidebar.warning("The opened session was made with other weights than this model's.")

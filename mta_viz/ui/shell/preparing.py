"""The model and run a page needs before it draws; after it, the sidebar's parts that need a loaded model.

Importing this imports torch, which takes seconds; `open_page` does so when something is on screen.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import streamlit as st
import torch

from mta_viz.analysis.attention.changes import Health, SelfCheck, health
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.types import parameter_count
from mta_viz.config import DTYPES
from mta_viz.errors import TooLongError
from mta_viz.model.backends import described
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import size_text
from mta_viz.run.devices import capture_bytes, cut, devices
from mta_viz.run.placing import AUTO
from mta_viz.run.tracing import estimate_seconds, tokenize
from mta_viz.tokenizers.base import CutPlace
from mta_viz.ui.shell import cache, link, models, saved_runs, sidebar, state
from mta_viz.ui.shell.cache import ModelKey, RunKey, stores
from mta_viz.ui.shell.machine import draw_doctor
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.sidebar import RUN, Request
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import menu, offer_cuts, plain
from mta_viz.ui.shell.work import begun, current, let_go, show_until_done, start, stop_all, taken

STAGE_TOLERANCE = 2e-4  # float32 noise of a whole model, several times over
HASH_UP_TO = 200e6  # bytes: the sha256 of larger weights is computed when asked for
HASHED = Setting[tuple[ModelKey, ...]]("hashed", (), private=True)  # large models whose sha256 was asked for


def _draw_estimate(request: Request, model: HookedMTA) -> None:
    n_tokens, n_ctx = request.n_tokens, model.config.n_ctx
    if request.estimate is None:
        return
    parts, seconds = [f"{n_tokens:,} tokens"], estimate_seconds(model, n_tokens)
    if seconds > models.SHOW_SECONDS_FROM:
        parts.append(f"about {seconds:.0f} s")
    parts.append(size_text(capture_bytes(model.config, n_tokens, model.device.type)))
    if n_tokens > n_ctx:
        parts.append(f"beyond the trained length of {n_ctx:,}")
    mark = ":material/warning: " if n_tokens > n_ctx else ""
    request.estimate.caption(mark + plain(" · ".join(parts)))


def _draw_details(request: Request, page: Page) -> Any:
    """Where the weights come from, one fact a line; returns the place above it for the health card."""
    facts = {
        "parameters": f"{parameter_count(page.model.config):,}",
        "trained length": f"{page.model.config.n_ctx:,} tokens",
        "tokenizer": request.summary.tokenizer_name or "none named",
    }
    if page.trace and page.trace.backends:
        facts["attention"] = described(page.trace.backends)
    with request.details:
        st.caption("Health on this prompt" if page.trace else "Health of the weights")
        card = st.empty()
        facts |= {"sha256": _digest(page.model_key, request.summary.n_bytes), "path": page.model_key.path}
        facts |= dict.fromkeys(cache.changes(Path(page.model_key.path), page.model_key.step), "read again")
        text = "\n".join(f"{name}: {value}" for name, value in facts.items())
        st.code(text, language=None, wrap_lines=True)
        for note in request.summary.notes:
            st.caption(plain(note))
        readme = door.own_file(beside(Path(page.model_key.path)), "README.md", door.SETTINGS)
        if readme is not None:
            st.download_button("Model card", readme, "model-card.md", on_click="ignore")
    return card


def _health_lines(report: Health) -> list[str]:
    at_identity, kernels = report.kernels_at_identity
    lines = [
        f"{'! ' if report.n_nan or report.n_inf else ''}NaN {report.n_nan:,}, infinite {report.n_inf:,}",
        f"kernels at identity: {at_identity} of {kernels}",
    ]
    numbers = (
        ("largest |tap|", ".3g", (report.largest_tap,)),
        ("gates below 0.05", ".0%", (report.gates_below_0_05,)),
        ("row sums of the final weights", ".3g", report.row_sum_range or ()),
    )
    for name, form, values in numbers:
        known_values = [value for value in values if value is not None]
        if known_values:
            mark = "" if all(map(isfinite, known_values)) else "! "
            texts = ("NaN" if isnan(value) else format(value, form) for value in known_values)
            lines.append(f"{mark}{name}: {' to '.join(texts)}")
    return lines


def _digest(key: ModelKey, n_bytes: int) -> str:
    """The sha256 of the weights; large ones get a button, since reading them takes long."""
    asked = HASHED.value
    if n_bytes <= HASH_UP_TO or key in asked:
        return cache.digest(key)
    st.button("Compute sha256", key="sha256", on_click=HASHED.put, args=((*asked, key),))
    return f"not computed ({size_text(n_bytes)} to read)"


def _draw_health(request: Request, page: Page, card: Any) -> None:
    """The health card, and one line: a second run of the prompt against the first. Raises what failed."""
    line, key, drawn = request.check.empty(), ("health", page.key), stores().drawn
    report = drawn.get(key)
    if report is None:
        line.caption("Checking this run ..." if page.trace else "Checking the weights ...")
        work = current("health", key)
        if work is None or not work.running:
            make = partial(health, page.model, page.trace)
            work = start("health", key, lambda _: drawn.get_or_make(key, make), "model")
        while not work.wait(0.2):
            pass
        if work.failure is not None:
            raise work.failure
        report = taken(work, key, drawn)
    if report is not None:  # else another page of this session stopped it
        card.code("\n".join(_health_lines(report)), language=None, wrap_lines=True)
    if report is not None and report.self_check is not None:
        line.caption(plain(check_line(report.self_check, page.model.dtype.itemsize >= 4)))
    else:
        line.empty()


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
    before = state.part(PageRun).model
    if before != request.model:
        stop_all("page", "model")
        if before is not None and replace(before, changed=request.model.changed) == request.model:
            path = Path(before.path)
            for words in cache.changes(path, request.model.step):
                st.toast(plain(f"{path.name}: {words}. It is read again."))
    state.session().parts[PageRun] = PageRun(request.model, request.run)
    wanted = request.run or request.model
    opened = saved_runs.find(wanted)
    try:
        result = _made(request, wanted) if opened is None else opened.trace
    except TooLongError as error:
        _offer_cuts(request.run, error)
        return None
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
        numbering=sidebar.NUMBERING.value,
        first_token=sidebar.FIRST_TOKEN.value,
        model_key=request.model,
    )


def _made(request: Request, wanted: RunKey | ModelKey) -> Any | None:
    """The run or model. Shows the work that makes it. None after Stop; raises what the work raised."""
    # There every time: what stands under it would be mounted anew where it comes and goes.
    is_run, place = isinstance(wanted, RunKey), st.empty()
    store = stores().traces if is_run else stores().models
    if (there := store.get(wanted)) is not None:
        let_go(RUN, wanted)
        return there
    make: Callable[..., Any] = models.trace_of if is_run else models.model_of
    work = begun(RUN, wanted, lambda work: make(wanted, stores(), work), "model")
    import scipy.special  # noqa: F401  # kernels are named with it: slow to import, so beside the first run

    show_until_done(RUN, work, place)
    if work.failure is not None:
        raise work.failure
    return taken(work, wanted, store)


def _offer_cuts(run: RunKey | None, error: TooLongError) -> None:
    """What is wrong, and the prompt made to fit in one of three ways."""
    st.error(plain(str(error)))
    if run is not None and error.most:
        offer_cuts(partial(_use_cut, run, error.most))


def _use_cut(run: RunKey, most: int, place: CutPlace) -> None:
    model = stores().models.get(run.model)
    if model is not None:  # else it went for others' models, and the page says again that it is too long
        sidebar.use_prompt(cut(model, tokenize(model, run.prompt), most, place))


def draw_settings(request: Request, devices: list[str]) -> None:
    """Device, dtype, numbering and scale; drawn last, since naming GPUs needs torch."""
    with request.settings:
        if st.user.get("is_logged_in"):
            st.button("Sign out", icon=":material/logout:", on_click=st.logout)
        menu("Device", devices, sidebar.DEVICE)
        menu("Compute in", DTYPES, sidebar.DTYPE)
        menu("Layers and heads", {0: "from 0", 1: "from 1 (as in the paper)"}, sidebar.NUMBERING)
        help = "The first token often draws most of the attention; it is left out of the automatic limits."
        st.toggle("First token sets the colour scale too", help=help, **sidebar.FIRST_TOKEN.widget())
        draw_doctor()
        st.button("Look for new models", icon=":material/refresh:", on_click=cache.discovery.clear)


def finish(request: Request, page: Page) -> None:
    """What could not be restored, and the parts of the sidebar that need a loaded model; after the page."""
    left_out, weights = state.left_out(), state.part(link.PromptLink).weights
    if left_out:  # of what the link asked for, until another prompt is run
        st.sidebar.warning(plain(f"The link's settings that could not be restored: {'; '.join(left_out)}."))
    if weights and cache.digest(page.model_key) != weights:
        st.sidebar.warning("The opened session was made with other weights than this model's.")
    _draw_estimate(request, page.model)
    card = _draw_details(request, page)
    draw_settings(request, [*devices(), AUTO][: None if torch.cuda.device_count() > 1 else -1])
    if request.runs:
        with st.sidebar:
            saved_runs.draw_saved_runs(page)
    _draw_health(request, page, card)  # last: it runs the prompt once more, and all else is on screen

"""The parts of the sidebar that need a loaded model: health card, estimate, self-check."""

from math import isfinite, isnan
from pathlib import Path

import streamlit as st

from mta_viz.analysis.health import Health, health
from mta_viz.checkpoint.hashing import sha256
from mta_viz.checkpoint.reading import parameter_count
from mta_viz.cost import capture_bytes
from mta_viz.model.transformer import HookedMTA
from mta_viz.tracing import SelfCheck, estimate_seconds
from mta_viz.ui.cache import remember
from mta_viz.ui.open_page import Page
from mta_viz.ui.registry import megabytes
from mta_viz.ui.sidebar import Request
from mta_viz.ui.widgets import plain

SHOW_SECONDS_FROM = 5.0
STAGE_TOLERANCE = 2e-4  # float32 noise of a whole model, several times over


def draw_estimate(request: Request, model: HookedMTA) -> None:
    """Tokens, time when it is long, memory; and whether the prompt is longer than the training."""
    if not request.n_tokens or request.estimate is None:
        return
    parts = [f"{request.n_tokens:,} tokens"]
    seconds = estimate_seconds(model, request.n_tokens)
    if seconds > SHOW_SECONDS_FROM:
        parts.append(f"about {seconds:.0f} s")
    parts.append(megabytes(capture_bytes(model.config, request.n_tokens)))
    if request.n_tokens > model.config.n_ctx:
        parts.append(f"beyond the trained length of {model.config.n_ctx:,}")
    request.estimate.caption(plain(" · ".join(parts)))


def draw_details(request: Request, page: Page) -> None:
    """The health card, then where the weights come from."""
    with request.details:
        st.caption("Health on this prompt" if page.trace else "Health of the weights")
        st.code("\n".join(health_lines(_health(page))), language=None)
        st.code(provenance(request, page), language=None, wrap_lines=True)
        for note in request.summary.notes:
            st.caption(plain(note))
        card = Path(request.model_key.path) / "README.md"
        if card.is_file():
            st.download_button("Model card", card.read_bytes(), "model-card.md", on_click="ignore")


def provenance(request: Request, page: Page) -> str:
    """Where the weights come from and how many they are, one fact a line."""
    lines = {
        "parameters": f"{parameter_count(page.model.config):,}",
        "trained length": f"{page.model.config.n_ctx:,} tokens",
        "tokenizer": request.summary.tokenizer_name or "none named",
        "sha256": _sha256(request.model_key.path, request.model_key.changed),
        "path": request.model_key.path,
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


def health_lines(found: Health) -> list[str]:
    """The health card: one line a fact, trouble marked."""
    at_identity, kernels = found.kernels_at_identity
    lines = [
        f"{'!' if found.n_nan or found.n_inf else ' '} NaN {found.n_nan:,}, infinite {found.n_inf:,}",
        f"  kernels at identity: {at_identity} of {kernels}",
    ]
    if found.largest_tap is not None:
        lines.append(f"{_mark(found.largest_tap)} largest |tap|: {_number(found.largest_tap, '.3g')}")
    if found.gates_below_0_05 is not None:
        gates = found.gates_below_0_05
        lines.append(f"{_mark(gates)} gates below 0.05: {_number(gates, '.0%')}")
    if found.row_sum_range is not None:
        low, high = found.row_sum_range
        ends = f"{_number(low, '.3g')} to {_number(high, '.3g')}"
        lines.append(f"{_mark(low, high)} row sums of the final weights: {ends}")
    return lines


def _mark(*values: float) -> str:
    return " " if all(map(isfinite, values)) else "!"


def _number(value: float, form: str) -> str:
    return "NaN" if isnan(value) else format(value, form)


def _health(page: Page) -> Health:
    return remember(lambda: health(page.model, page.trace), "health", page.key)


@st.cache_data(show_spinner=False, max_entries=16)
def _sha256(path: str, changed: int) -> str:
    return sha256(Path(path))


def draw_check(request: Request, page: Page) -> None:
    """One line: the staged recomputation against the model's own output."""
    check = _health(page).self_check
    if check is not None:
        request.check.caption(plain(check_line(check, page.model.dtype.itemsize >= 4)))


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

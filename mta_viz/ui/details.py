"""The parts of the sidebar that need a loaded model: health card, estimate, self-check."""

from pathlib import Path
import streamlit as st

from mta_viz.analysis.health import Health, health
from mta_viz.checkpoint.hashing import sha256
from mta_viz.checkpoint.reading import parameter_count
from mta_viz.model.transformer import HookedMTA
from mta_viz.tracing import SelfCheck, estimate_bytes, estimate_seconds, self_check, Trace
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
    parts.append(megabytes(estimate_bytes(model, request.n_tokens)))
    if request.n_tokens > model.config.n_ctx:
        parts.append(f"beyond the trained length of {model.config.n_ctx:,}")
    request.estimate.caption(plain(" · ".join(parts)))


def draw_details(request: Request, page: Page) -> None:
    """The health card, then where the weights come from."""
    found = request.found
    with request.details:
        _draw_health(_health(page.key, page.model, page.trace))
        lines = {
            "parameters": f"{parameter_count(page.model.config):,}",
            "trained length": f"{page.model.config.n_ctx:,} tokens",
            "tokenizer": found.summary.tokenizer_name or "none named",
            "sha256": _sha256(request.model.path, request.model.changed),
            "path": request.model.path,
        }
        st.code("\n".join(f"{name}: {value}" for name, value in lines.items()), language=None, wrap_lines=True)
        for note in found.summary.notes:
            st.caption(plain(note))
        card = Path(request.model.path) / "README.md"
        if card.is_file():
            st.download_button("Model card", card.read_bytes(), "model-card.md", on_click="ignore")


@st.cache_resource(show_spinner=False, max_entries=16)
def _health(key: str, _model: HookedMTA, _trace: Trace | None) -> Health:
    return health(_model, _trace)


@st.cache_data(show_spinner=False, max_entries=16)
def _sha256(path: str, changed: int) -> str:
    return sha256(Path(path))


@st.cache_resource(show_spinner=False, max_entries=16)
def _self_check(key: str, _trace: Trace) -> SelfCheck:
    return self_check(_trace)


def draw_check(request: Request, page: Page) -> None:
    """One line: the staged recomputation against the model's own output."""
    if page.trace is None:
        return
    check = _self_check(page.key, page.trace)
    with request.check:
        st.caption(plain(check_line(check, page.model.dtype.itemsize >= 4)))


def check_line(check: SelfCheck, exact: bool) -> str:
    """`Self-check 2.1e-06 ✓`; in half precision no verdict, only the number."""
    worst = max(check.stage_error, check.logits_error)
    if not exact:
        return f"Self-check: largest difference {worst:.1e} (half precision)"
    if worst <= STAGE_TOLERANCE:
        return f"Self-check {worst:.1e} ✓"
    return f"Self-check {worst:.1e}: the maps differ from the model's own run"


def devices() -> list[str]:
    """The CPU, and each CUDA device torch sees."""
    import torch

    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]

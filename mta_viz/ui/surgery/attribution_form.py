"""The form of attribution: the method, where gradients start, what is replaced by what, and for how long."""

from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.attributed_prompt import Groups, Method
from mta_viz.analysis.attribution import MOST_TOKENS, Baseline, bos_id
from mta_viz.errors import PromptError
from mta_viz.tasks.haystack import encode_piece
from mta_viz.ui import state
from mta_viz.ui.open_page import Page
from mta_viz.ui.spans_view import spans_of

METHODS: dict[Method, str] = {"gradients": "Integrated gradients", "ablation": "Ablation"}
BASELINES = {
    "mean": "mean embedding of the vocabulary",
    "zero": "embeddings of zeros",
    "bos": "embedding of BOS",
    "token": "embedding of a token ...",
}
SPANS, TOKENS = "named spans", "single tokens"
SECONDS, LEAST, MOST = 30, 5, 3600


@dataclass(frozen=True)
class Choice:
    """What to measure; `groups`: None for single tokens."""

    method: Method
    baseline: Baseline | None
    groups: Groups | None
    seconds: float


def pick_choice(page: Page) -> Choice:
    """The method with its own fields. Raises PromptError for a token that is none."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method: Method = st.segmented_control(
            "Method",
            list(METHODS),
            format_func=METHODS.__getitem__,
            required=True,
            help="Gradients along the way from a baseline to the prompt, which sum to the difference; or "
            "what is lost when tokens are replaced.",
            **state.kept("attribution method", "gradients", list(METHODS)),
        )
        if method == "gradients":
            return Choice(method, _pick_baseline(page), None, pick_seconds())
        groups, replacement = _pick_groups(page), _pick_replacement(page)
        return Choice(method, replacement, groups, pick_seconds())


def pick_seconds() -> float:
    """The most time gradients may take."""
    return float(
        st.number_input(
            "At most (s)",
            min_value=LEAST,
            max_value=MOST,
            step=5,
            width=140,
            help="Gradients stop when 1 % of completeness error is reached, or after this time.",
            **state.kept("attribution seconds", SECONDS, within=(LEAST, MOST)),
        )
    )


def _pick_baseline(page: Page) -> Baseline:
    names = [name for name in BASELINES if name != "bos" or bos_id(page.model) is not None]
    chosen = st.selectbox(
        "Baseline",
        names,
        format_func=BASELINES.__getitem__,
        width=290,
        help="What every token is at the start of the way; values say what the tokens bring beyond it.",
        **state.kept("attribution baseline", "mean", names),
    )
    return _pick_token(page, "Baseline token") if chosen == "token" else chosen


def _pick_replacement(page: Page) -> int | None:
    own = bos_id(page.model)
    first = f"token 0{'' if own is None else ' (BOS)'}" if own in (None, 0) else f"BOS (token {own})"
    names = {"own": first, "token": "a token ..."}
    chosen = st.selectbox(
        "Replaced by",
        list(names),
        format_func=names.__getitem__,
        width=190,
        **state.kept("attribution replacement", "own", list(names)),
    )
    return _pick_token(page, "Token") if chosen == "token" else None


def _pick_groups(page: Page) -> Groups | None:
    spans = spans_of(page)
    kinds = [SPANS, TOKENS] if spans else [TOKENS]
    chosen = st.segmented_control(
        "Replaced are",
        kinds,
        required=True,
        help=f"Single tokens: all of them, or the {MOST_TOKENS} of largest integrated gradients. "
        "Spans are named on the Attention page.",
        **state.kept("attribution groups", kinds[0], kinds),
    )
    if chosen == TOKENS:
        return None
    return _apart([tuple(span.positions) for span in spans])


def _apart(groups: list[tuple[int, ...]]) -> Groups:
    """The groups without positions of an earlier one."""
    taken: set[int] = set()
    kept = []
    for group in groups:
        own = tuple(place for place in group if place not in taken)
        taken.update(own)
        if own:
            kept.append(own)
    return tuple(kept)


def _pick_token(page: Page, label: str) -> int:
    """One token by its text, or by its id where there is no tokenizer."""
    tokenizer = page.model.tokenizer
    if tokenizer is None:
        most = page.model.config.vocab_size - 1
        kept = state.kept("baseline id", 0, within=(0, most))
        return int(st.number_input(f"{label}'s id", 0, most, width=150, **kept))
    text = st.text_input(label, width=150, **state.kept("baseline token", "."))
    ids = encode_piece(tokenizer, text).ids if text else ()
    if len(ids) != 1:
        raise PromptError(f"{label}: {text!r} is {len(ids)} tokens of this model; type a text of one token")
    return ids[0]

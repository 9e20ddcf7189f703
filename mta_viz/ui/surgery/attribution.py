"""The form of attribution: the method, where gradients start, what is replaced by what, and for how long.

Attribution: which tokens an answer rests on, by integrated gradients or by replacing them; which heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.cause.attributed_prompt import AttributedPrompt, Groups, Method, attribute
from mta_viz.analysis.cause.attribution import ENOUGH, MOST_TOKENS, Baseline, bos_id
from mta_viz.analysis.cause.attribution_path import MOST_STEPS
from mta_viz.errors import PromptError
from mta_viz.exporting.results import attribution_csv
from mta_viz.plots.cause import attribution_bars, attribution_text, value_limit
from mta_viz.plots.theme import cut, limit_text, probability_text, score_text
from mta_viz.tasks.haystack import encode_piece
from mta_viz.ui.attention.spans import spans_of
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_position, on_token
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, plain
from mta_viz.ui.surgery.attributed_heads import draw_heads
from mta_viz.ui.surgery.board import Asked, Keep, Report, best_of, pick_question

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


WIDTH = 900
LAST = "attribution so far"
DRAWN = {"bars": attribution_bars, "text": attribution_text}


def draw_attribution(page: Page, selected: Selected) -> None:
    """The question, the tokens' values once they are measured, and the heads' maps under them."""
    asked = pick_question(page)
    choice = pick_choice(page)
    groups = _until(choice.groups, asked.position)
    if groups == ():
        st.info("No named span lies before this token. Choose single tokens, or name a span on Attention.")
    else:
        found = _measured(page, asked, choice, groups)
        if found is not None:
            _draw(page, asked, found)
    st.markdown("**Heads: what the answer rests on in their maps**")
    draw_heads(page, selected, asked, choice.seconds)


def _until(groups: Groups | None, position: int) -> Groups | None:
    """What of the groups is in the prompt up to `position`."""
    if groups is None:
        return None
    cut = (tuple(place for place in group if place <= position) for group in groups)
    return tuple(group for group in cut if group)


def _measured(page: Page, asked: Asked, choice: Choice, groups: Groups | None) -> AttributedPrompt | None:
    """What is found so far; gradients that are not complete go on from there at another press."""
    question = (page.key, *asked.key, choice.method, choice.baseline, groups)
    kept, last = state.get(LAST, (None, None))
    last = last if kept == question else None
    if last is not None and not _goes_on(last):
        return last
    words = "Integrate the gradients" if choice.method == "gradients" else "Replace them one after the other"
    if last is not None:
        words = f"Go on for at most {choice.seconds:g} s more"
    named = {"method": choice.method, "baseline": choice.baseline, "groups": groups, "after": last}
    make = partial(_attribute, page, asked, named, choice.seconds)
    key = ("attribution", *question, choice.seconds, _steps(last))
    found: AttributedPrompt | None = best_of("attribution", key, words, make)
    if found is None:
        return last
    state.put(LAST, (question, found))
    named["after"] = found  # where it was cancelled, a button is drawn already
    if work.known(key) is not None and _goes_on(found) and _steps(found) > _steps(last):
        st.rerun()  # with the button that goes on
    return found


def _steps(found: AttributedPrompt | None) -> int:
    return 0 if found is None else found.found.steps or 0


def _goes_on(found: AttributedPrompt) -> bool:
    """Whether more time would bring it nearer to complete."""
    return found.found.reached is False and _steps(found) < MOST_STEPS


def _attribute(
    page: Page, asked: Asked, named: dict[str, Any], seconds: float, report: Report, keep: Keep
) -> AttributedPrompt:
    return attribute(
        page.model,
        page.trace.tokens,
        answer=asked.text,
        position=asked.position,
        max_seconds=seconds,
        progress=report,
        keep=keep,
        **named,
    )


def _draw(page: Page, asked: Asked, found: AttributedPrompt) -> None:
    """The numbers, then the bars and the text on one scale."""
    _draw_facts(found)
    values = found.by_token().numpy()
    limit = value_limit(values)
    spans = tuple(span for span in spans_of(page) if span.stop <= len(found.tokens))
    brings = (
        "each token brings to log p(answer)" if found.of == "tokens" else "log p(answer) loses without it"
    )
    title = f"{found.found.method} · what {brings} (nats)"
    for kind, draw in DRAWN.items():
        figure = remember(
            partial(draw, values, found.tokens, title=title, limit=limit, spans=spans, width=WIDTH),
            "attribution", kind, page.key, *asked.key, *_identity(found), spans,
        )  # fmt: skip
        then = on_token("query") if kind == "text" else on_position("query")
        name = f"attribution.{kind}.{page.key}.{hash((*asked.key, *_identity(found)))}"
        chart(figure, name, then, alt=f"What each token brings to the answer, as {kind}")
        told = _told(found, kind, limit, bool(np.isnan(values).any())) + _outlined(spans)
        csv = partial(attribution_csv, found)
        caption_with_save(told, ("attribution", kind), figure, csv, f"attribution.{kind}")
    _draw_largest(found)


def _identity(found: AttributedPrompt) -> tuple[object, ...]:
    one = found.found
    return one.method, one.baseline, one.steps, found.groups, float(np.abs(one.values.numpy()).sum())


def _draw_facts(found: AttributedPrompt) -> None:
    """The scores at both ends, completeness and steps; a warning where the bar was not reached."""
    one = found.found
    numbers = st.columns(4)
    numbers[0].metric("p(answer)", probability_text(float(np.exp(one.score))))
    if one.error is None or one.baseline_score is None:
        numbers[1].metric("Replaced by", one.baseline)
        numbers[2].metric("Largest loss", f"{score_text(float(one.values.max()))} nats")
        return
    numbers[1].metric(
        "From the baseline",
        f"{score_text(one.score - one.baseline_score)} nats",
        help=f"log p(answer): {one.score:.4g} nats; of the baseline, {one.baseline}: "
        f"{one.baseline_score:.4g} nats. The tokens' values sum to the difference, up to the error.",
    )
    numbers[2].metric(
        "Completeness error",
        f"{one.error:.2%}",
        help="|sum of values - difference| / |difference|. The way is cut into stretches, and what is wrong "
        "in one does not make up for another.",
    )
    numbers[3].metric("Steps", f"{one.steps:,}", help="Gradients computed along the way from the baseline.")
    if not one.reached:
        st.warning(
            plain(
                f"Not complete: the error is {one.error:.1%}, more than {ENOUGH:.0%}, when the time was over "
                f"or the work was cancelled. Values are rough. {_advice(found)}"
            )
        )


def _advice(found: AttributedPrompt) -> str:
    if _goes_on(found):
        return "Go on with the button above: it keeps the gradients that are there."
    return "More steps would hardly help: try another baseline, or ablation."


def _told(found: AttributedPrompt, kind: str, limit: float, gaps: bool) -> str:
    """What a figure shows: the method under the bars, the rest under the text."""
    one = found.found
    if kind == "text":
        hatched = f" Hatched: not replaced{_which(found)}." if gaps else ""
        return f"The same values, limits ±{limit_text(limit)}. Dotted underneath: below zero.{hatched}"
    told = {
        "tokens": f"Integrated gradients from {one.baseline}. Green: the token is for the answer.",
        "groups": f"What is lost when a token, or a span as a whole, becomes {one.baseline}; each token of a "
        "span has the span's value. Green: the answer loses without it.",
    }
    return f"{told[found.of]} Brown: the opposite. Click a token to make it the query of the maps."


def _outlined(spans: Sequence[Span]) -> str:
    return " Outlined: the named spans." if spans else ""


def _which(found: AttributedPrompt) -> str:
    single = all(len(group) == 1 for group in found.groups)
    return f"; the {MOST_TOKENS} tokens of largest integrated gradients are" if single else ""


def _draw_largest(found: AttributedPrompt) -> None:
    """The tokens, or spans, of largest size as a table; what gradients sum to."""
    groups = found.groups or [(place,) for place in range(len(found.tokens))]
    values = found.found.values.numpy()
    with st.expander("The ten largest"):
        order = np.argsort(-np.abs(np.nan_to_num(values)), kind="stable")[:10].tolist()
        rows = [{**_words(found, groups[at]), "nats": float(values[at])} for at in order]
        shown = {"nats": st.column_config.NumberColumn(format="%+.3f")}
        st.dataframe(rows, hide_index=True, column_config=shown)
        if found.of == "tokens":
            caption(f"Sum of all: {score_text(float(values.sum()))} nats.")


def _words(found: AttributedPrompt, group: Sequence[int]) -> dict[str, str]:
    first, last = group[0], group[-1]
    places = str(first) if first == last else f"{first} to {last}"
    return {"position": places, "token": cut("".join(found.tokens.pieces[place] for place in group), 60)}

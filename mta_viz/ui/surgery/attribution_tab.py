"""Attribution: which tokens an answer rests on, by integrated gradients or by replacing them; which heads."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.attributed_prompt import AttributedPrompt, Groups, attribute
from mta_viz.analysis.attribution import ENOUGH, MOST_TOKENS
from mta_viz.analysis.attribution_path import MOST_STEPS
from mta_viz.analysis.spans import Span
from mta_viz.exporting.attribution import attribution_csv
from mta_viz.plots.attribution import attribution_bars, attribution_text, value_limit
from mta_viz.plots.theme import cut, limit_text, probability_text, score_text
from mta_viz.ui import jobs, state
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_position, on_token
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.spans_view import spans_of
from mta_viz.ui.surgery.attributed_heads_view import draw_heads
from mta_viz.ui.surgery.attribution_form import Choice, pick_choice
from mta_viz.ui.surgery.jobs import Keep, Report, best_of
from mta_viz.ui.surgery.question import Asked, pick_question
from mta_viz.ui.widgets import caption, caption_with_save, chart, plain

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
    if jobs.known(key) is not None and _goes_on(found) and _steps(found) > _steps(last):
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

"""What stands beside one another: the pickers of A and B, answers, maps, needle shares, kernels."""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.analysis.compare.comparing import AnswerPair, Comparison
from mta_viz.analysis.compare.maps import stage_beside
from mta_viz.analysis.compare.pairs import KernelPair
from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE
from mta_viz.config import Head, KernelPlace, Where
from mta_viz.errors import MtaVizError
from mta_viz.figures import compare as figures
from mta_viz.figures.beside import MAP_PX, ComparedMaps
from mta_viz.plots.compare import TRIO_PX
from mta_viz.plots.theme import score_text
from mta_viz.printed import head_name, probability_text
from mta_viz.tokenizers.base import quoted
from mta_viz.ui.attention.head import VIEW, VIEW_UP_TO, span_name, spans_of
from mta_viz.ui.compare.sides import EDITS, MODE, Compared, Side, compared, numbers, pick_side
from mta_viz.ui.linked.component import PAINT, Linked, Panel, draw_beside
from mta_viz.ui.shell import plan, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head, pair_of
from mta_viz.ui.shell.show import draw, keep, save_button, save_line, show
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, chart, menu, plain
from mta_viz.ui.surgery.answer import draw_probabilities

AUTOMATIC, BY_NEEDLE = RULES = ("automatic", "needle share")
PAIR_BY, SPAN = Setting("pair by", AUTOMATIC), Setting[str | None]("compared span", None)
AS_SURE = 0.05  # nats of difference below which neither is called surer
ABSENT = (
    "No needle and no named span: nothing to measure shares of. Choose the example “Four needles”, or name a "
    "part of the prompt (Find, name)."
)
DISTANCES = (
    "Distance of each of A's kernels from its partner's in B, click one to see both: the square root of the "
    "summed squared differences of taps. A head without a kernel convolves with the identity, which is what "
    "its partner is compared with. Hatched: neither has one. Save has the shapes and distances of all."
)
WHY = {
    "given": ", as typed.",
    "needle": ": the number {of}'s prompt asks for.",
    "block": ": the letters of the block {of}'s prompt asks for.",
    "likeliest": ": {of}'s most probable next token.",
}
ANSWERS = "Answers"
PART = Setting("compared", ANSWERS)
Which = Literal["a", "b", "difference"]
SIDES: dict[Which, str] = {"a": "A", "b": "B", "difference": "A-B"}


def draw_compare(page: Page, selected: Selected) -> None:
    """What differs, and both sides. What cannot be compared is said in its place; the pickers stay."""
    try:
        both = _compared(page)
        if both is not None:
            _draw_asked(page, selected, both)
    except MtaVizError as error:
        st.error(plain(str(error)))


def _draw_asked(page: Page, selected: Selected, both: Compared) -> None:
    """What is asked for alone: all of it is a long page, and its charts keep the browser from the maps."""
    chosen = bar(
        "Compared", {name: words for name, (words, _) in PARTS.items()}, PART, label_visibility="collapsed"
    )
    if chosen == ANSWERS:
        _draw_maps(page, selected, both)
        time.sleep(PAINT)
    result = numbers(both)
    if result is not None:
        PARTS[chosen][1](page, selected, both, result)


def _compared(page: Page) -> Compared | None:
    row = st.container(horizontal=True, vertical_alignment="bottom", key="compare")
    side = pick_side(page, row)
    if side is None:
        return None
    if MODE.value != EDITS and plan.current_plan(page.model.config):
        words = f"choose “{EDITS}” to see the edited one"
        caption(f"A plan is active. Here A is the original model; {words}.")
    help = "The answer, the part whose share is measured, and which heads stand beside one another"
    with row, st.popover("Options", icon=":material/tune:", help=help):
        options = _draw_options(page, side)
    return compared(page, side, options)


def _draw_options(page: Page, side: Side) -> dict[str, Any]:
    plan.draw_answer()
    span, by_needle = _pick_span(page), False
    if span is not None and side.run is not None and side.run.model != page.model_key:
        words = (
            "Automatic: by index where one model comes from the other, else by likeness of maps. "
            "Needle share: A's best finder beside B's best."
        )
        by_needle = bar("Pair heads by", RULES, PAIR_BY, help=words) == BY_NEEDLE
    answer = plan.ANSWER.value or None
    return {"answer": answer, "span": span, "pair_by": "needle" if by_needle else None}


def _pick_span(page: Page) -> Span | None:
    """The part of the prompt whose share is measured: the asked needle, unless another is chosen."""
    spans = {span_name(span): span for span in spans_of(page) if span.letter != QUESTION}
    if len(spans) < 2:
        return next(iter(spans.values()), None)
    asked = next((name for name in spans if name.endswith("(asked)")), next(iter(spans)))
    return spans[menu("Share of", [*spans], SPAN, default=asked)]


def _draw_answers(page: Page, selected: Selected, both: Compared, result: Comparison) -> None:
    answers = result.answers
    left, right = st.columns([2, 3], gap="medium")
    with left:
        st.markdown(f"**{plain(verdict(answers[0], *both.names))}**")
        rows = [
            {
                "answer": answer.text,
                **{"p in A": _p(answer.a), "p in B": _p(answer.b)},
                "A − B, log p": f"{score_text(answer.difference)} nats",
            }
            for answer in answers
        ]
        st.dataframe(rows, hide_index=True)
        for answer in answers:
            caption(f"Answer {quoted(answer.text)}{WHY[answer.source].format(of=answer.of)}")
        save_line(draw(both.source, figures.ComparedAnswers(**both.question)))
    with right:
        top = [(token.piece, token.a, token.b, token.difference) for token in result.top]
        draw_probabilities(top, ("A", "B", "A − B"))


def verdict(answer: AnswerPair, name_a: str, name_b: str) -> str:
    """Who is surer of the answer to A's prompt, as a sentence."""
    p_a, p_b = _p(answer.a), _p(answer.b)
    words = f"Answer {quoted(answer.text)}: A ({name_a}) gives it p = {p_a}, B ({name_b}) p = {p_b}"
    if not math.isfinite(answer.difference):
        return f"{words}."
    if abs(answer.difference) < AS_SURE:
        return f"{words}: they are about equally sure of it."
    times = math.exp(min(abs(answer.difference), 20))
    factor = f"{times:,.0f}" if times >= 10 else f"{times:.1f}"
    factor = "over a million" if times > 1e6 else factor
    return f"{words}: {'A' if answer.difference > 0 else 'B'} finds it {factor} times as probable."


def _p(log_probability: float) -> str:
    return "NaN" if math.isnan(log_probability) else probability_text(math.exp(log_probability))


def _draw_maps(page: Page, selected: Selected, both: Compared) -> None:
    place, shared = (selected.layer, selected.head), both.paired.shared
    partner = both.paired.pairs.of(*place)
    words = [shared.why, _pairing_words(page, both, place)]
    if partner is None:
        caption(" ".join(filter(None, words)))
        st.info("Nothing in B stands beside this head, so there are no maps to compare.")
        return
    words.append(_stage_words(both, selected, partner))
    at = "" if partner == place else f" {head_name(*partner, page.numbering)}"
    headings = f"A: {both.names[0]}", f"B: {both.names[1]}{at}", "A − B"
    cell, look = (selected.query, selected.key), (spans_of(page), page.first_token)
    maps = {
        heading: ComparedMaps(*place, selected.stage.value.key, side, *cell, *look, other=partner)
        for side, heading in zip(SIDES, headings, strict=True)
        if side != "difference" or shared.n
    }
    longest = max(len(page.trace.tokens), len(both.source.other.trace.tokens))
    (_draw_linked if longest <= VIEW_UP_TO else _draw_blocks)(page, both, maps, " ".join(filter(None, words)))
    if not shared.n:
        st.info("No difference: from the first token on the prompts differ.")


def _draw_linked(page: Page, both: Compared, maps: dict[str, ComparedMaps], paired: str) -> None:
    """Every cell, linked to the text and to the maps above."""
    panels, words = [], list[str]()
    for heading, spec in maps.items():
        made, of_b = spec.exact(both.source), both.source.other.trace.tokens
        panels.append(Panel(heading, made.map, made.limit, of_b if spec.side == "b" else None))
        words.insert(0, made.words)  # the difference first
    run = plan.key_of(both.key, spec.other)
    tokens = page.trace.tokens
    draw_beside(Linked(f"{VIEW}.beside", run, tuple(panels), tokens, page.numbering, spec.spans))
    with st.container(horizontal=True, vertical_alignment="center"):
        caption(" ".join(dict.fromkeys([paired, *words])))
        for spec in maps.values():
            save_button(keep(both.source, spec), f"Save {SIDES[spec.side]}")


def _draw_blocks(page: Page, both: Compared, maps: dict[str, ComparedMaps], paired: str) -> None:
    """Too long to be sent cell by cell."""
    caption(paired)
    with st.container(key="beside-compared"):
        for heading, spec in maps.items():
            with st.container():
                st.text(heading)
                widget = f"compare.{SIDES[spec.side]}.{plan.key_of(both.key, spec, page.numbering)}"
                show(both.source, spec, widget=widget, square=True)


def _stage_words(both: Compared, selected: Selected, partner: Head) -> str:
    beside = stage_beside(both.source.other.trace.model.config, partner[0], selected.stage)
    if beside is selected.stage:
        return ""
    missing, entering = selected.stage.value.long, beside.value.long
    return f"B's layer has no “{missing}”: what would enter it, “{entering}”, leaves it as it is."


def _pairing_words(page: Page, both: Compared, place: Head) -> str:
    pairs = both.paired.pairs
    partner = pairs.of(*place)
    if pairs.rule == "index" or partner is None:
        return pairs.why
    names = [head_name(*at, page.numbering) for at in (place, partner)]
    return f"{pairs.why} Beside A's {names[0]} stands B's {names[1]} ({pairs.sure(*place)})."


def _draw_needle(page: Page, selected: Selected, both: Compared, result: Comparison) -> None:
    if result.needle is None:
        has_span = both.question["span"] is not None
        st.info("B's prompt has no such part, so there is no share to compare." if has_span else ABSENT)
        return
    place = selected.layer, selected.head
    maps = {
        name: draw(both.source, figures.ComparedShareMap(side=side, selected=place, **both.question))
        for side, name in SIDES.items()
    }
    caption(f"{maps['A'].caption} Click a head to choose it.")
    with st.container(horizontal=True, gap="xsmall"):
        for name, figure in maps.items():
            with st.container(width=MAP_PX):
                then = on_head if name != "B" else lambda widget: _choose_partner(both, widget)
                key = plan.key_of(both.key, figure.spec, both.source.numbering)
                chart(figure.figure, f"compare.share.{name}.{key}", then, alt=f"Share of every head, {name}")
    show(both.source, figures.ComparedShares(**both.question), widget=f"compare.lines.{both.key}")


def _choose_partner(both: Compared, widget: str) -> None:
    clicked = pair_of(widget)
    pairs = both.paired.pairs.partner
    beside = [] if clicked is None else np.argwhere((pairs == clicked).all(-1)).tolist()
    if beside:
        state.select(layer=beside[0][0], head=beside[0][1])


def _draw_kernels(page: Page, selected: Selected, both: Compared, result: Comparison) -> None:
    rows = result.kernels
    if not any(row.distance > 0 for row in rows):
        st.info("All kernels are equal in A and B." if rows else _why_none(both, result))
        return
    caption(DISTANCES)
    place = selected.layer, selected.head
    with st.container(horizontal=True, gap="xsmall"):
        for where in dict.fromkeys(row.where for row in rows if row.distance > 0):
            with st.container(width=figures.DISTANCES_PX):
                spec = figures.ComparedKernels(where=where, selected=place, **both.question)
                widget = f"compare.kernels.{where}.{plan.key_of(both.key, place, page.numbering)}"
                show(both.source, spec, partial(_open_kernel, where), widget=widget)
        own = {row.where: row for row in rows if (row.layer, row.head) == place}
        with st.container(width=TRIO_PX):
            _draw_kernel(both, place, own)


def _open_kernel(where: str, widget: str) -> None:
    if clicked := pair_of(widget):
        state.select(layer=clicked[0], head=clicked[1], place=where)


def _draw_kernel(both: Compared, place: Head, own: Mapping[Where, KernelPair]) -> None:
    """One of the head's kernels that differ, at first the chosen one; of the others that they do not."""
    chosen, differ = state.selection().place, list[KernelPlace]()
    for where in sorted(KEY_QUERY, key=lambda where: where != chosen):
        if where in own and own[where].distance:
            differ.append(where)
        elif where in own:
            caption(f"This head's kernel {WHERE[where]} is the same in A and B: {own[where].shape_a}.")
    if differ:
        kernel = figures.ComparedKernel(where=differ[0], layer=place[0], head=place[1], **both.question)
        show(both.source, kernel, widget=f"compare.trio.{differ[0]}.{plan.key_of(both.key, place)}")


def _why_none(both: Compared, result: Comparison) -> str:
    if result.pairs.rule == "none":
        return "Heads are not paired here, so no kernels are compared."
    if both.source.trace.model is both.source.other.trace.model:
        return "A and B are one model here: their kernels are equal."
    return "Neither has kernels."


PARTS: dict[str, tuple[str, Callable[[Page, Selected, Compared, Comparison], None]]] = {
    ANSWERS: ("Maps and answers", _draw_answers),
    "Shares": ("What every head gives the needle", _draw_needle),
    "Kernels": ("Kernels", _draw_kernels),
}

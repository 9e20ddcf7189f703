"""What an answer rests on: tokens and heads by gradients or by ablation, and softmax cells exactly."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.cause.attributed_prompt import AttributedHeads, AttributedPrompt, Method
from mta_viz.analysis.cause.attribution import ENOUGH, MOST_TOKENS, Baseline, bos_id
from mta_viz.analysis.cause.attribution_path import MOST_STEPS
from mta_viz.analysis.cause.responsibility import Responsibility, ResponsiblePrompt, largest_cells
from mta_viz.errors import PromptError
from mta_viz.figures.base import Source
from mta_viz.figures.cause import attribution as figures
from mta_viz.figures.cause.attribution import CELL_KINDS, MAP_PX, TokenValues
from mta_viz.model.stages import layer_stages
from mta_viz.plots.theme import cut, probability_text, score_text
from mta_viz.tasks.haystack import plain_ids
from mta_viz.ui.attention.head import spans_of
from mta_viz.ui.fields import bar, menu, number
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.measuring import Keep
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head, on_position, on_token
from mta_viz.ui.shell.plan import key_of
from mta_viz.ui.shell.show import show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_label, layer_label, plain
from mta_viz.ui.surgery.answer import AnswerAt, measured_beside, pick_question

METHODS: dict[Method, str] = {"gradients": "Integrated gradients", "ablation": "Ablation"}
BASELINES = {
    "mean": "mean embedding of the vocabulary",
    "zero": "embeddings of zeros",
    "bos": "embedding of BOS",
    "token": "embedding of a token ...",
}
COMPLETENESS = (
    "|sum of values - difference| / |difference|. The way is cut into stretches, and what is wrong in one "
    "does not make up for another."
)
SPANS, TOKENS = "named spans", "single tokens"
METHOD, SECONDS = Setting[Method]("attribution method", "gradients"), Setting("attribution seconds", 30)
BASELINE, REPLACEMENT = Setting("attribution baseline", "mean"), Setting("attribution replacement", "own")
GROUPS = Setting("attribution groups", TOKENS)
BASELINE_ID, BASELINE_TOKEN = Setting("baseline id", 0), Setting("baseline token", ".")
TOKEN = Setting("answer token", 0)


def draw_attribution(page: Page, selected: Selected) -> None:
    """The question, the tokens' values once they are measured, and the heads' maps under them."""
    asked = pick_question(page)
    spec = _pick_method(page, asked)
    if spec.groups == ():
        st.info("No named span lies before this token. Choose single tokens, or name a span on Attention.")
    else:
        result = _measured(page, spec)
        if result is not None:
            _draw_tokens(page, spec, result)
    st.markdown("**Heads: what the answer rests on in their maps**")
    _draw_heads(page, selected, asked, spec.max_seconds)


def _pick_method(page: Page, asked: AnswerAt) -> TokenValues:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = (
            "Gradients along the way from a baseline to the prompt, which sum to the difference; or what is "
            "lost when tokens are replaced."
        )
        own: dict[str, Any] = {"method": bar("Method", METHODS, METHOD, help=words)}
        if own["method"] == "gradients":
            own["baseline"] = _pick_baseline(page)
        else:
            own |= {"groups": _pick_groups(page, asked.position), "baseline": _pick_replacement(page)}
        words = "Gradients stop when 1 % of completeness error is reached, or after this time."
        seconds = float(number("At most (s)", SECONDS, (5, 3600), step=5, width=140, help=words))
    own |= asked.question()
    return TokenValues(kind="bars", max_seconds=seconds, spans=spans_of(page), **own)


def _pick_baseline(page: Page) -> Baseline:
    has_bos = bos_id(page.model) is not None
    names = {name: words for name, words in BASELINES.items() if has_bos or name != "bos"}
    words = "What every token is at the start of the way; values say what the tokens bring beyond it."
    chosen: Baseline = menu("Baseline", names, BASELINE, width=290, help=words)
    return _pick_token(page, "Baseline token") if chosen == "token" else chosen


def _pick_replacement(page: Page) -> int | None:
    own = bos_id(page.model)
    first = f"token 0{'' if own is None else ' (BOS)'}" if own in (None, 0) else f"BOS (token {own})"
    names = {"own": first, "token": "a token ..."}
    chosen = menu("Replaced by", names, REPLACEMENT, width=190)
    return _pick_token(page, "Token") if chosen == "token" else None


def _pick_groups(page: Page, last: int) -> tuple[tuple[int, ...], ...] | None:
    spans = spans_of(page)
    kinds = [SPANS, TOKENS] if spans else [TOKENS]
    words = (
        f"Single tokens: all of them, or the {MOST_TOKENS} of largest integrated gradients. Spans are named "
        "on the Attention page."
    )
    chosen = bar("Replaced are", kinds, GROUPS, default=kinds[0], help=words)
    return None if chosen == TOKENS else figures.groups_of(spans, last)


def _pick_token(page: Page, label: str) -> int:
    tokenizer = page.model.tokenizer
    if tokenizer is None:
        return number(f"{label}'s id", BASELINE_ID, (0, page.model.config.vocab_size - 1), width=150)
    text = st.text_input(label, width=150, **BASELINE_TOKEN.widget())
    ids = plain_ids(tokenizer, text) if text else ()
    if len(ids) != 1:
        raise PromptError(f"{label}: {text!r} is {len(ids)} tokens of this model; type a text of one token")
    return ids[0]


@dataclass
class _Latest:
    question: Hashable = None
    result: AttributedPrompt | None = None  # measured last for the question
    so_far: AttributedPrompt | None = None  # how far work that was stopped since had come


def _measured(page: Page, spec: TokenValues) -> AttributedPrompt | None:
    """What is there so far; gradients that are not complete go on from there at another press."""
    question, latest = (page.key, *replace(spec, max_seconds=0.0).key), state.part(_Latest)
    if latest.question != question:
        latest.question, latest.result, latest.so_far = question, None, None
    last = latest.result
    if last is not None and not _goes_on(last):
        return last
    label = "Integrate the gradients" if spec.method == "gradients" else "Replace them one after the other"
    label = label if last is None else f"Go on for at most {spec.max_seconds:g} s more"

    def measure(source: Source, keep: Keep) -> AttributedPrompt:
        return spec.measure(source, keep, latest.so_far or latest.result)

    result: AttributedPrompt | None = measured_beside(page, "attribution", spec, label, measure, _steps(last))
    made = work.current("attribution", (page.key, *spec.key, _steps(last)))
    if made is not None and made.stopped:
        latest.so_far = result
    elif result is not None:
        latest.result, latest.so_far = result, None
        if _goes_on(result) and _steps(result) > _steps(last):
            st.rerun()  # with the button that goes on
    return last if result is None else result


def _steps(result: AttributedPrompt | None) -> int:
    return 0 if result is None else result.found.steps or 0


def _goes_on(result: AttributedPrompt) -> bool:
    """Whether more time would bring it nearer to complete."""
    return result.found.reached is False and _steps(result) < MOST_STEPS


def _draw_tokens(page: Page, spec: TokenValues, result: AttributedPrompt) -> None:
    _draw_facts(result)
    which = key_of(page.key, spec, _steps(result))
    show(source_of(page), spec, on_position("query"), result=result, widget=f"attribution.bars.{which}")
    text = replace(spec, kind="text")
    show(source_of(page), text, on_token("query"), result=result, widget=f"attribution.text.{which}")
    with st.expander("The ten largest"):
        pieces = result.tokens.pieces
        rows = [
            {
                "position": str(group[0]) if len(group) == 1 else f"{group[0]} to {group[-1]}",
                "token": cut("".join(pieces[place] for place in group), 60),
                "nats": nats,
            }
            for group, nats in result.largest()[:10]
        ]
        shown = {"nats": st.column_config.NumberColumn(format="%+.3f")}
        st.dataframe(rows, hide_index=True, column_config=shown)
        if result.of == "tokens":
            caption(f"Sum of all: {score_text(float(result.found.values.sum()))} nats.")


def _draw_facts(result: AttributedPrompt) -> None:
    values = result.found
    numbers = st.columns(4)
    numbers[0].metric("p(answer)", probability_text(float(np.exp(values.score))))
    if values.error is None or values.baseline_score is None:
        numbers[1].metric("Replaced by", values.baseline)
        numbers[2].metric("Largest loss", f"{score_text(float(values.values.max()))} nats")
        return
    words = (
        f"log p(answer): {values.score:.4g} nats; of the baseline, {values.baseline}: "
        f"{values.baseline_score:.4g} nats. The tokens' values sum to the difference, up to the error."
    )
    difference = f"{score_text(values.score - values.baseline_score)} nats"
    numbers[1].metric("From the baseline", difference, help=words)
    numbers[2].metric("Completeness error", f"{values.error:.2%}", help=COMPLETENESS)
    numbers[3].metric("Steps", f"{values.steps:,}", help="Gradients computed on the way from the baseline.")
    if not values.reached:
        advice = "Go on with the button above: it keeps the gradients that are there."
        if not _goes_on(result):
            advice = "More steps would hardly help: try another baseline, or ablation."
        rough = f"the error is {values.error:.1%}, more than {ENOUGH:.0%}, when the time was over"
        st.warning(plain(f"Not complete: {rough} or the work was stopped. Values are rough. {advice}"))


def _draw_heads(page: Page, selected: Selected, asked: AnswerAt, seconds: float) -> None:
    stage, config = selected.stage, page.model.config
    there = [at for at in range(config.n_layers) if stage in layer_stages(config.kernels(at))]
    caption(
        f"Of each head's map at the chosen stage ({stage.value.long}): integrated gradients of every cell, "
        "from a map of zeros, and what is lost when the map is all zeros. What enters the layer is held as "
        "it was."
    )
    layers = tuple(sorted(there, key=lambda at: at != selected.layer))  # the chosen one first
    question = asked.question() | {"stage": stage.value.key, "max_seconds": seconds}
    spec = figures.HeadSizes(of="sizes", selected=(selected.layer, selected.head), **question)
    which = f"the heads of {len(there)} layers" if len(there) > 1 else "this layer's heads"
    label = f"Measure {which}, gradients for at most {seconds:g} s a layer"

    def measure(source: Source, keep: Keep) -> AttributedHeads:
        return spec.heads(source, layers, keep)

    heads: AttributedHeads | None = measured_beside(page, "heads", spec, label, measure)
    if heads is None:
        return
    with st.container(horizontal=True):
        for of in ("sizes", "ablated"):
            with st.container(width=MAP_PX):
                widget = f"heads.{of}.{key_of(page.key, spec.key)}"
                own = replace(spec, of=of)
                show(source_of(page), own, on_head, result=heads, widget=widget)
    worst = max(layer.error or 0.0 for layer in heads.layers)
    steps = sum(layer.steps or 0 for layer in heads.layers)
    caption(f"Completeness error at most {worst:.2%}; {steps:,} steps in all.")
    late = [
        f"{layer_label(layer.layer, page.numbering)} ({layer.error:.1%})"
        for layer in heads.layers
        if not layer.reached
    ]
    if late:
        st.warning(plain(f"Not complete within the time: {', '.join(late)}. Allow more seconds for these."))
    _draw_head(page, selected, heads, question)


def _draw_head(page: Page, selected: Selected, heads: AttributedHeads, question: dict[str, Any]) -> None:
    layer, source = heads.of(selected.layer), source_of(page)
    if layer is None:
        st.info("This layer is not measured: the work was stopped before. Choose a layer that has values.")
        return
    with st.container(horizontal=True):
        for of in ("map", "attribution"):
            with st.container(width=MAP_PX):
                place: dict[str, Any] = {"layer": selected.layer, "head": selected.head, **question}
                spec = figures.HeadCells(of=of, first_token=page.first_token, **place)
                widget = f"heads.{of}.{key_of(page.key, spec)}"
                show(source, spec, result=spec.shown(source, heads), widget=widget)
    sums, sizes, lost = (float(part[selected.head]) for part in (layer.sums, layer.sizes, layer.ablated))
    caption(
        f"This head: sum of its cells {score_text(sums)} nats, of their sizes {sizes:.3g}; lost without its "
        f"map {score_text(lost)} nats."
    )


def draw_responsibility(page: Page, selected: Selected) -> None:
    """The question, every layer's heads, and the chosen head's cells above its own maps."""
    caption(
        "After the softmax all is linear: convolution, head mixing, weighting the values. So what attention "
        "adds to a logit splits exactly into one number for each softmax cell, without gradients. Held "
        "fixed, as the run left them: group norm, gate, and the final norm's scale."
    )
    asked, source = pick_question(page), source_of(page)
    place, which = (selected.layer, selected.head), {"token": _pick_token_of(page, asked), **asked.question()}
    spec = figures.ResponsibleHeads(selected=place, **which)
    with st.spinner("Folding the maps back ..."):
        result = figures.responsible(source, spec, spec.token)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=MAP_PX):
            show(source, spec, on_head, result=result, widget=f"responsible.{key_of(page.key, which)}")
        with st.container(width=MAP_PX):
            _draw_sums(page, selected, result)
    for of in CELL_KINDS:
        look: dict[str, Any] = {"layer": place[0], "head": place[1], "first_token": page.first_token}
        cells = figures.ResponsibleCells(of=of, **look, **which)
        show(source, cells, widget=f"responsible.{of}.{key_of(page.key, cells)}")
    _draw_cells(page, result, result.layers[selected.layer])


@dataclass
class _TokenOf:
    """The answer whose token was chosen: another one begins with its own."""

    ids: tuple[int, ...] = ()


def _pick_token_of(page: Page, asked: AnswerAt) -> int:
    ids, of = asked.answer.ids, state.part(_TokenOf)
    if of.ids not in ((), ids):  # another answer
        TOKEN.put(asked.answer.place)
    of.ids = ids
    if len(ids) == 1:
        return 0
    pieces = page.model.tokenizer.pieces(ids) if page.model.tokenizer else tuple(map(str, ids))
    names = {place: plain(f"{place + 1}: {piece}") for place, piece in enumerate(pieces)}
    words = "A logit is one token's. Later tokens are asked for after the earlier ones."
    place = int(bar("Token of the answer", names, TOKEN, default=asked.answer.place, help=words))
    caption(f"Explains {asked.answer.explains(place, pieces[place])}")
    return place


def _draw_sums(page: Page, selected: Selected, result: ResponsiblePrompt) -> None:
    sums = result.layers[selected.layer]
    layer, head = layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering)
    source, target = float(sums.sources[selected.head]), float(sums.heads[selected.head])
    columns = st.columns(2)
    columns[0].metric("Logit", score_text(result.logit), help="Of the answer's token, in this run.")
    columns[1].metric("From attention, all layers", score_text(sum(part.total for part in result.layers)))
    columns[0].metric(f"{layer}, all heads", score_text(sums.total))
    columns[1].metric(f"{layer} {head}, as source", score_text(source))
    caption(
        f"Check: the cells of {layer} sum to {sums.values.double().sum():+.6g}, its heads' outputs add "
        f"{sums.total:+.6g} to the logit; the difference is {sums.error:.1e} of the sum of the cells' sizes. "
        f"As a target, after mixing, {head} outputs {score_text(target)}. The rest of the logit comes from "
        "the embedding and the MLPs."
    )


def _draw_cells(page: Page, result: ResponsiblePrompt, layer: Responsibility) -> None:
    pieces, name = result.tokens.pieces, layer_label(layer.layer, page.numbering)
    st.markdown(f"**{name}: the cells that add most, of all its heads**")
    formats = {"softmax": "%.3f", "logit": "%+.4f"}
    columns = {name: st.column_config.NumberColumn(format=text) for name, text in formats.items()}
    rows = [
        {
            "source head": head_label(cell.head, page.numbering),
            "query": f"{cell.query} “{pieces[cell.query]}”",
            "key": f"{cell.key} “{pieces[cell.key]}”",
            "softmax": cell.softmax,
            "logit": cell.value,
        }
        for cell in largest_cells(layer)
    ]
    st.dataframe(rows, hide_index=True, column_config=columns)

"""What tokens and heads' maps bring to an answer, by gradients or by ablation."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.cause import attribution
from mta_viz.analysis.cause.attributed_prompt import OTHER_BASELINE, AttributedHeads, AttributedPrompt, Method
from mta_viz.analysis.cause.attribution_path import MOST_STEPS
from mta_viz.errors import PromptError
from mta_viz.figures.base import Source
from mta_viz.figures.cause import attribution as figures
from mta_viz.figures.cause.attribution import MAP_PX, TokenValues
from mta_viz.model.stages import layer_stages
from mta_viz.plots.theme import cut, score_text
from mta_viz.printed import layer_label, probability_text
from mta_viz.tasks.facts import plain_ids
from mta_viz.ui.attention.head import spans_of
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.measuring import Keep
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head, on_position, on_token
from mta_viz.ui.shell.plan import key_of
from mta_viz.ui.shell.show import measured_beside, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, explain, menu, number, plain
from mta_viz.ui.surgery.answer import AnswerAt, pick_question

METHODS: dict[Method, str] = {"gradients": "Integrated gradients", "ablation": "Ablation"}
BASELINES = {
    "auto": "the mean, or a token where that jumps",
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
BASELINE, REPLACEMENT = Setting("attribution baseline", "auto"), Setting("attribution replacement", "own")
GROUPS = Setting("attribution groups", TOKENS)
BASELINE_ID, BASELINE_TOKEN = Setting("baseline id", 0), Setting("baseline token", ".")


def draw_attribution(page: Page, selected: Selected) -> None:
    """The question, the tokens' values once they are measured, and the heads' maps under them."""
    asked = pick_question(page)
    spec = _pick_method(page, asked)
    if spec.groups == ():
        st.info("No named span lies before this token. Choose single tokens, or name a span (Find, name).")
    elif _has_path(page, spec):
        result = _measured(page, spec)
        if result is not None:
            _draw_tokens(page, spec, result)
    st.markdown("**Heads: what their maps bring to the answer**")
    _draw_heads(page, selected, asked, spec.max_seconds)


def _has_path(page: Page, spec: TokenValues) -> bool:
    """Whether gradients can be integrated from the baseline; if not it is said why, and what to take."""
    if spec.method != "gradients":
        return True
    prompt = page.trace.tokens.ids[: (spec.position or 0) + 1]
    try:
        attribution.check_baseline(page.model, prompt, "mean" if spec.baseline is None else spec.baseline)
    except PromptError as error:
        st.warning(plain(str(error)))
        return False
    return True


def _pick_method(page: Page, asked: AnswerAt) -> TokenValues:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = (
            "Gradients along the way from a baseline to the prompt, which sum to the difference; or what is "
            "lost when tokens are replaced."
        )
        own: dict[str, Any] = {"method": bar("Method", METHODS, METHOD, help=words)}
        if own["method"] == "gradients":
            own["baseline"] = _pick_baseline(page, asked.position)
        else:
            own |= {"groups": _pick_groups(page, asked.position), "baseline": _pick_replacement(page)}
        words = "Gradients stop when 1 % of completeness error is reached, or after this time."
        seconds = float(number("At most (s)", SECONDS, (5, 3600), step=5, width=140, help=words))
    own |= asked.question()
    return TokenValues(kind="bars", max_seconds=seconds, spans=spans_of(page), **own)


def _pick_baseline(page: Page, last: int) -> attribution.Baseline:
    has_bos = attribution.bos_id(page.model) is not None
    names = {name: words for name, words in BASELINES.items() if has_bos or name != "bos"}
    words = "What every token is at the start of the way; values say what the tokens bring beyond it."
    chosen = menu("Baseline", names, BASELINE, width=290, help=words)
    if chosen == "auto":
        return attribution.path_baseline(page.model, page.trace.tokens.ids[: last + 1])
    return _pick_token(page, "Baseline token") if chosen == "token" else chosen


def _pick_replacement(page: Page) -> int | None:
    own = attribution.bos_id(page.model)
    first = f"token 0{'' if own is None else ' (BOS)'}" if own in (None, 0) else f"BOS (token {own})"
    names = {"own": first, "token": "a token ..."}
    chosen = menu("Replaced by", names, REPLACEMENT, width=190)
    return _pick_token(page, "Token") if chosen == "token" else None


def _pick_groups(page: Page, last: int) -> tuple[tuple[int, ...], ...] | None:
    spans = spans_of(page)
    kinds = [SPANS, TOKENS] if spans else [TOKENS]
    words = (
        f"Single tokens: all of them, or the {attribution.MOST_TOKENS} of largest integrated gradients. "
        "Spans are named under “Find, name”."
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
    return result.found.reached is False and not result.found.jumps and _steps(result) < MOST_STEPS


def _draw_tokens(page: Page, spec: TokenValues, result: AttributedPrompt) -> None:
    _draw_facts(result)
    which = key_of(page.key, spec, _steps(result))
    show(source_of(page), spec, on_position("query"), result=result, widget=f"attribution.bars.{which}")
    text = replace(spec, kind="text")
    show(source_of(page), text, on_token, result=result, widget=f"attribution.text.{which}")
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
            advice = "More steps would hardly help: take another baseline, or ablation."
        if values.jumps:
            advice = f"{values.early:.0%} of the change comes in the first 1 % of the path. {advice}"
        rough = f"the error is {values.error:.1%}, more than {attribution.ENOUGH:.0%}, when the time was over"
        st.warning(plain(f"Not complete: {rough} or the work was stopped. Values are rough. {advice}"))


def _draw_heads(page: Page, selected: Selected, asked: AnswerAt, seconds: float) -> None:
    stage, config = selected.stage, page.model.config
    there = [at for at in range(config.n_layers) if stage in layer_stages(config.kernels(at))]
    explain(
        f"Of each head's map at the chosen stage ({stage.value.long}): gradients of its cells, and ablation.",
        "Integrated gradients of every cell, from a map of zeros (of weights under a group norm, which "
        "undoes their size: from even rows), and what is lost when the map is all zeros. What enters the "
        "layer is held as it was.",
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
    _draw_completeness(page, heads)
    _draw_head(page, selected, heads, question)


def _draw_completeness(page: Page, heads: AttributedHeads) -> None:
    errors = [layer.error for layer in heads.layers if layer.error is not None]
    steps, baselines = sum(layer.steps or 0 for layer in heads.layers), {at.baseline for at in heads.layers}
    known = f"at most {max(errors):.2%}" if errors else "not known"
    caption(f"From {', '.join(sorted(baselines))}. Completeness error {known}; {steps:,} steps in all.")
    late = [
        f"{layer_label(layer.layer, page.numbering)} ({layer.error:.1%})"
        for layer in heads.layers
        if not layer.reached and layer.error is not None
    ]
    if late:
        advice = f"There {OTHER_BASELINE}" if heads.jumps else "Allow more seconds for these"
        st.warning(plain(f"Not complete within the time: {', '.join(late)}. {advice}."))


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

"""The direct effect of softmax cells on an answer's logit, and what the logit loses without the largest."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from mta_viz.analysis.cause.direct_effect import Cell, DirectEffects
from mta_viz.analysis.cause.removed_cells import RemovedCells
from mta_viz.figures.cause import attribution as figures
from mta_viz.figures.cause.attribution import MAP_PX, CellsRemoved
from mta_viz.plots.theme import score_text
from mta_viz.printed import head_label, layer_label, time_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head
from mta_viz.ui.shell.plan import key_of
from mta_viz.ui.shell.show import draw, measured_beside, save_line, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, explain, plain
from mta_viz.ui.surgery.answer import AnswerAt, pick_question

TOKEN = Setting("answer token", 0)
LARGEST = "largest"
SHOWN = {
    "responsibility": "the head's direct effects",
    "softmax": "its softmax weights",
    "final": "its final weights",
    LARGEST: "the layer's largest, removed",
}
KIND = Setting("direct effect of", "responsibility")
TABLE_PX = 300
BY_ITSELF = 10  # seconds: longer runs wait for a press
EFFECTS = {
    "direct": ("%+.4f", "Direct effect on the logit; norms and gate held as the run left them."),
    "direct, norms free": ("%+.4f", "The same when group norm, gate and final norm are computed anew."),
    "whole": ("%+.4f", "What the logit loses in the whole model when the cell is removed."),
    "whole, log p": ("%+.4f", "The same of the log-probability, in nats."),
}


def draw_direct_effect(page: Page, selected: Selected) -> None:
    """The question, every layer's heads, and of the chosen one its cells, its maps, or cells removed."""
    explain(
        "What each softmax cell adds directly to the answer's logit, exactly, without gradients.",
        "After the softmax all is linear: convolution, head mixing, weighting the values. "
        "Held fixed, as the run left them: group norm, gate, and the final norm's scale. What later layers "
        "make of it is not in it: the whole effect of the largest cells stands beside it in their table.",
    )
    place, source = (selected.layer, selected.head), source_of(page)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        asked = pick_question(page)
        which = {"token": _pick_token_of(page, asked), **asked.question()}
    spec = figures.SourceHeads(selected=place, **which)
    with st.spinner("Folding the maps back ..."):
        result = figures.direct_effects(source, spec, spec.token)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=MAP_PX):
            show(source, spec, on_head, result=result, widget=f"responsible.{key_of(page.key, which)}")
        with st.container(width=MAP_PX):
            _draw_sums(page, selected, result)
    of = bar("Shown", SHOWN, KIND, label_visibility="collapsed")
    if of == LARGEST:
        removed = figures.CellsRemoved(layer=selected.layer, **which)
        _draw_cells(page, result.tokens, result.largest(selected.layer), removed)
        return
    look: dict[str, Any] = {"layer": place[0], "head": place[1], "first_token": page.first_token}
    cells = figures.SourceCells(of=of, **look, **which)
    show(source, cells, widget=f"responsible.{of}.{key_of(page.key, cells)}")


def _pick_token_of(page: Page, asked: AnswerAt) -> int:
    ids = asked.answer.ids
    if state.is_another("answer with tokens", ids):  # which begins with its own
        TOKEN.put(asked.answer.place)
    if len(ids) == 1:
        return 0
    pieces = page.model.tokenizer.pieces(ids) if page.model.tokenizer else tuple(map(str, ids))
    names = {place: plain(f"{place + 1}: {piece}") for place, piece in enumerate(pieces)}
    words = "A logit is one token's. Later tokens are asked for after the earlier ones."
    return int(bar("Token of the answer", names, TOKEN, default=asked.answer.place, help=words))


def _draw_sums(page: Page, selected: Selected, result: DirectEffects) -> None:
    sums = result.layers[selected.layer]
    layer, head = layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering)
    source, target = float(sums.sources[selected.head]), float(sums.heads[selected.head])
    columns = st.columns(2)
    columns[0].metric("Logit", score_text(result.logit), help="Of the answer's token, in this run.")
    attention = sum(part.total + part.bias for part in result.layers)
    columns[1].metric("From attention, all layers", score_text(attention))
    columns[0].metric(f"{layer}, all heads", score_text(sums.total))
    columns[1].metric(f"{layer} {head}, as source", score_text(source))
    explain(
        f"The cells of {layer} sum to what its heads add, up to {sums.error:.1e} of their sizes.",
        f"Check: the cells of {layer} sum to {sums.values.double().sum():+.6g}, its heads' outputs add "
        f"{sums.total:+.6g} to the logit. As a target, after mixing, {head} outputs {score_text(target)}. "
        "The rest of the logit comes from the embedding and the MLPs.",
    )


def _draw_cells(page: Page, tokens: Tokens, cells: Sequence[Cell], spec: CellsRemoved) -> None:
    """The layer's largest direct effects, and what is lost when the first of them are removed."""
    removed = _removed(page, spec)
    st.dataframe(
        [
            {
                "source head": head_label(cell.head, page.numbering),
                "query": tokens.named(cell.query),
                "key": tokens.named(cell.key),
                "softmax": cell.softmax,
                **dict(zip(EFFECTS, effects, strict=True)),
            }
            for cell, effects in zip(cells, _effects(cells, removed), strict=True)
        ],
        hide_index=True,
        height=TABLE_PX,
        column_config={
            name: st.column_config.NumberColumn(name, format=text, help=words)
            for name, (text, words) in ({"softmax": ("%.3f", None)} | EFFECTS).items()
        },
    )
    if removed is not None:
        save_line(draw(source_of(page), spec, removed))


def _effects(cells: Sequence[Cell], removed: RemovedCells | None) -> list[tuple[float | None, ...]]:
    """A row a cell in the order of `EFFECTS`: None where a cell is not removed."""
    done = () if removed is None else removed.cells
    rows = [(each.value, each.norms_free, each.whole_logit, each.whole_log_p) for each in done]
    return [*rows, *((cell.value, None, None, None) for cell in cells[len(rows) :])]


def _removed(page: Page, spec: CellsRemoved) -> RemovedCells | None:
    """The largest cells removed: by itself where that is short, else at a press."""
    above = 1 - (spec.layer or 0) / page.model.config.n_layers  # layers that run again
    seconds = above * (spec.count + 1) * estimate_seconds(page.model, len(page.trace.tokens))
    label = f"Remove each of the {spec.count} largest"
    words = f"{spec.count + 1} runs, about {time_text(seconds)}"
    return measured_beside(page, "removed", spec, label, words=words, by_itself=seconds <= BY_ITSELF)

"""Responsibility: which softmax cells add to the logit of an answer's token, exactly, without gradients."""

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.maps import AttentionMap, exact_map, round_up, shared_limit
from mta_viz.analysis.cause.responsibility import (
    Responsibility,
    ResponsiblePrompt,
    largest_cells,
    responsibilities,
)
from mta_viz.exporting.data import map_csv
from mta_viz.exporting.results import responsibility_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import VALUES, Look, attention_map
from mta_viz.plots.cause import RESPONSIBLE, sweep_map
from mta_viz.plots.theme import limit_text, score_text
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember, remember_with_run
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, head_label, layer_label, plain
from mta_viz.ui.surgery.board import Asked, pick_question

MAP_PX, WIDTH, ROW_PX, AROUND_PX = 452, 900, 16, 190


def draw_responsibility(page: Page, selected: Selected) -> None:
    """The question, every layer's heads, and the chosen head's cells above its own maps."""
    caption(
        "After the softmax all is linear: convolution, head mixing, weighting the values. So what attention "
        "adds to a logit splits exactly into one number for each softmax cell, without gradients. Held "
        "fixed, as the run left them: group norm, gate, and the final norm's scale."
    )
    asked = pick_question(page)
    place = _pick_place(page, asked)
    with st.spinner("Folding the maps back ..."):
        found: ResponsiblePrompt = remember_with_run(
            lambda: responsibilities(
                page.model, page.trace.tokens, answer=asked.text, position=asked.position, place=place
            ),
            "responsibility", page.key, *asked.key, place,
        )  # fmt: skip
    one = found.layers[selected.layer]
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=MAP_PX):
            _draw_layers(page, selected, found)
        with st.container(width=MAP_PX):
            _draw_sums(page, selected, found, one)
    _draw_strips(page, selected, found, one)
    _draw_cells(page, found, one)


def _pick_place(page: Page, asked: Asked) -> int:
    """Which token of the answer; only asked where there are several."""
    ids = asked.answer.ids
    if len(ids) == 1:
        return 0
    tokenizer = page.model.tokenizer
    pieces = tokenizer.pieces(ids) if tokenizer else tuple(map(str, ids))
    return st.segmented_control(
        "Token of the answer",
        range(len(ids)),
        format_func=lambda place: plain(f"{place + 1}: {pieces[place]}"),
        required=True,
        help="A logit is one token's. Later tokens are asked for after the earlier ones.",
        **state.kept("answer token", 0, range(len(ids))),
    )


def _draw_layers(page: Page, selected: Selected, found: ResponsiblePrompt) -> None:
    values = np.stack([one.sources.numpy() for one in found.layers]).round(4) + 0.0
    figure = sweep_map(
        "Contribution of source heads",
        values,
        unit="logit",
        numbering_from=page.numbering,
        selected=(selected.layer, selected.head),
        width=MAP_PX,
    )
    chart(
        figure, f"responsible.{page.key}.{hash(_where(found))}", on_head, alt="Contribution of source heads"
    )
    caption_with_save(
        "All softmax cells of a head, summed. Green: they raise the logit. Click a head to choose it.",
        ("responsibility",),
        figure,
        lambda: responsibility_csv(found),
        "responsible",
    )


def _where(found: ResponsiblePrompt) -> tuple[object, ...]:
    return found.answer, found.place, len(found.tokens)


def _draw_sums(page: Page, selected: Selected, found: ResponsiblePrompt, one: Responsibility) -> None:
    """The chosen layer's sums, the check, and what attention is not."""
    layer, head = layer_label(selected.layer, page.numbering), head_label(selected.head, page.numbering)
    attention = sum(each.total for each in found.layers)
    source, target = float(one.sources[selected.head]), float(one.heads[selected.head])
    columns = st.columns(2)
    columns[0].metric("Logit", score_text(found.logit), help="Of the answer's token, in this run.")
    columns[1].metric("From attention, all layers", score_text(attention))
    columns[0].metric(f"{layer}, all heads", score_text(one.total))
    columns[1].metric(f"{layer} {head}, as source", score_text(source))
    caption(
        f"Check: the cells of {layer} sum to {one.values.double().sum():+.6g}, its heads' outputs add "
        f"{one.total:+.6g} to the logit; the difference is {one.error:.1e} of the sum of the cells' sizes. "
        f"As a target, after mixing, {head} outputs {score_text(target)}. The rest of the logit comes from "
        "the embedding and the MLPs."
    )


def _draw_strips(page: Page, selected: Selected, found: ResponsiblePrompt, one: Responsibility) -> None:
    """Responsibility, softmax and final weights of the rows that matter, one above another."""
    rows, keys = slice(one.first_query, one.position + 1), slice(0, one.position + 1)
    head, layer = selected.head, one.layer
    final: AttentionMap = remember(
        lambda: exact_map(found.trace, layer, Stage.PATTERN, head, rows, keys),
        "responsible final", page.key, _where(found), layer, head,
    )  # fmt: skip
    mine = AttentionMap(layer, head, Stage.SOFTMAX, one.values[head], one.first_query, 0)
    softmax = AttentionMap(
        layer, head, Stage.SOFTMAX, one.softmax[head], one.first_query, 0, distribution=True
    )
    _draw_strip(
        page, found, mine, RESPONSIBLE, "responsibility", _told(one), round_up(float(mine.values.abs().max()))
    )
    _draw_strip(page, found, softmax, VALUES, "softmax", "The head's softmax weights of the same cells.")
    _draw_strip(page, found, final, VALUES, "final", "Its final weights, after convolution and mixing.")


def _told(one: Responsibility) -> str:
    n_rows = one.position + 1 - one.first_query
    read = (
        "Only the last row is read: this layer has no convolution after the softmax."
        if n_rows == 1
        else f"The {n_rows} rows that the last token's convolution reads."
    )
    return (
        f"What each softmax cell of this head adds to the logit, through every head it is mixed into. {read}"
    )


def _draw_strip(
    page: Page,
    found: ResponsiblePrompt,
    drawn: AttentionMap,
    look: Look,
    name: str,
    told: str,
    limit: float | None = None,
) -> None:
    """`limit` None: from most cells, so that a few do not hide the rest."""
    limit = limit or shared_limit([drawn], page.first_token)
    height = AROUND_PX + ROW_PX * drawn.values.shape[0]
    figure = attention_map(
        drawn, found.tokens, limit=limit, numbering_from=page.numbering, size=(WIDTH, height), look=look
    )
    where = f"responsible.{name}.{page.key}.{hash(_where(found))}.{drawn.layer}.{drawn.head}"
    chart(figure, where, alt=told)
    bound = limit_text(limit) if drawn.distribution else f"±{limit_text(limit)}"
    parts = (f"L{drawn.layer}", f"H{drawn.head}", name)
    caption_with_save(
        f"{told} Limit {bound}.", parts, figure, lambda: map_csv(drawn, found.tokens), f"responsible.{name}"
    )


def _draw_cells(page: Page, found: ResponsiblePrompt, one: Responsibility) -> None:
    """The cells of the layer, largest first."""
    layer, pieces = layer_label(one.layer, page.numbering), found.tokens.pieces
    st.markdown(f"**{layer}: the cells that add most, of all its heads**")
    st.dataframe(
        [
            {
                "source head": head_label(cell.head, page.numbering),
                "query": f"{cell.query} “{pieces[cell.query]}”",
                "key": f"{cell.key} “{pieces[cell.key]}”",
                "softmax": cell.softmax,
                "logit": cell.value,
            }
            for cell in largest_cells(one)
        ],
        hide_index=True,
        column_config={
            "softmax": st.column_config.NumberColumn(format="%.3f"),
            "logit": st.column_config.NumberColumn(format="%+.4f"),
        },
    )

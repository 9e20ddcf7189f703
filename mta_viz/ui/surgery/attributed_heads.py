"""The heads of every layer: how much an answer rests on their maps, and the chosen head's cells."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import AttentionMap, head_maps, shared_limit
from mta_viz.analysis.cause.attributed_heads import CELLS, AttributedHeads, LayerAttribution, attribute_heads
from mta_viz.exporting.data import map_csv
from mta_viz.exporting.results import attributed_heads_csv
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.plots.attention.heads import value_map
from mta_viz.plots.attention.maps import SMALL, Look, attention_map
from mta_viz.plots.cause import ATTRIBUTED, sweep_map
from mta_viz.plots.theme import Figure, limit_text, score_text
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, plain
from mta_viz.ui.surgery.board import Asked, Keep, Report, best_of

MAP_PX = 452


def draw_heads(page: Page, selected: Selected, asked: Asked, seconds: float) -> None:
    """A button, then two layer x head maps and the chosen head's cells beside its map."""
    stage, config = selected.stage, page.model.config
    there = [at for at in range(config.n_layers) if stage in layer_stages(config.kernels(at))]
    caption(
        f"Of each head's map at the chosen stage ({stage.value.long}): integrated gradients of every cell, "
        "from a map of zeros, and what is lost when the map is all zeros. What enters the layer is held as "
        "it was."
    )
    layers = tuple(sorted(there, key=lambda at: at != selected.layer))  # the chosen one first
    key = ("heads attribution", page.key, *asked.key, stage, seconds)
    heads = f"the heads of {len(there)} layers" if len(there) > 1 else "this layer's heads"
    words = f"Measure {heads}, gradients for at most {seconds:g} s a layer"
    found: AttributedHeads | None = best_of(
        "heads", key, words, partial(_attribute, page, asked, stage, layers, seconds)
    )
    if found is None:
        return
    _draw_layers(page, selected, asked, found)
    one = found.of(selected.layer)
    if one is None:
        st.info("This layer is not measured: the work was cancelled before. Choose a layer that has values.")
    else:
        _draw_head(page, selected, asked, found, one)


def _attribute(
    page: Page,
    asked: Asked,
    stage: Stage,
    layers: tuple[int, ...],
    seconds: float,
    report: Report,
    keep: Keep,
) -> AttributedHeads:
    return attribute_heads(
        page.model,
        page.trace.tokens,
        stage,
        answer=asked.text,
        position=asked.position,
        layers=layers,
        max_seconds=seconds,
        progress=report,
        keep=keep,
    )


def _draw_layers(page: Page, selected: Selected, asked: Asked, found: AttributedHeads) -> None:
    """Sizes by gradients, and losses by ablation; layers without the stage are hatched."""
    place: dict[str, Any] = {
        "selected": (selected.layer, selected.head),
        "numbering_from": page.numbering,
        "width": MAP_PX,
    }
    sizes = Score("size", "Summed |attribution|", "nats", "", found.stage, signed=False)
    figures = {
        "sizes": value_map(sizes, _grid(page, found, "sizes"), **place),
        "ablated": sweep_map("Lost without the map", _grid(page, found, "ablated"), **place),
    }
    told = {
        "sizes": "Integrated gradients: the sizes of all cells' values, summed. Click a head to choose it. "
        "Hatched: no such stage, or not measured.",
        "ablated": "Ablation: what log p(answer) loses when the head's map is all zeros. Green: the answer "
        "needs it.",
    }
    with st.container(horizontal=True):
        for name, figure in figures.items():
            with st.container(width=MAP_PX):
                where = f"heads.{name}.{page.key}.{found.stage.value.key}.{hash(asked.key)}"
                chart(figure, where, on_head, alt=told[name])
                parts = ("attributed heads", name)
                csv = partial(attributed_heads_csv, found)
                caption_with_save(told[name], parts, figure, csv, f"heads.{name}")
    _say_errors(page, found)


def _grid(page: Page, found: AttributedHeads, field: str) -> np.ndarray:
    values = np.full((page.model.config.n_layers, page.model.config.n_heads), np.nan)
    for one in found.layers:
        values[one.layer] = getattr(one, field).numpy()
    return values.round(4) + 0.0  # no -0.0


def _say_errors(page: Page, found: AttributedHeads) -> None:
    worst = max(one.error or 0.0 for one in found.layers)
    steps = sum(one.steps or 0 for one in found.layers)
    caption(f"Completeness error at most {worst:.2%}; {steps:,} steps in all.")
    late = [f"L{one.layer + page.numbering} ({one.error:.1%})" for one in found.layers if not one.reached]
    if late:
        st.warning(plain(f"Not complete within the time: {', '.join(late)}. Allow more seconds for these."))


def _draw_head(
    page: Page, selected: Selected, asked: Asked, found: AttributedHeads, one: LayerAttribution
) -> None:
    """The head's map, and what its cells bring, side by side."""
    trace, head, key = found.trace, selected.head, (page.key, *asked.key, found.stage)
    cells = one.maps[head]
    attention: AttentionMap = remember(
        lambda: head_maps(trace, one.layer, head, CELLS)[found.stage], "asked map", *key, one.layer, head
    )
    with st.container(horizontal=True):
        for name, drawn, look in (("map", attention, SMALL), ("attribution", cells, ATTRIBUTED)):
            with st.container(width=MAP_PX):
                _draw_map(page, found, drawn, look, name)
    caption(
        f"This head: sum of its cells {score_text(float(one.sums[head]))} nats, of their sizes "
        f"{one.sizes[head]:.3g}; lost without its map {score_text(float(one.ablated[head]))} nats."
    )


def _draw_map(page: Page, found: AttributedHeads, drawn: AttentionMap, look: Look, name: str) -> None:
    limit = shared_limit([drawn], page.first_token)
    figure: Figure = attention_map(
        drawn, found.tokens, limit=limit, numbering_from=page.numbering, size=(MAP_PX, MAP_PX), look=look
    )
    where = f"heads.{name}.{page.key}.{found.stage.value.key}.{drawn.layer}.{drawn.head}"
    chart(figure, where, alt=f"The head's {name}")
    told = {
        "map": f"The map itself. Limit {limit_text(limit)}.",
        "attribution": f"What each cell brings, in nats. Green: for the answer. Limits ±{limit_text(limit)}.",
    }
    parts = (f"L{drawn.layer}", f"H{drawn.head}", found.stage.value.key, name)
    csv = partial(map_csv, drawn, found.tokens)
    caption_with_save(told[name], parts, figure, csv, f"heads.{name}")

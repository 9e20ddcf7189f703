"""The chosen head's maps before and after its convolutions, where the asking tokens meet the asked part."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.differences import subtract
from mta_viz.analysis.labs.crops import Region, StepCrop, step_crops
from mta_viz.analysis.maps import AttentionMap, shared_limit
from mta_viz.exporting.data import map_csv
from mta_viz.model.stages import Stage
from mta_viz.plots.attention import SMALL, attention_map
from mta_viz.plots.difference import difference_caption, difference_map
from mta_viz.plots.theme import Figure, limit_text, score_text, weight_text
from mta_viz.tokenizers.base import Tokens
from mta_viz.tracing import capture
from mta_viz.ui import cache, jobs, state
from mta_viz.ui.cache import remember
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.running import Job
from mta_viz.ui.widgets import caption, caption_with_save, chart

SIZE = (300, 300)


@dataclass(frozen=True)
class Asked:
    """A prompt and the region of it to look at; `words` name it, `key` is equal only for equal runs."""

    tokens: Tokens
    region: Region
    words: str
    key: Hashable


def draw_crop(page: Page, asked: Asked) -> None:
    """A switch; behind it, a row of maps for each convolution of the chosen head's layer."""
    view = state.view()
    layer, head = view.layer or 0, view.head or 0
    name = f"{layer_label(layer, page.numbering)} {head_label(head, page.numbering)}"
    if not st.toggle(f"Maps of {name}: {asked.words}", **state.kept("crop shown", False)):
        return
    key = ("crop", asked.key, asked.region, layer, head)
    crops = jobs.finished("crop", key, partial(_work, page, asked, layer, head))
    if crops is None:
        return
    if not crops:
        own = [at for at in range(page.model.config.n_layers) if _convolves(page, at)]
        there = ", ".join(layer_label(at, page.numbering) for at in own) or "none"
        caption(f"The layer of {name} has no key-query convolution; layers with one: {there}.")
    for crop in crops:
        _draw_step(page, asked, crop, (key, crop.after.stage))


def _convolves(page: Page, layer: int) -> bool:
    kernels = page.model.config.kernels(layer)
    return bool(kernels.pre or kernels.post)


def _work(page: Page, asked: Asked, layer: int, head: int, job: Job) -> tuple[StepCrop, ...]:
    """The run is kept beside those of other pages: the next head's maps come at once."""
    job.begin("Running the prompt")
    trace = cache.stores().traces.get_or_make(
        ("lab", asked.key), lambda: capture(page.model, asked.tokens, progress=job.report)
    )
    return step_crops(trace, asked.region, layer, head)


def _draw_step(page: Page, asked: Asked, crop: StepCrop, key: Hashable) -> None:
    """Both sides on one scale, that of the asked cells, and their difference on its own."""
    limit = shared_limit(crop.asked, page.first_token)
    scale = f"one scale for both, to {limit_text(limit)}, of the asked cells."
    with st.container(horizontal=True, gap="xsmall"):
        for one in (crop.before, crop.after):
            figure = remember(
                partial(attention_map, one, limit=limit, look=SMALL, **_drawing(page, asked)),
                "crop figure", key, one.stage, limit, page.numbering,
            )  # fmt: skip
            _show(asked, one, figure, f"{one.stage.value.long}; {scale}")
        own = shared_limit([subtract(*reversed(crop.asked))], page.first_token)
        figure = remember(
            partial(difference_map, crop.difference, limit=own, short=True, **_drawing(page, asked)),
            "crop change", key, own, page.numbering,
        )  # fmt: skip
        _show(asked, crop.difference, figure, difference_caption(crop.difference, own))
    caption(sum_words(crop))


def _drawing(page: Page, asked: Asked) -> dict[str, Any]:
    """Arguments that all three figures share."""
    spans = (asked.region.asking, asked.region.asked)
    return {"tokens": asked.tokens, "numbering_from": page.numbering, "size": SIZE, "spans": spans}


def _show(asked: Asked, one: AttentionMap, figure: Figure, told: str) -> None:
    kind = f"{type(one).__name__}.{one.stage.value.key}"
    with st.container(width=SIZE[0]):
        chart(figure, f"crop.{kind}.{hash((asked.key, one.layer, one.head))}", alt=told)
        where = (f"L{one.layer}", f"H{one.head}", one.stage.value.key, "crop")
        caption_with_save(told, where, figure, lambda: map_csv(one, asked.tokens), f"crop.{kind}")


def sum_words(crop: StepCrop) -> str:
    """What the convolution did to the asked part, in sums."""
    write = score_text if crop.before.stage.value.unit == "score" else weight_text
    (before, after), (last_before, last_after) = (map(write, pair) for pair in (crop.sums, crop.last))
    asked, asking, stage = crop.region.asked, crop.region.asking, crop.after.stage
    where = "before the softmax" if stage is Stage.KQ else "after the softmax"
    return (
        f"Convolution {where}: the {crop.before.stage.value.unit}s of “{asking.name}” x “{asked.name}” "
        f"sum to {before} before it and {after} after; in the last query's row alone to {last_before} "
        f"and {last_after}. Bars at the edges: blue {asking.name}, orange {asked.name}."
    )

"""A page of the linked text and maps alone, as its address says: `?ck=tiny-mta&l=1&h=0&p=PROMPT&parts=3`.

The maps before and after a layer's kernel, which stands between; with three, the difference in its place.
"""

import os
from pathlib import Path

import streamlit as st
import torch

from mta_viz.analysis.attention.changes import subtract
from mta_viz.analysis.attention.kernel_map import question_span
from mta_viz.analysis.attention.maps import exact_map, shared_limit
from mta_viz.analysis.attention.spans import asked_span, needle_spans
from mta_viz.analysis.kernels.kernels import layer_picture
from mta_viz.model.stages import Stage
from mta_viz.plots.kernels.mosaic import tap_limit
from mta_viz.run.tracing import capture, load
from mta_viz.ui.linked.component import (
    SIDES,
    WHOLE,
    Choice,
    KernelPanel,
    Linked,
    Panel,
    draw_maps,
    draw_pointer,
    draw_text,
)

st.set_page_config(layout="wide")
asked = {"ck": "tiny-mta", "l": "1", "h": "0", "p": "The cat sat on the mat.", "parts": "2"} | dict(
    st.query_params
)
run = f"{asked['ck']} {asked['p']}"


@st.cache_resource
def traced(name, prompt):
    """A run of the model of this name."""
    return capture(load(Path(os.environ["MTA_VIZ_MODELS"]) / name), prompt)


trace, layer, head = traced(asked["ck"], asked["p"]), int(asked["l"]), int(asked["h"])
n_tokens, spans = len(trace.tokens), needle_spans(trace.tokens)
before, after = (exact_map(trace, layer, stage, head) for stage in (Stage.RAW, Stage.KQ))
limit = shared_limit([before, after])
panels = (Panel("before", before, limit), Panel("after", after, limit))
picture = layer_picture(trace.model.state_dict(), trace.model.config, layer, "pre")
taps = picture.taps[head]
offsets = picture.offsets
edge = tap_limit(taps[None], offsets.own)
kernel = KernelPanel(torch.tensor(taps), offsets.query[0], offsets.key[0], edge, f"L{layer} H{head} pre")
if asked["parts"] == "3":
    change = subtract(after, before)
    panels, kernel = (*panels, Panel("difference", change, shared_limit([change]))), None
needle, question = asked_span(spans), question_span(spans, n_tokens, 6)
crops = {}
if needle is not None:
    crops = {"question x needle": ((question.start, question.stop), (needle.start, needle.stop))}
marks = ((4, 7),) if asked["parts"] == "3" else ()
linked = Linked("test", run, panels, trace.tokens, 0, spans, marks, kernel, crops, next(iter(crops), WHOLE))


def choose(choice):
    """The cell that was chosen, in the address."""
    st.query_params.from_dict(asked | {"q": choice.query, "k": choice.key, "side": choice.side})


with st.container(key="exact"):
    draw_text(linked)
    draw_maps(linked)
cell = Choice(int(asked.get("q", n_tokens - 1)), int(asked.get("k", 3)), asked.get("side", SIDES[0]))
draw_pointer("test", cell, n_tokens, choose)

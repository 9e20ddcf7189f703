"""Paths: which later heads read what the chosen kernel writes, and what the answer loses along each edge."""

from typing import Any

import streamlit as st

from mta_viz.analysis.cause.kernel_effect import Edge, KernelPaths
from mta_viz.analysis.kernels.kernels import MIXING, SHORT, Where
from mta_viz.figures.cause.worth import GRAPH_PX, KernelPathsGraph
from mta_viz.model.plans import PLACES
from mta_viz.ui.fields import bar, explain, menu
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, pair_of
from mta_viz.ui.shell.plan import ANSWER, key_of
from mta_viz.ui.shell.show import measured_beside, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import head_name, layer_list, plain
from mta_viz.ui.shell.work import time_text
from mta_viz.ui.surgery.worth import EDIT_NAMES, TAKEN_OUT

PLACE = Setting[Where]("paths place", "pre")
INTO = Setting("paths into", "inputs")
INTO_NAMES = {"inputs": "queries, keys, values", "scores": "raw scores"}
TABLE_ROWS = 20


def draw_paths(page: Page, selected: Selected) -> None:
    """The kernel, its button or the graph beside the table. The plan plays no part."""
    kernels = page.model.config.kernels(selected.layer)
    places = [where for pair in PLACES for where in pair if getattr(kernels, where)]
    if not places:
        st.info(plain(_no_kernel(page)))
        return
    explain(
        "Which later heads read what the kernel's head writes, and what the answer loses along each edge.",
        "What a kernel does reaches the answer through what later layers read. One reader at a time (the "
        "queries, keys, values or raw scores of a head, an MLP, the logits) gets what the kernel's head "
        "writes without the kernel; everything else stays as in the run. The plan plays no part here.",
    )
    spec = _pick(selected, places, page.numbering)
    cost = spec.cost(source_of(page))
    seconds = time_text(cost.seconds[0])
    words = f"{cost.passes[0]:,} edges, a forward pass each from that layer on: about {seconds} here."
    result = measured_beside(page, "paths", spec, f"Follow {spec.kernel.name(page.numbering)}", words=words)
    if result is not None:
        _draw_result(page, spec, result)


def _pick(selected: Selected, places: list[Where], numbering: int) -> KernelPathsGraph:
    """The figure of the kernel, its edit and the edges that were chosen."""
    place, answer = (selected.layer, selected.head), ANSWER.value or None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = {where: SHORT[where] for where in places}
        where = bar(f"Kernel of {head_name(*place, numbering)}", names, PLACE, default=places[0])
        edits = {edit: name for edit, name in EDIT_NAMES.items() if edit != "zero" or where not in MIXING}
        edit = menu("Taken out it has", edits, TAKEN_OUT, width=190)
        into = bar("Drawn: edges into", INTO_NAMES, INTO)
    return KernelPathsGraph(layer=place[0], head=place[1], where=where, edit=edit, answer=answer, into=into)


def _no_kernel(page: Page) -> str:
    config = page.model.config
    having = [at for at in range(config.n_layers) if config.kernels(at).any]
    there = f"Layers with some: {layer_list(having, page.numbering)}." if having else "This model has none."
    return f"This layer has no kernel to follow. {there}"


def _draw_result(page: Page, spec: KernelPathsGraph, result: KernelPaths) -> None:
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        with st.container(width=GRAPH_PX):
            show(source_of(page), spec, _on_reader, result=result, widget=f"paths.{key_of(page.key, spec)}")
        with st.container(width=330):
            st.markdown(
                plain(f"The {min(TABLE_ROWS, len(result.edges))} largest of {len(result.edges)} edges")
            )
            rows = [_row(edge, page.numbering) for edge in result.edges[:TABLE_ROWS]]
            shown: Any = {"nats": st.column_config.NumberColumn(format="%+.4f")}
            st.dataframe(rows, hide_index=True, column_config=shown)


def _row(edge: Edge, numbering: int) -> dict[str, object]:
    reader = "logits" if edge.part == "logits" else f"L{edge.layer + numbering}"
    if edge.head is not None:
        reader = head_name(edge.layer, edge.head, numbering)
    return {"reader": reader, "reads it as": "" if edge.part == "logits" else edge.part, "nats": edge.effect}


def _on_reader(widget: str) -> None:
    """A click on a head that reads it chooses that head."""
    place = pair_of(widget)
    if place is not None and place[1] >= 0:
        state.select(layer=place[0], head=place[1])

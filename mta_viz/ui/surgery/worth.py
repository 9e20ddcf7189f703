"""What each kernel is worth, and by which paths it reaches the answer.

Worth: necessary, sufficient, its Shapley value; from the file, or measured here. Paths: which later heads
read what the chosen kernel writes, and what the answer loses along each edge.
"""

import shlex
from typing import Any

import streamlit as st

from mta_viz.analysis.cause.effects import Absent, kernel_ids
from mta_viz.analysis.cause.kernel_effect import Edge, KernelPaths
from mta_viz.analysis.cause.shapley import LARGEST_ERROR, Removal
from mta_viz.analysis.cause.shapley_file import FILE as WORTH_FILE
from mta_viz.analysis.cause.shapley_file import TaskShapley
from mta_viz.analysis.cause.sweeps import RANDOM_SETS
from mta_viz.analysis.kernels.kernels import MIXING, SHORT
from mta_viz.config import Where
from mta_viz.figures.cause import worth as figures
from mta_viz.model.plans import PLACES, Edit
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.plots.worth import BARS_PX, GRAPH_PX, SCATTER_PX
from mta_viz.printed import head_name, time_text
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.ui.kernels.parts import effects_command, worth_of
from mta_viz.ui.shell import state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head, pair_of
from mta_viz.ui.shell.plan import ANSWER, key_of
from mta_viz.ui.shell.show import measured_beside, show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, explain, layer_list, lines, menu, number, plain

FILE = "file"
ON = Setting("worth of", FILE)
TAKEN_OUT = Setting[Edit]("taken out", "own-tap")
MANY, PAIRS = Setting("worth samples", 8), Setting("worth pairs", 20)
EDIT_NAMES = {"own-tap": "own tap only", "identity": "identity", "zero": "zero"}
WORTH = (
    "What is lost without a kernel, and gained with it alone, of the original model. Necessary: what the "
    "right answer loses when it alone is taken out. Sufficient: what it gains when it alone is kept and all "
    "others are out. Kernels that stand in for each other are not necessary, those that need each other not "
    "sufficient; the Shapley value sees both. The plan plays no part here."
)
GREEDY = "Accuracy, and the answer's log-probability; with all kernels {complete}, with none {none}."
GREEDILY = (
    "Sets of kernels, found greedily: the next kernel is, of the eight of largest Shapley value, the one "
    "without which the answer loses most beside those already out. There may be smaller sets that do as "
    "much. Beside each the most harmful of up to {n} other sets of its size, drawn at random (seed {seed})."
)


def draw_worth(page: Page, selected: Selected) -> None:
    """Where the numbers are from, the bars beside the scatter, the greedy sets. The plan plays no part."""
    if not kernel_ids(page.model, "own-tap"):
        st.info("This model has no kernels: there is no effect to share out.")
        return
    there = worth_of(page)
    usual = FILE if isinstance(there, TaskShapley) else "prompt"
    chosen = bar("Measured", _offered(page, there), ON, default=usual, help=WORTH)
    if chosen == FILE and isinstance(there, TaskShapley):
        _draw_values(page, {}, there)
        return
    if isinstance(there, Absent):
        caption(f"{there.reason} This command measures them at a task, for this page to show:")
        lines(_command(page), "worth-command")
    parameters = _pick(page, chosen)
    spec = figures.ShapleyBars(**parameters)
    words = _expectation(spec.cost(source_of(page)), spec)
    result = measured_beside(page, "worth", spec, "Measure what each kernel is worth", words=words)
    if result is not None:
        _draw_values(page, parameters, result)


def _offered(page: Page, there: TaskShapley | Absent) -> dict[str, str]:
    names = {FILE: "beforehand, at its task"} if isinstance(there, TaskShapley) else {}
    if page.model.config.vocab_size == VOCAB_SIZE:
        names["blocks"] = "here, at block finding"
    elif page.model.tokenizer is not None:
        names |= {"needle": "here, at the needle task", "pairs": "here, at the pairs task"}
    return names | {"prompt": "here, on this prompt"}


def _command(page: Page) -> str:
    command, origin = effects_command(page, "shapley"), page.model.source
    return command if origin is None else f"{command} --out {shlex.quote(str(origin.path / WORTH_FILE))}"


def _pick(page: Page, task: str) -> dict[str, Any]:
    """The figure's parameters."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        edit = menu("A kernel taken out has", EDIT_NAMES, TAKEN_OUT, width=190)
        pairs = number("Pairs of orders at most", PAIRS, (2, 2000), width=180)
        samples = None if task == "prompt" else number("Samples", MANY, (1, 1000), width=120)
    own = {"task": task, "edit": edit, "pairs": pairs, "samples": samples}
    return own | ({"answer": ANSWER.value or None} if task == "prompt" else {})


def _expectation(cost: figures.Cost, spec: figures.OfShapley) -> str:
    low, high = (f"{count:,}" for count in cost.passes)
    first, last = (time_text(seconds) for seconds in cost.seconds)
    counts, times = (
        pair[0] if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}" for pair in ((low, high), (first, last))
    )
    n = "one sample" if spec.n_samples == 1 else f"{spec.n_samples} samples"
    return (
        f"{counts} forward passes of a batch of {n}, about {times} here. It ends once the largest standard "
        f"error is {LARGEST_ERROR:.0%} of the whole effect, or after {spec.pairs} pairs of orders."
    )


def _draw_values(page: Page, parameters: dict[str, Any], result: TaskShapley) -> None:
    name = key_of(page.key, tuple(sorted(parameters.items(), key=str)))
    bars, scatter = figures.ShapleyBars(**parameters), figures.NecessitySufficiency(**parameters)
    with st.container(horizontal=True, gap="small", vertical_alignment="top"):
        for spec, width in ((bars, BARS_PX), (scatter, SCATTER_PX)):
            with st.container(width=width):
                show(source_of(page), spec, on_head, result=result, widget=f"{spec.name}.{name}")
    _draw_sets(page, result)


def _draw_sets(page: Page, result: TaskShapley) -> None:
    shared = result.shared
    ends = [
        f"{weight_text(accuracy)} ({score_text(nats)} nats)"
        for accuracy, nats in (
            (shared.complete_accuracy, shared.complete),
            (shared.none_accuracy, shared.none),
        )
    ]
    st.markdown("**Sets, found greedily**")
    line = GREEDY.format(complete=ends[0], none=ends[1])
    explain(line, GREEDILY.format(n=RANDOM_SETS, seed=result.seed))
    rows = [_set_row(removal, page.numbering) for removal in shared.removals]
    look: Any = {
        name: st.column_config.NumberColumn(format="%+.2f" if "nats" in name else "%.3f")
        for name in list(rows[0])[1:]
    }
    st.dataframe(rows, hide_index=True, column_config=look)


def _set_row(removal: Removal, numbering: int) -> dict[str, object]:
    return {
        "kernels": ", ".join(kernel.name(numbering) for kernel in removal.kernels),
        "without them": removal.without_accuracy,
        "without, nats": removal.without_log_probability,
        "only them": removal.only_accuracy,
        "only, nats": removal.only_log_probability,
        "without a random set": removal.random_accuracy,
        "random, nats": removal.random_log_probability,
    }


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
    spec = _pick_path(selected, places, page.numbering)
    cost = spec.cost(source_of(page))
    seconds = time_text(cost.seconds[0])
    words = f"{cost.passes[0]:,} edges, a forward pass each from that layer on: about {seconds} here."
    result = measured_beside(page, "paths", spec, f"Follow {spec.kernel.name(page.numbering)}", words=words)
    if result is not None:
        _draw_result(page, spec, result)


def _pick_path(selected: Selected, places: list[Where], numbering: int) -> figures.KernelPathsGraph:
    """The figure of the kernel, its edit and the edges that were chosen."""
    place, answer = (selected.layer, selected.head), ANSWER.value or None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = {where: SHORT[where] for where in places}
        where = bar(f"Kernel of {head_name(*place, numbering)}", names, PLACE, default=places[0])
        edits = {edit: name for edit, name in EDIT_NAMES.items() if edit != "zero" or where not in MIXING}
        edit = menu("Taken out it has", edits, TAKEN_OUT, width=190)
        into = bar("Drawn: edges into", INTO_NAMES, INTO)
    return figures.KernelPathsGraph(
        layer=place[0], head=place[1], where=where, edit=edit, answer=answer, into=into
    )


def _no_kernel(page: Page) -> str:
    config = page.model.config
    having = [at for at in range(config.n_layers) if config.kernels(at).any]
    there = f"Layers with some: {layer_list(having, page.numbering)}." if having else "This model has none."
    return f"This layer has no kernel to follow. {there}"


def _draw_result(page: Page, spec: figures.KernelPathsGraph, result: KernelPaths) -> None:
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

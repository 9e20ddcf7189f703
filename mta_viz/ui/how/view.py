"""The page How it works: six steps from two tokens' scores to the answer, and a playground.

Each step has one sentence and one picture of the chosen cell; every number is that of the functions the other
pages show, the sentences are data, `assets/how.toml`. On the playground one paints a kernel, and sees what
the model's own convolution makes of a map with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.attention import decomposition as made
from mta_viz.analysis.attention.kernel_map import HERE, PRESETS, Scores, preset
from mta_viz.analysis.attention.maps import centred
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KernelId, Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import cannot_show
from mta_viz.config import LayerKernels
from mta_viz.figures.attention.kernels import Playground
from mta_viz.figures.attention.tokens import Row, Why, value_text
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.cause.attribution import SourceCells, direct_effects, meter_of
from mta_viz.model.plans import Plan
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.printed import head_name, layer_label
from mta_viz.ui.shell import pickers, state, widgets
from mta_viz.ui.shell.address import draw_address, draw_stale
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import begin, draw, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.workspace.story import choose_head

Taps = Float[Array, "c_q c_k"]
SIZES = {"3 x 5": (3, 5), "4 x 7": (4, 7), "6 x 11": (6, 11)}
OWN = "this head's kernel"
MAPS: tuple[Scores, ...] = ("one match", "diagonal stripe", "block edge", HERE)
SIZE, BEGIN = Setting("paint size", "4 x 7"), Setting("paint from", PRESETS[0])
PAINTED, ON = Setting("painted", ""), Setting[Scores]("paint on", MAPS[1])
LARGEST_TAP, CELL_PX, ROW_PX = 100.0, 46, 24


@dataclass
class _Grid:
    """The grid on the page, and the taps it began with, on top of which comes what is typed in it."""

    key: str = ""
    begun: Taps | None = None


def draw_playground(page: Page, selected: Selected) -> None:
    """The kernel's grid, what the kernel is called, and the map before and after it."""
    at: dict[str, Any] = {name: getattr(selected, name) for name in ("layer", "head", "query", "key")}
    with st.container(horizontal=True, gap="medium"):
        left, right = st.container(width="content"), st.container(width=324, horizontal=True)
    with right:
        own = page.model.blocks[selected.layer].attn.kernel_pre
        begins = PRESETS if own is None else (*PRESETS, OWN)
        begin = widgets.menu(
            "Kernel", begins, BEGIN, width=180, help=widgets.help_of("kernel", "tap", "identity")
        )
        size = "" if begin == OWN else widgets.menu("Queries x keys", [*SIZES], SIZE, width=120)
        scores: Scores = widgets.menu("Scores", MAPS, ON, width=180, help=widgets.help_of("score"))
    shape = own.shape[1:] if begin == OWN else SIZES[size]
    offsets = kernel_offsets(page.model.config, *shape)
    usual = preset(begin, offsets)
    if begin == OWN:  # as the model computes with it
        usual = own[selected.head].detach().to(page.model.dtype).double().cpu().numpy()
    with left:
        taps = _paint(f"paint.{begin}.{(at['layer'], at['head']) if begin == OWN else size}", usual, offsets)
    figure = draw(source_of(page), Playground(taps=tuple(map(tuple, taps.tolist())), scores=scores, **at))
    words, lacking = widgets.texts("how"), ", ".join(cannot_show(offsets))
    text = words["painted"] + words["cramped"] * bool(lacking)
    st.html(widgets.worded(text, names=figure.result.names, lacking=lacking))
    widgets.chart(figure.figure, "playground", alt=figure.caption)
    save_line(figure, "The model's own convolution; cells of the future (hatched) read as 0.", widgets.LINE)


def _paint(key: str, usual: Taps, offsets: Offsets) -> Taps:
    """The grid. What is painted stands in the address; another kernel to begin with lets go of it."""
    grid, painted = state.part(_Grid), PAINTED.declare()
    kept = grid.key in ("", key)
    if not kept or state.widget_value(key) is None:  # another grid, or it comes back to the page
        begun = from_text(painted, usual.shape) if kept else None
        grid.key, grid.begun = key, usual if begun is None else begun
    columns = [f"{offset:+d}" if offset else "0" for offset in offsets.key]
    frame = pd.DataFrame(grid.begun, [str(offset) for offset in offsets.query], columns)
    number = st.column_config.NumberColumn(
        format="%.2f", width=CELL_PX, min_value=-LARGEST_TAP, max_value=LARGEST_TAP
    )
    look: dict[str, Any] = {"column_config": dict.fromkeys(columns, number), "row_height": ROW_PX}
    taps = st.data_editor(frame, key=key, width="content", **look).fillna(0.0).to_numpy(np.float64)
    PAINTED.put("" if np.array_equal(taps, usual) else to_text(taps))
    return taps


def to_text(taps: Taps) -> str:
    """The taps for the address, rows apart by `;`."""
    return ";".join(" ".join(f"{tap:.6g}" for tap in row) for row in taps)


def from_text(text: str, shape: tuple[int, ...]) -> Taps | None:
    """Taps of this shape from an address; None for anything else."""
    try:
        taps = np.array([[float(tap) for tap in row.split(" ")] for row in text.split(";")])
    except ValueError:
        return None
    return taps if taps.shape == shape and bool((np.abs(taps) <= LARGEST_TAP).all()) else None


STEPS = ("score", "window", "future", "heads", "softmax", "answer")
PLAY = "playground"
STEP = Setting("step", STEPS[0])
WIDE_PX, KEYS = 900, 40  # keys that the last picture has
NO_PLAN: Plan = ()


@dataclass(frozen=True)
class Cell:
    """The cell that is followed, in one head of a run."""

    page: Page
    selected: Selected

    @property
    def source(self) -> Source:
        """What figures are drawn from."""
        return source_of(self.page)

    @property
    def place(self) -> dict[str, Any]:
        """Layer, head, query and key as parameters."""
        return {name: getattr(self.selected, name) for name in ("layer", "head", "query", "key")}

    @property
    def words(self) -> dict[str, str]:
        """Its head and both tokens."""
        layer, head, query, key = self.place.values()
        name = head_name(layer, head, self.page.numbering)
        named = self.page.trace.tokens.named
        return {"head": name, "query": named(query), "key": named(key)}

    def why(self, stage: Stage) -> made.Decomposition:
        """What its value at a stage is made of."""
        layer, head, query, key = place = tuple(self.place.values())
        make = partial(made.decompose, self.page.trace, layer, stage, head, query, key)
        return self.source.remember(make, "how", stage, *place)

    def beside_itself(self, offsets: Offsets) -> "Cell":
        """The cell of the same query whose window ends at the query's own key: a part of it is future."""
        key = max(self.selected.query - offsets.key[-1], 0)
        return replace(self, selected=replace(self.selected, key=key))


def steps_of(kernels: LayerKernels) -> dict[str, Stage | None]:
    """The steps in the order in which the layer takes them, with the stage each makes; None: it has none.

    A layer with kernels on both sides of the softmax shows the one before it, as of head mixing.
    """
    convolution = Stage.SOFTMAX_KQ if kernels.post and not kernels.pre else Stage.KQ
    mixing = Stage.PATTERN if kernels.head_post and not kernels.head_pre else Stage.MIX
    stages = (Stage.RAW, convolution, convolution, mixing, Stage.SOFTMAX, Stage.PATTERN)
    own, present = dict(zip(STEPS, stages, strict=True)), layer_stages(kernels)
    order = sorted(STEPS, key=lambda name: [*Stage].index(own[name]))
    return {name: own[name] if own[name] in present else None for name in order}


@st.fragment
def draw_how(page: Page) -> None:
    """The page's body. Its own widgets run it alone."""
    begin()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    choose_head(page)
    selected = pickers.resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head)
    cell = Cell(page, selected)
    head, query, key = cell.words.values()
    where = f"{state.selection().checkpoint} · {head} · query {query} · key {key}"
    draw_address(where, partial(draw_stale, page))
    steps, place = steps_of(page.model.config.kernels(selected.layer)), st.container()
    chosen = _pick_step(steps)
    if chosen == PLAY:
        draw_playground(page, selected)
        return
    with place:
        _draw_pickers(cell)
    if selected.key > selected.query:
        _say(cell.words, "masked")
    elif stage := steps[chosen]:
        with st.container(key="of-run"):
            _draw_step(cell, chosen, stage)
    else:
        _say({"layer": layer_label(selected.layer, page.numbering)}, f"no {chosen}")


def _say(values: Mapping[str, str], *names: str) -> None:
    st.html(widgets.worded("".join(widgets.texts("how")[name] for name in names), **values))


def _draw_pickers(cell: Cell) -> None:
    (layer, head, query, key), config = cell.place.values(), cell.page.model.config
    count, numbering = len(cell.page.trace.tokens), cell.page.numbering
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pickers.pick_layer(config, layer, numbering)
        pickers.pick_head(config, head, numbering)
        pickers.pick_position("query", query, count, ("n", "m"))
        pickers.pick_position("key", key, count, ("j", "k"))


def _pick_step(steps: Mapping[str, Stage | None]) -> str:
    """The chosen step between Back and Next, which pass over what the layer does not have."""
    names = [*steps, PLAY]
    words = {name: f"{at} {name}{'' if steps[name] else ' –'}" for at, name in enumerate(steps, start=1)}
    with st.container(horizontal=True, vertical_alignment="center"):
        back = st.container(width="content")
        chosen: str = widgets.bar("Step", words | {PLAY: PLAY}, STEP, label_visibility="collapsed")
        at = names.index(chosen)
        before, after = (
            [name for name in part if steps.get(name, name == PLAY)] for part in (names[:at], names[at + 1 :])
        )
        with back:
            _draw_go("Back", "q", before[-1:])
        _draw_go("Next", "w", after[:1])
    return chosen


def _draw_go(words: str, shortcut: str, to: list[str]) -> None:
    look: dict[str, Any] = {"shortcut": shortcut, "disabled": not to}
    st.button(words, key=f"path.{shortcut}", on_click=STEP.put, args=to, **look)


def _draw_step(cell: Cell, step: str, stage: Stage) -> None:
    """One sentence, one picture, and the cell at every stage."""
    if step == "answer":
        spec: NamedFigure[Any] = _say_answer(cell)
    else:
        at, why, name = cell, cell.why(stage), step
        if step == "future" and isinstance(why, made.Convolved) and not why.window.future.any():
            at, name = cell.beside_itself(why.window.offsets), "future elsewhere"
            why = at.why(stage)
        spec = Why(**at.place, stage=stage.value.key, width=WIDE_PX)
        if isinstance(why, made.Softmaxed):
            stages = tuple(each.value.key for each in (why.stage_before or stage, stage))
            spec = Row(**at.place, stages=stages, first_token=cell.page.first_token)
            name = "softmax alone" if why.rival is None else name
        rest = _subtracted(at) if step == "softmax" and cell.page.model.config.differential else {}
        _say(at.words | _facts(at, why) | rest, name, *(["subtracted"] if rest else []))
    figure = draw(cell.source, spec)
    widgets.chart(figure.figure, f"{spec.name}.{step}", alt=figure.caption, stretch=True)
    save_line(figure, _chain_words(cell, stage), widgets.LINE)


def _facts(cell: Cell, why: made.Decomposition) -> dict[str, str]:
    """The numbers a sentence may name."""
    facts = {"value": value_text(why, why.value), "n": str(len(why.terms))}
    if why.own is not None:
        facts |= {"own": value_text(why, why.own.product), "before": value_text(why, why.own.source)}
    if isinstance(why, made.Scored):
        facts["d"] = str(why.d_head)
    if isinstance(why, made.Convolved):
        facts["count"] = str(int(why.window.future.sum()))
    if isinstance(why, made.Softmaxed):
        facts["before"] = score_text(why.score)
        if why.rival is not None and why.margin is not None:
            facts |= {"margin": score_text(why.margin), "rival": cell.page.trace.tokens.named(why.rival)}
    return facts


def _subtracted(cell: Cell) -> dict[str, str]:
    """The second softmax of a DIFF Transformer's head and what is left of the first."""
    why = cell.why(Stage.PATTERN)
    second = why.terms[1]
    numbers = {"second": weight_text(second.source), "final": weight_text(why.value)}
    return numbers | {"share": score_text(-second.weight)}


def _say_answer(cell: Cell) -> SourceCells:
    """The cell's direct effect, and the answer's log-odds with the head's kernel and without its shape."""
    layer, head, query, key = cell.place.values()
    look: dict[str, Any] = {"of": "responsibility", "layer": layer, "head": head, "cell": (query, key)}
    effects = direct_effects(cell.source, SourceCells(**look), None)
    own, meter = effects.layers[layer], meter_of(cell.source, None)
    read = own.first_query <= query <= own.position
    added = float(own.values[head, query - own.first_query, key]) if read else 0.0
    kernels, plans = meter.trace.model.config.kernels(layer), {"with": NO_PLAN}
    if kernels.pre or kernels.post:
        kernel = KernelId(layer, head, "pre" if kernels.pre else "post")
        plans["without"] = (without(kernel, "own-tap"),)
    values = {"added": score_text(added), "token": effects.explained, "last": str(own.position)}
    for name, plan in plans.items():
        standing = cell.source.remember(partial(meter.standing, plan), "how", plan)
        values[name] = score_text(standing.log_odds)
    odds = "odds" if "without" in plans else "odds alone"
    _say(cell.words | values, "answer" if read else "answer elsewhere", odds)
    return SourceCells(**look, keys=centred(key, own.position + 1, KEYS))


def _chain_words(cell: Cell, stage: Stage) -> str:
    """`This cell: raw +3.21 → ▸ kq +12.3 → ...`, in the numbers of the other pages."""
    place = tuple(cell.place.values())
    make = partial(made.chain, cell.page.trace, *place)
    values: dict[Stage, float] = cell.source.remember(make, "cell", *place)
    shown = []
    for at, value in reversed(values.items()):
        text = score_text(value) if at.value.unit == "score" else weight_text(value)
        shown.append(f"{'▸ ' * (at is stage)}{at.value.short} {text}")
    return f"This cell at every stage: {' → '.join(shown)}"

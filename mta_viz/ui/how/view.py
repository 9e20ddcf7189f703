"""Six steps from two tokens' scores to the answer, each with one sentence and one picture of the chosen cell.

Every number is that of the functions the other pages show. The sentences are data, `assets/how.toml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention import decomposition as analysis
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.config import LayerKernels
from mta_viz.figures.attention.tokens import Row, Why, value_text
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.cause.attribution import SourceCells, direct_effects, meter_of
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.plots.theme import cut, score_text, weight_text
from mta_viz.ui.fields import bar
from mta_viz.ui.how.playground import draw_playground
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import begin, draw, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.terms import draw_terms, texts, worded
from mta_viz.ui.shell.widgets import chart, head_name, layer_label

STEPS = ("score", "window", "future", "heads", "softmax", "answer")
PLAY = "playground"
STEP = Setting("step", STEPS[0])
WIDE_PX = 900


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
    def place(self) -> dict[str, int]:
        """Layer, head, query and key as parameters."""
        return {name: getattr(self.selected, name) for name in ("layer", "head", "query", "key")}

    @property
    def kernels(self) -> LayerKernels:
        """Which its layer has."""
        return self.page.model.config.kernels(self.selected.layer)

    @property
    def words(self) -> dict[str, str]:
        """Its head and both tokens with their positions."""
        pieces, (layer, head, *ends) = self.page.trace.tokens.pieces, self.place.values()
        query, key = (f"{at} “{cut(pieces[at], 20)}”" for at in ends)
        return {"head": head_name(layer, head, self.page.numbering), "query": query, "key": key}


def steps_of(kernels: LayerKernels) -> dict[str, Stage | None]:
    """The steps in the order in which the layer takes them, with the stage each makes; None: it has none.

    A layer with kernels on both sides of the softmax shows the one before it, as of head mixing.
    """
    convolution = Stage.SOFTMAX_KQ if kernels.post and not kernels.pre else Stage.KQ
    mixing = Stage.PATTERN if kernels.head_post and not kernels.head_pre else Stage.MIX
    stages = (Stage.RAW, convolution, convolution, mixing, Stage.SOFTMAX, Stage.PATTERN)
    made, present = dict(zip(STEPS, stages, strict=True)), layer_stages(kernels)
    order = sorted(STEPS, key=lambda name: [*Stage].index(made[name]))
    return {name: made[name] if made[name] in present else None for name in order}


@st.fragment
def draw_how(page: Page) -> None:
    """The page's body. Its own widgets run it alone."""
    begin()
    with errors_as_messages():
        _draw(page)
    state.mirror()


def _draw(page: Page) -> None:
    selected = pickers.resolve(state.selection(), page.trace)
    state.select(layer=selected.layer, head=selected.head)
    cell = Cell(page, selected)
    head, query, key = cell.words.values()
    draw_address(f"{state.selection().checkpoint} · {head} · query {query} · key {key}")
    _draw_pickers(cell)
    steps = steps_of(cell.kernels)
    chosen = _pick_step(steps)
    if chosen == PLAY:
        draw_playground(page, selected)
    elif selected.key > selected.query:
        _say("masked", cell.words)
    elif stage := steps[chosen]:
        with st.container(key="stale" if page.stale else "fresh"):
            _draw_step(cell, chosen, stage)
    else:
        _say(f"no {chosen}", {"layer": layer_label(selected.layer, page.numbering)})


def _say(name: str, values: Mapping[str, str]) -> None:
    st.html(worded(texts("how")[name], **values))


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
        chosen: str = bar("Step", words | {PLAY: PLAY}, STEP, label_visibility="collapsed")
        at = names.index(chosen)
        before, after = (
            [name for name in part if steps.get(name, name == PLAY)] for part in (names[:at], names[at + 1 :])
        )
        with back:
            pickers.arrow("path", "Back", "q", partial(STEP.put, before[-1]) if before else None)
        pickers.arrow("path", "Next", "w", partial(STEP.put, after[0]) if after else None)
        draw_terms()
    return chosen


def _draw_step(cell: Cell, step: str, stage: Stage) -> None:
    """One sentence, one picture, and the cell at every stage."""
    place, name = cell.place, step
    if step == "answer":
        name, facts = _answer(cell)
        spec: NamedFigure[Any] = SourceCells(of="responsibility", **place)
    else:
        why = _why(cell, stage)
        if step == "future" and isinstance(why, analysis.Convolved) and not why.window.future.any():
            name, place = "future elsewhere", place | {"key": cell.selected.query}
            why = _why(cell, stage, key=cell.selected.query)
        facts = _facts(cell, why)
        spec = Why(**place, stage=stage.value.key, width=WIDE_PX)
        if isinstance(why, analysis.Softmaxed):
            stages = [why.stage_before or stage, stage]
            spec = Row(
                **place, stages=tuple(at.value.key for at in stages), first_token=cell.page.first_token
            )
    _say(name, cell.words | facts)
    figure = draw(cell.source, spec)
    chart(figure.figure, f"{spec.name}.{step}", alt=figure.caption)
    save_line(figure, _chain_words(cell, stage))


def _why(cell: Cell, stage: Stage, **other: int) -> analysis.Decomposition:
    place = cell.place | other
    layer, head, query, key = place.values()
    make = partial(analysis.decompose, cell.page.trace, layer, stage, head, query, key)
    return cell.source.remember(make, "how", stage, *place.values())


def _facts(cell: Cell, why: analysis.Decomposition) -> dict[str, str]:
    """The numbers a sentence may name."""
    facts = {"value": value_text(why, why.value), "n": str(len(why.terms))}
    if why.own is not None:
        facts |= {"own": value_text(why, why.own.product), "before": value_text(why, why.own.source)}
    if isinstance(why, analysis.Scored):
        facts["d"] = str(why.d_head)
    if isinstance(why, analysis.Convolved):
        facts["count"] = str(int(why.window.future.sum()))
    if isinstance(why, analysis.Softmaxed):
        facts |= {"before": score_text(why.score), "beside": "the row's only key"}
        if why.rival is not None and why.margin is not None:
            side, piece = (
                "ahead of" if why.margin >= 0 else "behind",
                cell.page.trace.tokens.pieces[why.rival],
            )
            facts["beside"] = (
                f"{abs(why.margin):.3g} nats {side} the largest other, {why.rival} “{cut(piece, 20)}”"
            )
    return facts


def _answer(cell: Cell) -> tuple[str, dict[str, str]]:
    """The sentence's name; the direct effect, and the answer's log-odds with the kernel and without."""
    layer, head, query, key = cell.place.values()
    effects = direct_effects(cell.source, SourceCells(of="responsibility", layer=layer, head=head), None)
    own, meter = effects.layers[layer], meter_of(cell.source, None)
    read = own.first_query <= query <= own.position
    added = float(own.values[head, query - own.first_query, key]) if read else 0.0
    odds, name = {"with": score_text(meter.standing().log_odds)}, "odds alone"
    if cell.kernels.pre or cell.kernels.post:
        kernel = KernelId(layer, head, "pre" if cell.kernels.pre else "post")
        alone = cell.source.remember(lambda: meter.standing((without(kernel, "own-tap"),)), "how", kernel)
        odds, name = odds | {"without": score_text(alone.log_odds)}, "odds"
    words = {"added": score_text(added), "token": effects.explained, "last": str(own.position)}
    words["odds"] = texts("how")[name].format(**odds)
    return "answer" if read else "answer elsewhere", words


def _chain_words(cell: Cell, stage: Stage) -> str:
    """`This cell: raw +3.21 → ▸ kq +12.3 → ...`, in the numbers of the other pages."""
    place = tuple(cell.place.values())
    make = partial(analysis.chain, cell.page.trace, *place)
    values: dict[Stage, float] = cell.source.remember(make, "cell", *place)
    shown = []
    for at, value in reversed(values.items()):
        text = score_text(value) if at.value.unit == "score" else weight_text(value)
        shown.append(f"{'▸ ' * (at is stage)}{at.value.short} {text}")
    return f"This cell at every stage: {' → '.join(shown)}"

"""Six steps from two tokens' scores to the answer, each with one sentence and one picture of the chosen cell.

Every number is that of the functions the other pages show: the cell at each stage, the sum that makes it,
its direct effect, the answer with and without the kernel.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.decomposition import Convolved, Decomposition, Mixed, Softmaxed, chain, decompose
from mta_viz.analysis.cause.cell_effect import CELL, CellEffect
from mta_viz.config import LayerKernels
from mta_viz.figures.attention.path import ScoreProducts, SoftmaxRow
from mta_viz.figures.attention.tokens import Why, value_text
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.cause.cell import CellToAnswer
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import cut, score_text, weight_text
from mta_viz.ui.fields import bar
from mta_viz.ui.how.playground import draw_playground
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import begin, draw, save_line, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.terms import draw_terms, worded
from mta_viz.ui.shell.widgets import chart, head_name, layer_label

STEPS = ("score", "window", "future", "heads", "softmax", "answer")
PLAY = "playground"
STEP = Setting("step", STEPS[0])
WIDE_PX = 900
LACKING = {
    "heads": "{layer} mixes no heads: every head keeps its own map, and this step is passed over.",
    "window": "{layer} has no [kernel], neither before nor after the [softmax]: this step is passed over.",
    "future": "{layer} has no [kernel] that could reach the [future]: this step is passed over.",
}


@dataclass(frozen=True)
class Cell:
    """The cell that is followed, in one head of a run; `stage` is the one that the shown step makes."""

    page: Page
    selected: Selected
    stage: Stage = Stage.RAW

    @property
    def source(self) -> Source:
        """What figures are drawn from."""
        return source_of(self.page)

    @property
    def place(self) -> dict[str, Any]:
        """Layer, head, query and key as parameters."""
        return {name: getattr(self.selected, name) for name in ("layer", "head", "query", "key")}

    @property
    def name(self) -> str:
        """`L5 H7`."""
        return head_name(self.selected.layer, self.selected.head, self.page.numbering)

    def token(self, position: int) -> str:
        """Its position and text."""
        return f"{position} “{cut(self.page.trace.tokens.pieces[position], 20)}”"

    def why(self, stage: Stage, **cell: int) -> Decomposition:
        """What makes a value of this head, its own cell unless another is named."""
        spec = Why(**self.place | cell, stage=stage.value.key, width=WIDE_PX)
        return self.source.remember(lambda: spec.result(self.source), "result", spec.name, spec)


def steps_of(kernels: LayerKernels) -> dict[str, Stage | None]:
    """The steps in the order in which the layer takes them, with the stage each makes; None: it has none.

    A layer with kernels on both sides of the softmax shows the one before it, as of head mixing.
    """
    convolution = Stage.SOFTMAX_KQ if kernels.post and not kernels.pre else Stage.KQ
    mixing = Stage.PATTERN if kernels.head_post and not kernels.head_pre else Stage.MIX
    made = dict(zip(STEPS, (Stage.RAW, convolution, convolution, mixing, Stage.SOFTMAX, Stage.PATTERN), strict=True))
    has = {name: bool(kernels.pre or kernels.post) for name in ("window", "future")}
    has["heads"] = bool(kernels.head_pre or kernels.head_post)
    order = sorted(STEPS, key=lambda name: [*Stage].index(made[name]))
    return {name: made[name] if has.get(name, True) else None for name in order}


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
    steps = steps_of(page.model.config.kernels(selected.layer))
    cell = Cell(page, selected)
    where = f"query {cell.token(selected.query)} · key {cell.token(selected.key)}"
    draw_address(" · ".join([str(state.selection().checkpoint), cell.name, where]))
    _draw_pickers(page, selected)
    chosen = _pick_step(steps)
    if chosen == PLAY:
        draw_playground(page, selected)
    elif selected.key > selected.query:
        st.html(worded("The [key] {key} comes after the [query] {query}: a cell of the [future], which no token sees.",
                       key=cell.token(selected.key), query=cell.token(selected.query)))  # fmt: skip
    elif stage := steps[chosen]:
        with st.container(key="stale" if page.stale else "fresh"):
            _PANELS[chosen](replace(cell, stage=stage))
    else:
        st.html(worded(LACKING[chosen], layer=layer_label(selected.layer, page.numbering)))


def _draw_pickers(page: Page, selected: Selected) -> None:
    count = len(page.trace.tokens)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        pickers.pick_layer(page.model.config, selected.layer, page.numbering)
        pickers.pick_head(page.model.config, selected.head, page.numbering)
        pickers.pick_position("query", selected.query, count, ("n", "m"))
        pickers.pick_position("key", selected.key, count, ("j", "k"))


def _pick_step(steps: Mapping[str, Stage | None]) -> str:
    """The chosen step between Back and Next, which pass over what the layer does not have."""
    names = [*steps, PLAY]
    words = {name: f"{at} {name}{'' if steps[name] else ' (none)'}" for at, name in enumerate(steps, start=1)}
    there = [name for name in names if steps.get(name, name == PLAY)]
    with st.container(horizontal=True, vertical_alignment="center"):
        back, row, onward, terms = st.container(width="content"), st.container(width="content"), st.container(width="content"), st.container(width="content")
        with row:
            chosen: str = bar("Step", words | {PLAY: PLAY}, STEP, label_visibility="collapsed")
        at = names.index(chosen)
        before = [name for name in there if names.index(name) < at][-1:]
        after = [name for name in there if names.index(name) > at][:1]
        for place, label, key, to in ((back, "Back", "q", before), (onward, "Next", "w", after)):
            with place:
                pickers.arrow("path", label, key, partial(STEP.put, to[0]) if to else None)
        with terms:
            draw_terms()
    return chosen


def _draw_panel(cell: Cell, spec: NamedFigure[Any], say: Callable[[Any], str], alt: str) -> None:
    """One sentence, one picture, and the cell at every stage."""
    figure = draw(cell.source, spec)
    st.html(say(figure.result))
    chart(figure.figure, f"{spec.name}.{cell.stage.value.key}", alt=alt)
    save_line(figure, _chain_words(cell))


def _chain_words(cell: Cell) -> str:
    """`The cell at every stage: raw +3.21 → kq +12.3 → ...`, in the numbers of the workspace."""
    place = tuple(cell.place.values())
    values: dict[Stage, float] = cell.source.remember(lambda: chain(cell.page.trace, *place), "cell", *place)
    texts = []
    for stage, value in reversed(values.items()):
        text = score_text(value) if stage.value.unit == "score" else weight_text(value)
        texts.append(f"▸ {stage.value.short} {text}" if stage is cell.stage else f"{stage.value.short} {text}")
    return f"This cell at every stage: {' → '.join(texts)}"


def _score(cell: Cell) -> None:
    query, key = cell.token(cell.selected.query), cell.token(cell.selected.key)

    def say(why: Any) -> str:
        return worded(
            "The [query] {query} and the [key] {key} get a raw [score] of {value}: the product of their two vectors "
            "in {head}, q · k / √{d}.",
            query=query, key=key, value=score_text(why.value), head=cell.name, d=str(why.d_head),
        )  # fmt: skip

    _draw_panel(cell, ScoreProducts(**cell.place), say, "The products that sum to the score")


def _window(cell: Cell) -> None:
    read = "scores" if cell.stage is Stage.KQ else "weights"

    def say(why: Convolved) -> str:
        own = "nothing" if why.own is None else score_text(why.own.product)
        return worded(
            "The [kernel] of {head} looks at the " + read + " around the cell, each times its [tap]: {n} products sum to "
            "{value}, of which the [own tap] gives {own}.",
            head=cell.name, n=str(len(why.terms)), value=value_text(why, why.value), own=own,
        )  # fmt: skip

    spec = Why(**cell.place, stage=cell.stage.value.key, width=WIDE_PX)
    _draw_panel(cell, spec, say, "Kernel, the values it reads, and their products")


def _future(cell: Cell) -> None:
    own = cell.why(cell.stage)
    assert isinstance(own, Convolved)
    at = cell.place if own.window.future.any() else cell.place | {"key": cell.selected.query}

    def say(why: Convolved) -> str:
        here = "At this cell {count} of {n} [tap]s fall on the [future]"
        if at != cell.place:
            here = "At this cell no [tap] falls on the [future]; where {query} reads itself, {count} of {n} do"
        return worded(
            here + ", cells whose [key] comes after their [query]: these read as 0 and add 0, so that no token "
            "sees what follows it.",
            count=str(int(why.window.future.sum())), n=str(len(why.terms)), query=cell.token(cell.selected.query),
        )  # fmt: skip

    spec = Why(**at, stage=cell.stage.value.key, width=WIDE_PX)
    _draw_panel(cell, spec, say, "The kernel's window with the cells of the future hatched")


def _heads(cell: Cell) -> None:
    def say(why: Mixed) -> str:
        before = "nothing" if why.own is None else value_text(why, why.own.source)
        return worded(
            "[Head mixing] sums the same cell over the {n} heads of the group, each times its weight: {before} in "
            "{head} alone becomes {value}.",
            n=str(len(why.terms)), before=before, head=cell.name, value=value_text(why, why.value),
        )  # fmt: skip

    spec = Why(**cell.place, stage=cell.stage.value.key, width=WIDE_PX)
    _draw_panel(cell, spec, say, "What each head of the group adds")


def _softmax(cell: Cell) -> None:
    why = cell.why(Stage.SOFTMAX)
    assert isinstance(why, Softmaxed)
    beside = "it is the row's only key"
    if why.rival is not None and why.margin is not None:
        side = "ahead of" if why.margin >= 0 else "behind"
        beside = f"{abs(why.margin):.3g} nats {side} {cell.token(why.rival)}, the largest other"
    text = worded(
        "The [softmax] turns the row's [score]s into [weight]s that sum to 1: {score} becomes {value}; {beside}.",
        score=score_text(why.score), value=weight_text(why.value), beside=beside,
    )  # fmt: skip
    spec = SoftmaxRow(**cell.place, first_token=cell.page.first_token)
    _draw_panel(cell, spec, lambda row: text, "The row before the softmax and after it")


def _answer(cell: Cell) -> None:
    def say(effect: CellEffect) -> str:
        text = "Through this cell the head adds {added} to the [logit] of {token}: its [direct effect]"
        if not effect.read:
            text = "The [direct effect] of this cell is {added}: {token} is written after {last}, whose rows alone count"
        if effect.without is not None:
            text += "; with the kernel's [own tap] alone the answer's [log-odds] are {without} instead of {odds}"
        odds = {} if effect.without is None else {"without": score_text(effect.without.log_odds)}
        odds["odds"] = score_text(effect.standing.log_odds)
        last = str(effect.position)
        return worded(f"{text}.", added=score_text(effect.parts[CELL]), token=effect.explained, last=last, **odds)

    _draw_panel(cell, CellToAnswer(**cell.place), say, "What adds to the logit of the answer")


_PANELS: dict[str, Callable[[Cell], None]] = dict(
    zip(STEPS, (_score, _window, _future, _heads, _softmax, _answer), strict=True)
)

"""The prompt's text and the panels: a map before and after a kernel, or the original beside the edited one.

Owns which maps stand beside one another, on which scale, and the named crops; drawing is `linked`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.cells import stage_before
from mta_viz.analysis.attention.changes import layer_steps, subtract
from mta_viz.analysis.attention.maps import AttentionMap, centred, exact_map, round_up, shared_limit
from mta_viz.analysis.attention.spans import QUESTION, Span, asked_span
from mta_viz.analysis.cause.story import Story
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MADE_BY, KernelId, layer_kernels
from mta_viz.analysis.kernels.naming import NONE, STAGES, name_kernels
from mta_viz.analysis.labs.finder import region
from mta_viz.figures.attention.maps import WHOLE_UP_TO, HeadMap, Range
from mta_viz.figures.base import Drawn
from mta_viz.figures.beside import EditedMaps
from mta_viz.model.plans import Plan
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.plots.kernels.mosaic import tap_limit
from mta_viz.ui.attention.head import SCALE, SCALES, VIEW, Head, chosen_span, hits_of, is_pooled
from mta_viz.ui.linked.component import WHOLE, Crop, KernelPanel, Linked, Panel, Seen, opening_of
from mta_viz.ui.shell import pickers, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Part
from mta_viz.ui.shell.plan import ANSWER, DIFFERENCE, ORIGINAL
from mta_viz.ui.shell.show import keep, save_button, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import explain, menu

ONE_EARLIER = "one earlier"
BEFORE = Setting("before", ONE_EARLIER)
LEAST = 0.2  # of the largest tap: the scale of a kernel that is its own tap alone
WINDOW, WINDOW_CELLS = "window", 24  # a crop the view adds itself, and its cells a side
WHOLE_BELOW = 129  # tokens: longer prompts without a span of interest open at a window
Crops = Mapping[str, Crop]


@dataclass(frozen=True)
class Desk:
    """What is looked at: a head of the run that is `shown`, the original run's page, the plan, the story.

    The head's page is that of the edited run unless the original is shown. `problem`: why the plan cannot be
    done, which then is empty.
    """

    original: Page
    head: Head
    plan: Plan = ()
    shown: str = ORIGINAL
    story: Story | None = None
    problem: str = ""

    @property
    def kernel(self) -> KernelId | None:
        """The kernel that makes the chosen stage, else the first that the layer has."""
        selected, kernels = self.head.selected, self.original.model.config.kernels(self.head.selected.layer)
        there = [where for where in KEY_QUERY if getattr(kernels, where)]
        made = [where for where in there if MADE_BY[where] is selected.stage]
        return next((KernelId(selected.layer, selected.head, where) for where in (*made, *there)), None)

    @property
    def _makes_weights(self) -> bool:
        """Whether a step of the layer makes the final weights of the stage before."""
        return stage_before(self.original.trace, self.head.selected.layer, Stage.PATTERN) is not None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those of the two panels, in the order they are computed; one where nothing comes before."""
        selected = self.head.selected
        steps = layer_steps(self.original.model.config.kernels(selected.layer))
        befores = {step.after: step.before for step in steps}
        before = befores[selected.stage]
        if before is not None and selected.stage is Stage.PATTERN and not self._makes_weights:
            before = befores[before]  # the weights are the stage before, cell by cell
        chosen = next((stage for stage in befores if stage.value.key == BEFORE.value), None)
        before = before if chosen is None or chosen is selected.stage else chosen
        return (selected.stage,) if before is None else (before, selected.stage)


def linked_of(desk: Desk) -> Linked:
    """The panels, the kernel between them, and the crops that are one click apart."""
    head, crops = desk.head, crops_of(desk)
    marks = tuple((hit.start, hit.stop) for hit in hits_of(head)[0])
    panels = _compared(desk) if desk.shown == DIFFERENCE else _around(desk)
    return Linked(
        VIEW,
        head.page.key,
        panels,
        head.tokens,
        head.page.numbering,
        head.spans,
        marks=marks,
        kernel=None if desk.shown == DIFFERENCE else _kernel(desk),
        crops=crops,
        crop=_opens_on(head, crops),
    )


def _opens_on(head: Head, crops: Crops) -> str:
    """The crop that is shown at first."""
    drawn = head.has_overview and state.part(Part).crop is not None  # a box on the overview: all of it
    return next(iter(crops), WHOLE if len(head.tokens) < WHOLE_BELOW or drawn else WINDOW)


def seen_part(desk: Desk) -> dict[str, Any]:
    """The queries and keys that are in view, as figures take them; empty for a whole map.

    And for a part that is too large to be drawn exactly.
    """
    head, crops, n_tokens = desk.head, crops_of(desk), len(desk.head.tokens)
    whole: Crop = ((0, n_tokens), (0, n_tokens))
    held = (head.part.queries, head.part.keys) if head.has_overview and head.part else whole
    name, seen = _opens_on(head, crops), state.part(Seen)
    around = tuple(centred(at, n_tokens, WINDOW_CELLS) for at in head.cell.values())
    part = {WINDOW: around, WHOLE: held}.get(name) or crops[name]
    if seen.part is not None and seen.opening == opening_of(head.tokens, held, name, crops):
        part = seen.part
    within = all(stop <= n_tokens for _, stop in part)
    if part == whole or not within or max(stop - start for start, stop in part) > WHOLE_UP_TO:
        return {}
    return dict(zip(("queries", "keys"), part, strict=True))


def crops_of(desk: Desk) -> Crops:
    """The linked part first, then question x asked words; none of a long prompt, which has one part."""
    head, crops = desk.head, dict[str, tuple[Range, Range]]()
    part = state.part(Part).crop
    if head.has_overview:
        return crops
    if part is not None:
        crops["chosen part"] = (part.queries, part.keys)
    asking = next((span for span in head.spans if span.letter == QUESTION), None)
    span = chosen_span(head) or asked_span(head.spans)
    if desk.story is not None and desk.story.asked is not None:
        asking, span = asking or desk.story.asking, span or desk.story.asked
    if asking is not None and span is not None and span.letter != QUESTION:
        shown = region(asking, span, len(head.tokens))
        sides = ((side.start, side.stop) for side in (shown.queries, shown.keys))
        crops[f"{_crop_name(asking)} x {_crop_name(span)}"] = (next(sides), next(sides))
    return crops


def _crop_name(span: Span) -> str:
    if span.letter == QUESTION:
        return "question" if len(span.positions) > 1 else "last token"
    return "needle" if span.name.endswith("(asked)") else span.letter


def _cells(head: Head, stage: Stage) -> tuple[AttentionMap, float]:
    """Every cell of a stage, of a long prompt those of its part, and the end of its colours."""
    ranges = head.ranges if head.has_overview else {}
    spec = HeadMap(**head.place, stage=stage.value.key, **head.looks, scale=SCALE.value, **ranges)
    if not is_pooled(head):
        part = spec.exact(head.source, stage)
        return part, shared_limit([part], head.page.first_token)
    result = Drawn(spec, head.source).result
    shown = result.shown
    if shown.block > 1:
        shown = head.source.of_run(exact_map, head.selected.layer, stage, head.selected.head)
    return shown, result.limit


def _around(desk: Desk) -> tuple[Panel, ...]:
    """One scale for stages of a unit, and for both runs."""
    head, limits = desk.head, dict[str, float]()
    cells = {stage: _cells(head, stage) for stage in desk.stages}
    for stage, (_, own) in cells.items():  # what is edited is seen on the original's scale
        original = own if head.page is desk.original else _cells(replace(head, page=desk.original), stage)[1]
        limits[stage.value.unit] = max(own, original, limits.get(stage.value.unit, 0.0))
    names = ("before", "after")[-len(cells) :] if len(cells) > 1 else ("map",)
    return tuple(
        Panel(name, shown, limits[stage.value.unit])
        for name, (stage, (shown, _)) in zip(names, cells.items(), strict=True)
    )


def _compared(desk: Desk) -> tuple[Panel, ...]:
    """The original and the edited run on one scale, and their difference on its own."""
    stage = desk.head.selected.stage
    own, limit = _cells(replace(desk.head, page=desk.original), stage)
    edited, second = _cells(desk.head, stage)
    change = subtract(edited, own)
    limit, changed = max(limit, second), shared_limit([change], desk.original.first_token)
    return (
        Panel("original", own, limit),
        Panel("edited", edited, limit),
        Panel("difference", change, changed),
    )


def _kernel(desk: Desk) -> KernelPanel | None:
    """The kernel between two maps, where it makes the second of the first; as the plan leaves it."""
    head, kernel, stages = desk.head, desk.kernel, desk.stages
    if kernel is None or MADE_BY[kernel.where] is not stages[-1] or BEFORE.value != ONE_EARLIER:
        return None
    taps, offsets, shape = head.source.remember(lambda: _taps(head.page, kernel), "kernel panel", kernel)
    limit = max(tap_limit(taps[None].numpy(), offsets.own), round_up(LEAST * float(taps.abs().max())))
    size = " x ".join(map(str, taps.shape))
    return KernelPanel(taps, offsets.query[0], offsets.key[0], limit, f"{size}, {shape}")


def _taps(page: Page, kernel: KernelId) -> tuple[Any, Any, str]:
    taps, offsets = layer_kernels(page.model.state_dict(), page.model.config, kernel.layer).taps(kernel.where)
    own = taps[kernel.head]
    shape = name_kernels(own[None].numpy(), offsets, STAGES)[0].shape
    return own, offsets, "unnamed" if shape == NONE else shape


def draw_stages(desk: Desk) -> None:
    """Which stage the second panel shows; behind a sign the first one's, and how colours end."""
    config, selected = desk.original.model.config, desk.head.selected
    pickers.pick_stage(config, selected.layer, selected.stage)
    there = layer_stages(config.kernels(selected.layer))
    names = {stage.value.key: stage.value.short for stage in there if stage is not selected.stage}
    words = "The first map, and where colours end"
    with st.popover(words, icon=":material/tune:", key="icon.first-map", help=words):
        menu("First map", {ONE_EARLIER: "one step earlier"} | names, BEFORE)
        words = "Colours end: at this map's own limit, or at the one all stages of its unit share."
        menu("Scale", SCALES, SCALE, help=words)


def draw_words(desk: Desk, linked: Linked) -> None:
    """What the panels show in a line, more behind its sign; the buttons that save map and text."""
    last = linked.panels[-1]
    figure = keep_figures(desk)
    words = "Rows: query, columns: key; hatched: masked."
    if last.shown.n_bad:
        words += f" {last.shown.n_bad:,} cells are NaN or inf, marked x."
    more = figure[0].caption if is_pooled(desk.head) else "Colours end at this part's limit, for now."
    with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
        with st.container():
            explain(words, more)
        save_button(figure[0], "Map")
        save_button(figure[1], "Text")
        if desk.story is not None:
            from mta_viz.figures.labs import StoryFigure  # here: the first map need not wait for it

            save_button(keep(source_of(desk.original), StoryFigure(ANSWER.value or None)), "Story")


def keep_figures(desk: Desk) -> tuple[Drawn, Drawn]:
    """What the panels and the text show, as figures that can be saved."""
    head = desk.head
    seen: dict[str, Any] = head.stage | head.cell | seen_part(desk) | head.looks
    if desk.shown == DIFFERENCE:
        both = source_of(replace(desk.original, key=head.page.key), beside=head.source)
        for side in ("original", "edited", "difference"):  # the last is what Save means
            shown = keep(both, EditedMaps(**seen, side=side))
    else:
        shown = keep(head.source, HeadMap(**seen, scale=SCALE.value))
    return shown, keep(head.source, head.text_figure)

"""From what a visitor chose (or did not) to a layer, head, stage, query and key that exist.

Which part of a long map is shown exactly: chosen by a box, by a search or by the selection.
Pickers for layer, head, stage, query and key, each with a pair of keys that step along it.
What a click or a box on a figure means. A click on nothing (a deselection) changes nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import streamlit as st

from mta_viz.analysis.attention.heads import largest_key, most_changed_head
from mta_viz.analysis.attention.maps import AROUND_SIZE, centred
from mta_viz.analysis.attention.spans import Span
from mta_viz.config import ModelConfig
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.printed import head_label, layer_label
from mta_viz.run.tracing import Trace
from mta_viz.ui.shell import state
from mta_viz.ui.shell.state import Selection
from mta_viz.ui.shell.widgets import selection_on

WHOLE_UP_TO = 256  # tokens: longer maps are an overview plus an exact crop; more cells take no clicks
CROP_SIZE = 256  # tokens a side of the largest box
Move = Callable[[int], None]
Width = int | Literal["content"]


@dataclass(frozen=True)
class Crop:
    """Token ranges of an exact map, ends excluded, at most `CROP_SIZE` long."""

    queries: tuple[int, int]
    keys: tuple[int, int]

    def holds(self, query: int, key: int) -> bool:
        """Whether the cell is inside."""
        return query in range(*self.queries) and key in range(*self.keys)


@dataclass
class Part:
    """The part of a long prompt that is shown exactly; None: around the selection. `last`: what was shown."""

    crop: Crop | None = None
    last: Crop | None = None

    def at(self, query: int, key: int, n_tokens: int) -> Crop:
        """The chosen part; else the last one while the cell is inside, and one around the cell where not."""
        if self.crop is not None and max(self.crop.queries[1], self.crop.keys[1]) <= n_tokens:
            return self.crop
        last = self.last
        if last is None or max(last.queries[1], last.keys[1]) > n_tokens or not last.holds(query, key):
            self.last = last = around(query, key, n_tokens)
        return last


@dataclass
class NamedSpans:
    """The spans of a run, `run` being its key: the visitor's own, at first the needles the prompt holds."""

    run: str = ""
    spans: tuple[Span, ...] = ()


def around(query: int, key: int, n_tokens: int) -> Crop:
    """The crop with this cell in its middle, moved inside the prompt."""
    return Crop(centred(query, n_tokens, AROUND_SIZE), centred(key, n_tokens, AROUND_SIZE))


def from_box(rows: tuple[float, float], columns: tuple[float, float], n_tokens: int) -> Crop:
    """The crop of a box drawn in token positions (any order); too large ones keep their middle."""
    return Crop(_range(rows, n_tokens), _range(columns, n_tokens))


def _range(ends: tuple[float, float], n_tokens: int) -> tuple[int, int]:
    low, high = sorted(round(end) for end in ends)
    if high - low + 1 > CROP_SIZE:
        return centred((low + high + 1) // 2, n_tokens, CROP_SIZE)
    low = min(max(0, low), n_tokens - 1)
    return low, max(low + 1, min(high + 1, n_tokens))


@dataclass(frozen=True)
class Selected:
    """A selection that exists in this model and prompt. Counts from 0; `why` names a default head."""

    layer: int
    head: int
    stage: Stage
    query: int
    key: int
    why: str = ""


def resolve(view: Selection, trace: Trace) -> Selected:
    """The view with everything unchosen or impossible replaced by its default.

    Head: the one changed most by the key-query convolution. Stage: after that convolution where
    the layer has one, else the final weights. Query: the last token. Key: the largest cell.
    """
    layer, head, why = _head(view, trace)
    present, n_tokens = layer_stages(trace.model.config.kernels(layer)), len(trace.tokens)
    usual = Stage.KQ if Stage.KQ in present else Stage.PATTERN
    stage = next((stage for stage in present if stage.value.key == view.stage), usual)
    query = view.query if view.query is not None and view.query < n_tokens else n_tokens - 1
    key = view.key
    if key is None or key >= n_tokens:
        key = largest_key(trace, layer, head, stage, query)
    return Selected(layer, head, stage, query, key, why)


def _head(view: Selection, trace: Trace) -> tuple[int, int, str]:
    config, layer, head, why = trace.model.config, view.layer, 0, ""
    if layer is None or layer >= config.n_layers:
        changed = most_changed_head(trace)
        layer, head = changed or (0, 0)
        why = "largest change by the key-query conv at the last query" if changed else ""
    if view.head is not None and view.head < config.n_heads:
        return layer, view.head, "" if view.head != head else why
    return layer, head, why


def go_to(**changes: object) -> None:
    """Select parts of the view from elsewhere than the map; the exact part follows the cell."""
    now, part = state.select(**changes), state.part(Part)
    if part.crop is None:
        return
    if now.query is None or now.key is None or not part.crop.holds(now.query, now.key):
        part.crop = None


def pick_layer(config: ModelConfig, layer: int, numbering: int) -> None:
    """Layers, those with key-query kernels marked."""

    def label(index: int) -> str:
        kernels = config.kernels(index)
        return layer_label(index, numbering) + (" · kernel" if kernels.pre or kernels.post else "")

    _pick_index("layer", layer, config.n_layers, label, ("Up", "Down"), 222)


def pick_head(config: ModelConfig, head: int, numbering: int) -> None:
    """Heads."""
    label = partial(head_label, numbering=numbering)
    _pick_index("head", head, config.n_heads, label, ("Left", "Right"), 182)


def _pick_index(
    field: str, value: int, count: int, label: Callable[[int], str], shortcuts: tuple[str, str], width: int
) -> None:
    def move(target: int) -> None:
        state.select(**{field: target})

    with _arrows(field, value, count, shortcuts, move, width):
        choosing = _selecting(field, value, move, label(value))
        st.selectbox(field.capitalize(), range(count), value, format_func=label, **choosing)


def pick_stage(config: ModelConfig, layer: int, stage: Stage) -> None:
    """The stages this layer computes, by their short names."""
    options = [present.value.key for present in layer_stages(config.kernels(layer))]

    def move(target: int) -> None:
        state.select(stage=options[target])

    with _arrows("stage", options.index(stage.value.key), len(options), ("q", "w"), move, "content"):
        st.segmented_control(
            "Stage",
            options,
            default=stage.value.key,
            required=True,
            format_func=lambda key: Stage.from_key(key).value.short,
            **_selecting("stage", stage.value.key, lambda chosen: state.select(stage=chosen)),
        )


def pick_position(field: str, position: int, count: int, shortcuts: tuple[str, str]) -> None:
    """A query or key by its position; a new query has its own largest key."""

    def move(target: int) -> None:
        go_to(**{field: target}, **({"key": None} if field == "query" else {}))

    with _arrows(field, position, count, shortcuts, move, 220):
        choosing = _selecting(field, position, move)
        st.number_input(field.capitalize(), 0, count - 1, position, step=1, **choosing)


@contextmanager
def _arrows(
    field: str, place: int, count: int, shortcuts: tuple[str, str], move: Move, width: Width
) -> Iterator[None]:
    """What is drawn inside stands between two arrows over 0..count-1 that stop at the ends."""
    with st.container(horizontal=True, wrap=False, width=width, gap="xsmall", vertical_alignment="bottom"):
        back = partial(move, place - 1) if place > 0 else None
        arrow(f"Previous {field}", "chevron_left", f"{field}.{shortcuts[0]}", back)
        yield
        forward = partial(move, place + 1) if place + 1 < count else None
        arrow(f"Next {field}", "chevron_right", f"{field}.{shortcuts[1]}", forward)


def arrow(words: str, icon: str, key: str, go: Callable[[], None] | None) -> None:
    """A button with a key of the keyboard, the end of `key`; `go` None: there is nothing that way.

    Its words are for who hears the page: style.css hides them.
    """
    look: Any = {"shortcut": key.rpartition(".")[2], "disabled": go is None, "icon": f":material/{icon}:"}
    st.button(words, key=f"step.{key}", on_click=go or (lambda: None), **look)


def _selecting(field: str, value: Any, choose: Callable[[Any], object], called: str = "") -> dict[str, Any]:
    """Arguments of a widget that shows a part of the selection and calls `choose` with another."""
    key = state.borrow(field, value, called)
    return {"key": key, "on_change": state.on_choice(key, choose)}


def on_cell(widget: str) -> None:
    """A click on an exact map selects its query and key."""
    if point := _point(widget):
        state.select(query=round(point["y"]), key=round(point["x"]))


def on_stage(widget: str) -> None:
    """A click on a thumbnail of the strip selects its stage."""
    name = _customdata(widget)[0]
    if name in [stage.value.key for stage in Stage]:
        state.select(stage=name)


def on_position(field: str, **other: int) -> Callable[[str], None]:
    """A click on a bar: its token is the new `field`, "query" or "key"; `other` is whose bars they are."""

    def chosen(widget: str) -> None:
        if point := _point(widget):
            go_to(**{field: round(point["x"])}, **other)

    return chosen


def on_token(widget: str) -> None:
    """A click on a letter of the prompt: its token is the new query."""
    position = _customdata(widget)[0]
    if isinstance(position, int | float):
        go_to(query=round(position))


def on_offset(query: int, key: int, stage: Stage) -> Callable[[str], None]:
    """A click on a tap over the cell (query, key): its source, one stage earlier, is selected."""

    def chosen(widget: str) -> None:
        point = _point(widget)
        source = (query + round(point["y"]), key + round(point["x"])) if point else (-1, -1)
        if 0 <= source[1] <= source[0]:
            go_to(query=source[0], key=source[1], stage=stage.value.key)

    return chosen


def on_head(widget: str) -> None:
    """A click on a head's tile opens that head."""
    if place := pair_of(widget):
        state.select(layer=place[0], head=place[1])


def pair_of(widget: str) -> tuple[int, int] | None:
    """Layer and head of the tile that was clicked."""
    layer, head = [*_customdata(widget), None][:2]
    if isinstance(layer, int | float) and isinstance(head, int | float):
        return round(layer), round(head)
    return None


def on_kernel(widget: str) -> None:
    """A click on a kernel's tile, or on a row of a mixing matrix, selects that kernel."""
    name = _customdata(widget)[0]
    if isinstance(name, str) and name.count(" ") == 2:
        where, layer, head = name.split(" ")
        state.select(layer=int(layer), head=int(head), place=where)


def on_overview(n_tokens: int) -> Callable[[str], None]:
    """A box on the overview chooses the exact crop; a click shows the surroundings of its block."""

    def chosen(widget: str) -> None:
        boxes = selection_on(widget).get("box")
        if boxes:
            state.part(Part).crop = from_box(tuple(boxes[-1]["y"]), tuple(boxes[-1]["x"]), n_tokens)
        elif point := _point(widget):
            state.part(Part).crop = around(round(point["y"]), round(point["x"]), n_tokens)

    return chosen


def _point(widget: str) -> dict[str, Any]:
    points = selection_on(widget).get("points")
    return dict(points[0]) if points and "x" in points[0] and "y" in points[0] else {}


def _customdata(widget: str) -> list[Any]:
    """That of the clicked point. Streamlit hands it back as a value, a list or a dict {"0": ...}."""
    custom = _point(widget).get("customdata")
    if isinstance(custom, dict):
        return [custom.get("0"), custom.get("1")]
    return custom if isinstance(custom, list) and custom else [custom]

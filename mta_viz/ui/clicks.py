"""What a click or a box on a figure means. A click on nothing (a deselection) changes nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from mta_viz.model.stages import Stage
from mta_viz.ui import crops, state
from mta_viz.ui.selection import go_to


def on_cell(widget: str) -> None:
    """A click on an exact map selects its query and key."""
    point = _point(widget)
    if point is not None:
        state.select(query=round(point["y"]), key=round(point["x"]))


def on_stage(widget: str) -> None:
    """A click on a thumbnail of the strip selects its stage."""
    point = _point(widget)
    if point is not None:
        name = _first(point.get("customdata"))
        if name in [stage.value.key for stage in Stage]:
            state.select(stage=name)


def on_position(field: str, **other: int) -> Callable[[str], None]:
    """A click on a bar: its token is the new `field`, "query" or "key"; `other` is whose bars they are."""

    def chosen(widget: str) -> None:
        point = _point(widget)
        if point is not None:
            go_to(**{field: round(point["x"])}, **other)

    return chosen


def on_token(field: str) -> Callable[[str], None]:
    """A click on a letter of the prompt: its token is the new `field`, "query" or "key"."""

    def chosen(widget: str) -> None:
        point = _point(widget)
        position = _first(point.get("customdata")) if point is not None else None
        if isinstance(position, int | float):
            go_to(**{field: round(position)})

    return chosen


def on_offset(query: int, key: int, stage: Stage) -> Callable[[str], None]:
    """A click on a tap over the cell (query, key): its source, one stage earlier, is selected."""

    def chosen(widget: str) -> None:
        point = _point(widget)
        source = (query + round(point["y"]), key + round(point["x"])) if point is not None else (-1, -1)
        if 0 <= source[1] <= source[0]:
            go_to(query=source[0], key=source[1], stage=stage.value.key)

    return chosen


def on_head(widget: str) -> None:
    """A click on a head's tile opens that head."""
    place = pair_of(widget)
    if place is not None:
        state.select(layer=place[0], head=place[1])


def pair_of(widget: str) -> tuple[int, int] | None:
    """Layer and head of the tile that was clicked."""
    point = _point(widget)
    return _pair(point.get("customdata")) if point is not None else None


def on_snapshot(steps: Sequence[int]) -> Callable[[str], None]:
    """A click on a training curve selects its head and moves the slider to its step."""

    def chosen(widget: str) -> None:
        point = _point(widget)
        place = _pair(point.get("customdata")) if point is not None else None
        if place is not None and 0 <= place[1] < len(steps):
            state.select(head=place[0])
            state.put("training_step", steps[place[1]])

    return chosen


def on_kernel(widget: str) -> None:
    """A click on a kernel's tile, or on a row of a mixing matrix, selects that kernel."""
    point = _point(widget)
    name = _first(point.get("customdata")) if point is not None else None
    if isinstance(name, str) and name.count(" ") == 2:
        where, layer, head = name.split(" ")
        state.select(layer=int(layer), head=int(head), where=where)


def on_overview(n_tokens: int) -> Callable[[str], None]:
    """A box on the overview chooses the exact crop; a click shows the surroundings of its block."""

    def chosen(widget: str) -> None:
        boxes = _selection(widget).get("box") or []
        point = _point(widget)
        if boxes:
            state.put("crop", crops.from_box(tuple(boxes[-1]["y"]), tuple(boxes[-1]["x"]), n_tokens))
        elif point is not None:
            state.put("crop", crops.around(round(point["y"]), round(point["x"]), n_tokens))

    return chosen


def _selection(widget: str) -> dict[str, Any]:
    return dict(dict(st.session_state.get(widget) or {}).get("selection") or {})


def _point(widget: str) -> dict[str, Any] | None:
    points: Sequence[dict[str, Any]] = _selection(widget).get("points") or []
    return dict(points[0]) if points and "x" in points[0] and "y" in points[0] else None


def _first(custom: Any) -> Any:
    """Streamlit hands customdata back as a value, a list or a dict {"0": ...}."""
    if isinstance(custom, dict):
        return custom.get("0")
    return custom[0] if isinstance(custom, list) and custom else custom


def _pair(custom: Any) -> tuple[int, int] | None:
    values = [custom.get("0"), custom.get("1")] if isinstance(custom, dict) else custom
    if (
        isinstance(values, list)
        and len(values) >= 2
        and all(isinstance(one, int | float) for one in values[:2])
    ):
        return round(values[0]), round(values[1])
    return None

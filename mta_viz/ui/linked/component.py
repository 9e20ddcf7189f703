"""The components on a page: `draw_text` and `draw_maps` where each stands, `draw_pointer` where the cell is.

All are Streamlit components of plain JavaScript. The text brings the message, which holds no chosen cell, so
that it stays the same, and is not sent again, while cells are chosen; the maps take it from the text; the
pointer's is small and sent at every choice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import streamlit as st

from mta_viz.ui.linked.payload import Linked, payload
from mta_viz.ui.shell import cache, state

Side = Literal["from the query", "to the key"]
SIDES: tuple[Side, ...] = get_args(Side)


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def _view(name: str) -> Any:
    look = {"html": _text(f"{name}.html"), "css": _text("linked.css")}
    js = _text("shared.js") + _text(f"{name}.js")
    return st.components.v2.component(f"mta_viz.{name}", **look, js=js, isolate_styles=False)


_TEXT, _MAPS = _view("text"), _view("maps")
_POINTER = st.components.v2.component("mta_viz.pointer", js=_text("pointer.js"), isolate_styles=False)


@dataclass(frozen=True)
class Choice:
    """A cell, and whether the text is coloured by the query's row or the key's column."""

    query: int
    key: int
    side: Side


@dataclass
class _Turns:
    """The number of a visitor's last choice: an answer to an earlier one does not move the view back."""

    last: int = 0


def draw_text(linked: Linked) -> None:
    """The prompt as text, and all that its maps need; made once for each run, maps and spans."""
    message = cache.remember(lambda: payload(linked), "linked", *linked.key)
    _TEXT(key=f"text.{linked.view}", data=message)


def draw_maps(linked: Linked) -> None:
    """The maps of a text that stands on the page too."""
    _MAPS(key=f"maps.{linked.view}", data={"view": linked.view})


def draw_pointer(view: str, chosen: Choice, n_tokens: int, choose: Callable[[Choice], None]) -> None:
    """Has the view show the chosen cell; `choose` is called with another one that exists."""
    turns, key = state.part(_Turns), f"pointer.{view}"

    def take() -> None:
        choice = dict(state.widget_value(key) or {}).get("choice")
        if not isinstance(choice, dict):
            return
        turns.last = _whole(choice.get("turn"))
        query, cell_key, side = _whole(choice.get("query")), _whole(choice.get("key")), choice.get("side")
        if query < n_tokens and cell_key < n_tokens and side in SIDES:
            choose(Choice(query, cell_key, side))

    data = {"view": view, "query": chosen.query, "key": chosen.key, "side": chosen.side, "turn": turns.last}
    with st.container(key="pointer"):
        _POINTER(key=key, data=data, on_choice_change=take)


def _whole(value: object) -> int:
    """What the browser sent as a number, which may be anything; the largest where it is none."""
    return value if isinstance(value, int) and 0 <= value <= state.LARGEST else state.LARGEST

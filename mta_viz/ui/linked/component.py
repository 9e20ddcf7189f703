"""The two components on a page: `draw_view` where the map stands, `draw_pointer` where the cell is drawn.

Both are Streamlit components of plain JavaScript. The view's message holds no chosen cell, so that it stays
the same, and is not sent again, while cells are chosen; the pointer's is small and sent at every choice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import streamlit as st

from mta_viz.ui.linked.payload import Linked, Shown, payload
from mta_viz.ui.shell import cache, state

Side = Literal["from the query", "to the key"]
SIDES: tuple[Side, ...] = get_args(Side)


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


_VIEW = st.components.v2.component(
    "mta_viz.view", html=_text("view.html"), css=_text("view.css"), js=_text("view.js"), isolate_styles=False
)
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


def draw_view(linked: Shown) -> None:
    """The map and the text; made once for each run, map and spans."""
    message = cache.remember(lambda: payload(linked), "linked", *linked.key)
    _VIEW(key=f"view.{linked.view}", data=message)


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


def draw_text(linked: Linked) -> None:
    """The text."""


def draw_maps(linked: Linked) -> None:
    """The maps."""
    last = linked.panels[-1]
    window = (linked.crops or {}).get(linked.crop)
    draw_view(
        Shown(
            linked.view,
            linked.run,
            last.shown,
            linked.tokens,
            last.limit,
            linked.numbering,
            linked.spans,
            linked.marks,
            window,
        )
    )

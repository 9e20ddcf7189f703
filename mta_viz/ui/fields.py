"""What the pages' forms are made of: fields tied to a setting, and tables whose rows are chosen."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import picked, plain

T = TypeVar("T")


def bar(
    label: str, options: Iterable[Any], setting: Setting[Any], *, default: Any = None, **look: Any
) -> Any:
    """A bar of options of which one is always chosen; a mapping gives their words."""
    given = _of(options, setting, default)
    chosen = given["options"][given.pop("index")]
    return st.segmented_control(label, required=True, default=chosen, **given, **look)


def menu(
    label: str, options: Iterable[Any], setting: Setting[Any], *, default: Any = None, **look: Any
) -> Any:
    """The same as a list that opens."""
    return st.selectbox(label, **_of(options, setting, default), **look)


def _of(options: Iterable[Any], setting: Setting[Any], default: Any) -> dict[str, Any]:
    names = list(options)
    words = {"format_func": options.__getitem__} if isinstance(options, Mapping) else {}
    return {"options": names, **words, **setting.widget(names, default=default)}


def number(
    label: str, setting: Setting[int], within: tuple[int, int], *, default: int | None = None, **look: Any
) -> int:
    """A whole number, least and largest included."""
    look |= setting.widget(default=default, within=within)
    return int(st.number_input(label, min_value=within[0], max_value=within[1], **look))


def explain(line: str, more: str) -> None:
    """A grey line, and behind its sign the rest of what it means."""
    st.caption(plain(line), help=plain(more))


def row_table(
    key: str,
    rows: Any,
    items: Sequence[T],
    choose: Callable[[T], object],
    **look: Any,
) -> None:
    """A table of what Streamlit takes for one; a click on a row calls `choose` with its item."""

    def take() -> None:
        at = picked(key)
        if at is not None and 0 <= at < len(items):
            choose(items[at])

    st.dataframe(rows, hide_index=True, key=key, on_select=take, selection_mode="single-row", **look)

"""Small widgets every page uses: text that is never markup, save buttons, charts.

Tokens and messages may hold anything a user can type, so nothing reaches Streamlit's markdown
without `plain`.

Labels of layers and heads, counted from 0 or from 1 as the visitor chose. Labels only:
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.plots.theme import Figure


def layer_label(layer: int, numbering: int) -> str:
    """`L2`."""
    return f"L{layer + numbering}"


def head_label(head: int, numbering: int) -> str:
    """`H1`."""
    return f"H{head + numbering}"


def head_name(layer: int, head: int, numbering: int) -> str:
    """`L2 H1`."""
    return f"{layer_label(layer, numbering)} {head_label(head, numbering)}"


def layer_list(layers: Sequence[int], numbering: int) -> str:
    """`1, 3, 5`."""
    return ", ".join(str(layer + numbering) for layer in layers)


_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$^=&])")
_CODES = re.compile(r":(?=\S)|@(?=\w)|www(?=\.)", re.IGNORECASE)  # emoji, icons, addresses
MIME_TYPES = {
    **{"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "html": "text/html"},
    **{"csv": "text/csv", "json": "application/json", "zip": "application/zip"},
}
CHART_CONFIG = {"displaylogo": False, "displayModeBar": False, "scrollZoom": False}


def plain(text: str) -> str:
    """Text as markdown that shows exactly the text: no markup, no `:emoji:`, line breaks kept."""
    joined = _CODES.sub(lambda found: found[0] + "\u2060", text)  # a word joiner, invisible, breaks the code
    return _MARKUP.sub(r"\\\1", joined).replace("\n", "  \n")


def caption(text: str) -> None:
    """A grey line."""
    st.caption(plain(text))


def lines(text: str, key: str) -> None:
    """Lines of equally wide letters; `st.code` would load a syntax highlighter before the map is drawn."""
    with st.container(key=f"mono-{key}"):
        st.text(text)


def chart(
    figure: Figure,
    name: str,
    then: Callable[[str], None] | None = None,
    *,
    modes: tuple[str, ...] = ("points",),
    alt: str | None = None,
    stretch: bool = False,
    square: bool = False,
) -> None:
    """A figure at its own size or as wide as there is room; `then(widget key)` after a choice on it.

    `square`: as wide as there is room, and as high: inside `side_by_side`.

    `name` keys the widget. A chart that shows something else needs another name where an old
    choice must not be taken for one on the new figure.
    """
    key = f"chart.{name}"
    choosing: dict[str, Any] = (
        {"selection_mode": modes, "on_select": lambda: then(key)} if then is not None else {}
    )
    st.plotly_chart(
        figure,
        key=key,
        width="stretch" if stretch or square else "content",
        height="stretch" if square else "content",
        theme=None,  # Streamlit's would move titles and pad axes; style.css gives text the page's colour
        config=CHART_CONFIG,
        alt=alt,
        **choosing,
    )


def side_by_side(name: str) -> DeltaGenerator:
    """Room for three maps of one size, as large as fits; style.css shares it out."""
    return st.container(key=f"beside-{name}")


def picked(widget: str) -> int | None:
    """The row chosen in a table, None when the choice was taken back."""
    selection = dict(dict(st.session_state.get(widget) or {}).get("selection") or {})
    rows = selection.get("rows") or []
    return int(rows[0]) if rows else None

"""Small widgets every page uses: text that is never markup, save buttons, charts.

Tokens and messages may hold anything a user can type, so nothing reaches Streamlit's markdown
without `plain`.
"""

import re
from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st

from mta_viz.exporting.figures import figure_bytes
from mta_viz.exporting.names import safe_name

_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$^=])")
_EMOJI_CODE = re.compile(r":(?=[\w+/-]+:)")
CHART_CONFIG = {"displaylogo": False, "displayModeBar": False, "scrollZoom": False}


def plain(text: str) -> str:
    """Text as markdown that shows exactly the text: no markup, no `:emoji:`, line breaks kept."""
    escaped = _MARKUP.sub(r"\\\1", text)
    joined = _EMOJI_CODE.sub(":\u2060", escaped)  # a word joiner, invisible, breaks the code
    return joined.replace("\n", "  \n")


def caption(text: str) -> None:
    """A grey line."""
    st.caption(plain(text))


def chart(
    figure: go.Figure,
    name: str,
    then: Callable[[str], None] | None = None,
    modes: tuple[str, ...] = ("points",),
    alt: str | None = None,
) -> None:
    """A figure at its own size; `then(widget key)` runs when something on it is chosen.

    `name` keys the widget. A chart that shows something else needs another name where an old
    choice must not be taken for one on the new figure.
    """
    key = f"chart.{name}"
    if then is None:
        st.plotly_chart(figure, key=key, width="content", config=CHART_CONFIG, alt=alt)
        return
    st.plotly_chart(
        figure,
        key=key,
        width="content",
        config=CHART_CONFIG,
        alt=alt,
        selection_mode=modes,
        on_select=lambda: then(key),
    )


def save_menu(name: str, figure: go.Figure, csv: Callable[[], str], key: str, label: str = "Save") -> None:
    """One button with PNG, SVG and CSV of a chart. Each file is made when it is asked for."""
    with st.popover(label, icon=":material/download:", key=f"save.{key}"):
        file = safe_name(name)
        for format, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
            st.download_button(
                format.upper(),
                data=lambda format=format: figure_bytes(figure, format),
                file_name=f"{file}.{format}",
                mime=mime,
                key=f"save.{key}.{format}",
                on_click="ignore",
                width="stretch",
            )
        st.download_button(
            "CSV (the numbers)",
            data=lambda: csv().encode(),
            file_name=f"{file}.csv",
            mime="text/csv",
            key=f"save.{key}.csv",
            on_click="ignore",
            width="stretch",
        )

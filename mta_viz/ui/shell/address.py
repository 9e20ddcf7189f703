"""The address line under the header of every page: where you are, the link to it, the help."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from mta_viz.ui.shell import state
from mta_viz.ui.shell.kept_prompts import is_address
from mta_viz.ui.shell.link import MAX_CHARACTERS, Box

HELP = """
**Rows are queries, columns are keys.** A cell is what a query token gives a key token at the chosen stage.

| | |
|---|---|
| raw | q·k/√d, before anything |
| kq | after the key-query convolution: each cell mixes scores of nearby queries and keys |
| mix | after heads are mixed |
| sm | softmax: rows sum to 1 |
| kq' | after the second key-query convolution, on the probabilities |
| final | the weights that multiply v; they may be negative and need not sum to 1 |

Hatched: masked, a key after its query. Red: positive, blue: negative, white: zero.
Magenta x: NaN or infinite.

**Keys** (outside text fields): ← → head, ↑ ↓ layer, Q W stage, N M query, J K key; Ctrl+Enter run.
Click a cell to select its query and key: beside the map stands the sum that makes its value, and a click on
a tap or a row of the table goes to its source, one stage earlier. The tabs under the map show the same head
in other ways. Find text to name a part of the prompt; named spans have a letter and bars along both axes.
Above 256 tokens the map at the left is an overview: draw a box in it to see the cells there exactly.
"""


EVERYTHING = "Save all figures of this page in one file, or the whole session; open a saved session."


@dataclass
class Slots:
    """The two places in the link's window that are filled when the page is drawn."""

    words: Any = None
    line: Any = None


def draw_address(text: str) -> None:
    """One line: the place in words, a copyable link, help."""
    with st.container(horizontal=True, vertical_alignment="center", key="address"):
        with st.container():
            st.text(text)
        with st.popover("Link", icon=":material/link:"):
            slots = state.part(Slots)
            slots.words, slots.line = st.empty(), st.empty()
            _fill(slots.words, slots.line)  # a rerun of a part of the page ends here
        if st.button("Everything", icon=":material/folder_zip:", key="everything", help=EVERYTHING):
            from mta_viz.ui.shell.session import everything

            everything()
        with st.popover("?", width="content"):
            st.markdown(HELP)


def fill_link() -> None:
    """The link again, once the whole page is drawn: only then are all of its settings known."""
    slots = state.part(Slots)
    if slots.words is not None:
        _fill(slots.words, slots.line)
        slots.words = slots.line = None


def _fill(words: Any, line: Any) -> None:
    words.caption(_what_is_in_it())
    line.code(link(), language=None)


def _what_is_in_it() -> str:
    """Whether the link holds the prompt, in words."""
    words = (
        "Copy with the button at the right of the line. It opens this page with its selection and settings"
    )
    held = state.session().link.prompt
    if not state.part(Box).run:
        return f"{words}; there is no prompt yet."
    if not held:
        return f"{words}, but not the prompt, which is too long and cannot be kept here: send it along."
    if "kept" in held:
        return (
            f"{words}. The prompt has more than {MAX_CHARACTERS:,} characters: this machine keeps it for its "
            "own links; to open the link elsewhere, send the prompt along."
        )
    if any(is_address(text) for text in state.parameters().values()):
        return f"{words} on this prompt. A long text in a field of this page is kept on this machine only."
    return f"{words} on this prompt."


def link() -> str:
    """The address of this page: prompt, selection, plan and settings."""
    return with_parameters(st.context.url or "", state.parameters())


def with_parameters(url: str, parameters: Mapping[str, str]) -> str:
    """The address with these parameters; with the slash after the host that Streamlit leaves out at times."""
    parts = urlsplit(url)
    path = parts.path or ("/" if parts.netloc else "")
    return urlunsplit(parts._replace(path=path, query=urlencode(parameters), fragment=""))

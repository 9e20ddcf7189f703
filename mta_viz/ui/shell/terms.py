"""The product's terms with a one-sentence definition each, shown where one points at the word.

Owns how a term is drawn; the definitions are data, `assets/terms.toml`.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from html import escape

import streamlit as st

from mta_viz.ui.shell.page import ASSETS

_MARKED = re.compile(r"\[([^\]]+)\]")


@cache
def definitions() -> Mapping[str, str]:
    """Every term with its definition, in the order in which one meets them."""
    return tomllib.loads((ASSETS / "terms.toml").read_text(encoding="utf-8"))


def help_of(*words: str) -> str:
    """The definitions as the `help` of a widget. Raises KeyError for a word that is no term."""
    return "\n\n".join(f"**{word}**: {definitions()[word]}" for word in words)


def term(word: str) -> str:
    """The word as HTML that shows its definition; its case is free. Raises KeyError as `help_of`."""
    title = escape(definitions()[word.lower()])
    return f'<abbr title="{title}" tabindex="0">{escape(word)}</abbr>'


def worded(text: str, **values: str) -> str:
    """A sentence as HTML: each `[word]` a term, each `{name}` its value, which is never markup."""
    bold = {name: f"<b><bdi>{escape(value)}</bdi></b>" for name, value in values.items()}
    return _MARKED.sub(lambda mark: term(mark[1]), text).format(**bold)


def draw_terms() -> None:
    """A button that lists all of them, for keyboards and touch as well."""
    with st.popover("Terms", help="Every term in one sentence; point at an underlined word to see its own."):
        st.markdown(help_of(*definitions()))

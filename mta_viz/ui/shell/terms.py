"""The product's terms with a one-sentence definition each, shown where one points at the word.

The definitions are data, `assets/terms.toml`. Owns how a term is drawn, alone and in a sentence.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from html import escape

import streamlit as st

from mta_viz.ui.shell.page import ASSETS


@cache
def texts(name: str = "terms") -> Mapping[str, str]:
    """The texts of a file in `assets`: of "terms" every term's definition, as one meets them."""
    return tomllib.loads((ASSETS / f"{name}.toml").read_text(encoding="utf-8"))


def help_of(*words: str) -> str:
    """The definitions as the `help` of a widget. Raises KeyError for a word that is no term."""
    return "\n\n".join(f"**{word}**: {texts()[word]}" for word in words)


def term(word: str) -> str:
    """The word as HTML that shows its definition; its case is free. Raises KeyError as `help_of`."""
    return f'<abbr title="{escape(texts()[word.lower()])}" tabindex="0">{escape(word)}</abbr>'


def worded(text: str, **values: str) -> str:
    """A sentence as HTML: each `[word]` a term, each `{name}` its value, which is never markup."""
    bold = {name: f"<b><bdi>{escape(value)}</bdi></b>" for name, value in values.items()}
    return re.sub(r"\[([^\]]+)\]", lambda mark: term(mark[1]), text).format(**bold)


def draw_terms() -> None:
    """A button that lists all of them, for keyboards and touch as well."""
    with st.popover("Terms"):
        st.markdown(help_of(*texts()))

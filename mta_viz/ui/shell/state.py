"""What a visitor has chosen: kept over page changes, mirrored to the URL.

Streamlit forgets a widget's value when its page is left, so every value lives under a stable key
and widgets only borrow it (`kept`). The view (checkpoint, layer, head, stage, query, key, where) is also
written to the address: `?ck=needle-mta&l=2&h=1&s=kq&q=503&k=211&w=pre`, always counted from 0. So are the
settings of the page that are not at their defaults, under their own names: `&tab=Heads`.

A setting's value as text in an address, and back: `true`, `4`, `all stages`, `pre,post`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from mta_viz.ui.shell import kept_prompts

MAX_CHARACTERS = 200
LARGEST = 2**53 - 1  # whole numbers a browser keeps
_WORDS = {True: "true", False: "false"}


def to_text(value: Any) -> str | None:
    """None for what has no text: nothing chosen, objects, and what is too long for an address."""
    text = _list_text(value) if isinstance(value, list | tuple) else _text(value)
    return text if text is not None and len(text) <= MAX_CHARACTERS else None


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return _WORDS[value]
    return str(value) if isinstance(value, int | float | str) else None


def _list_text(values: Sequence[Any]) -> str | None:
    parts = [_text(value) for value in values]
    if None in parts or any("," in part for part in parts if part):
        return None
    return ",".join(part for part in parts if part is not None)


def from_text(
    text: str, default: Any, options: Sequence[Any] | None = None, within: tuple[int, int] | None = None
) -> Any:
    """The value `text` stands for: one of `options` where there are some, else of the default's kind.

    Raises ValueError for what is none of the options, no such number, or outside `within`.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{text[:40]}... is too long")
    if isinstance(default, list):
        return [_one(part, options, "", None) for part in text.split(",") if part]
    return _one(text, options, default, within)


def _one(text: str, options: Sequence[Any] | None, default: Any, within: tuple[int, int] | None) -> Any:
    if options is not None:
        found = [option for option in options if to_text(option) == text]
        if not found:
            raise ValueError(f"{text} is not on offer here")
        return found[0]
    if isinstance(default, bool):
        if text not in _WORDS.values():
            raise ValueError(f"{text} is neither true nor false")
        return text == _WORDS[True]
    if not isinstance(default, int | float):
        return text
    value = type(default)(text)
    if not abs(value) <= LARGEST:
        raise ValueError(f"{text[:40]} is no number this page can take")
    if within is not None and not within[0] <= value <= within[1]:
        raise ValueError(f"{text} is not between {within[0]:,} and {within[1]:,}")
    return value


_VIEW = "view"


@dataclass(frozen=True)
class View:
    """The selection. None means: not chosen yet, the page takes its default. Counts from 0.

    `where` says which kernel of a head is meant: pre, post, head_pre or head_post.
    """

    checkpoint: str | None = None
    layer: int | None = None
    head: int | None = None
    stage: str | None = None
    query: int | None = None
    key: int | None = None
    where: str | None = None


_MAX_DIGITS = 9  # no prompt is longer; Python refuses to read thousands of digits
_URL_NAMES = {
    **{"checkpoint": "ck", "layer": "l", "head": "h", "stage": "s", "query": "q", "key": "k"},
    "where": "w",
}
# What an address says in another way, and what belongs to one computer.
_NO_SETTINGS = {
    *("checkpoint", "layer", "head", "stage", "query", "key", "prompt", "ids", "device"),
    *(f"export {name}" for name in ("format", "size", "colours", "dpi", "queries", "keys", "kind")),
}
_NOT_OURS = {"embed", "embed_options"}
_WHERE = ("pre", "post", "head_pre", "head_post")  # as analysis.kernels has it, which imports torch


def view() -> View:
    """The current selection; read from the URL on a session's first run."""
    if _VIEW not in st.session_state:
        st.session_state[_VIEW] = view_from_url(dict(st.query_params))
    return st.session_state[_VIEW]


def select(**changes: Any) -> View:
    """Change parts of the selection, e.g. `select(layer=2, head=1)`."""
    st.session_state[_VIEW] = replace(view(), **changes)
    return st.session_state[_VIEW]


def view_from_url(parameters: dict[str, str]) -> View:
    """A selection from URL parameters. What is no whole number of at least 0 is left out."""
    values: dict[str, Any] = {}
    for field, name in _URL_NAMES.items():
        text = parameters.get(name)
        if text and field in ("checkpoint", "stage"):
            values[field] = text
        elif field == "where":
            values[field] = text if text in _WHERE else None
        elif text and text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
            values[field] = int(text)
    return View(**values)


def url_from_view(current: View) -> dict[str, str]:
    """The URL parameters of a selection, without what is not chosen."""
    pairs = {name: getattr(current, field) for field, name in _URL_NAMES.items()}
    return {name: str(value) for name, value in pairs.items() if value is not None}


def parameters() -> dict[str, str]:
    """What the address holds: selection, prompt, plan, crop and spans, and the settings of this page."""
    parts = [url_from_view(view()), *(get(f"{part} in link", {}) for part in ("prompt", "plan", "places"))]
    taken = {name: text for part in parts for name, text in part.items()}
    return {name: text for name, text in _settings().items() if name not in taken} | taken


def _settings() -> dict[str, str]:
    """Those this page has drawn that are not at their defaults and have a text."""
    found = {}
    for name, default in st.session_state.get("settings", {}).items():
        text = _setting_text(name, get(name))
        if get(name) != default and text is not None:
            found[name] = text
    return found


def _setting_text(name: str, value: Any) -> str | None:
    """As it stands in an address; a long text by its id."""
    if not isinstance(value, str) or (len(value) <= MAX_CHARACTERS and not kept_prompts.is_address(value)):
        return to_text(value)
    texts = get("kept texts", {})
    if texts.get(name, ("",))[0] != value:  # once, not at every rerun
        texts = {**texts, name: (value, kept_prompts.address_of(value))}
        put("kept texts", texts)
    return texts[name][1]


def read_settings(known: Collection[str]) -> None:
    """Keep what the address says of settings, once a session; `kept` takes each when it is drawn.

    `known` are the names of parameters that are no settings.
    """
    put("opened with", dict(st.query_params))
    names = {*_URL_NAMES.values(), *_NOT_OURS, *known}
    put("linked settings", {name: text for name, text in st.query_params.items() if name not in names})


def left_out() -> tuple[str, ...]:
    """What of the address's settings could not be restored: not on this page, or not possible here."""
    linked: dict[str, str] = get("linked settings", {})
    return (*get("refused settings", ()), *(f"{name}={text[:60]}" for name, text in linked.items()))


def mirror() -> None:
    """Write it to the address bar, if it differs."""
    wanted = parameters()
    if dict(st.query_params) != wanted:
        st.query_params.from_dict(wanted)


def get(name: str, default: Any = None) -> Any:
    """A kept value."""
    return st.session_state.get(f"kept.{name}", default)


def put(name: str, value: Any) -> None:
    """Set a kept value; the widget that borrows it follows at its next drawing."""
    st.session_state[f"kept.{name}"] = value


def kept(
    name: str,
    default: Any,
    options: Sequence[Any] | None = None,
    then: Callable[[], None] | None = None,
    within: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Arguments that tie a widget to the kept value `name`: `st.toggle("x", **kept("x", False))`.

    A value outside `options` falls back to `default`; of a list those that are none go. `within` are the
    least and largest number an address may ask for. `then` runs after a change.
    """
    declare(name, default, options, within)
    value = get(name, default)
    if options is not None and isinstance(value, list):
        value = [one for one in value if one in options]
    elif options is not None and value not in options:
        value = default
    put(name, value)
    key, page = f"widget.{name}", st.session_state.get("page")
    # On another page it is another widget without a value, though the old one's is still found
    # under its key. On the same page, setting an equal value would erase half-typed text.
    if st.session_state.get(key) != value or st.session_state.get(f"page of {name}") != page:
        st.session_state[key], st.session_state[f"page of {name}"] = value, page
    return {"key": key, "on_change": _copy, "args": (name, then)}


def declare(
    name: str, default: Any, options: Sequence[Any] | None = None, within: tuple[int, int] | None = None
) -> None:
    """Say that the page has this setting: it goes into the address, and is taken from the one opened."""
    if name in _NO_SETTINGS:
        return
    st.session_state.setdefault("settings", {})[name] = default
    text = get("linked settings", {}).pop(name, None)
    if text is None:
        return
    try:
        long = isinstance(default, str) and options is None and kept_prompts.is_address(text)
        put(name, kept_prompts.text_at(text) if long else from_text(text, default, options, within))
    except ValueError as error:
        put("refused settings", (*get("refused settings", ()), f"{name}: {str(error)[:100]}"))


def enter(page: str) -> None:
    """Say which page is drawn; before any `kept`."""
    st.session_state.update(page=page, settings={}, shown={})


def _copy(name: str, then: Callable[[], None] | None) -> None:
    put(name, st.session_state[f"widget.{name}"])
    if then is not None:
        then()

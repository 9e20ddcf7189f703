"""What a visitor's session holds: one `Session`, typed, reached by `session()`; nothing else keeps a copy.

Three kinds of things live in it. The `Selection` (checkpoint, layer, head, stage, query, key, place), which
widgets read and write through `selection` and `select`. The values of `Setting`s, each declared once where it
is used; Streamlit forgets a widget's value when its page is left, so widgets only borrow it. And parts: small
dataclasses of a room's own, reached by `part(Kind)`.

The selection is mirrored to the address, `?ck=needle-mta&l=2&h=1&s=kq&q=503&k=211&w=pre`, always counted from
0, and so are the page's settings that are not at their defaults, under their own names: `&tab=Heads`.
"""

import math
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from mta_viz.config import PARAMETERS
from mta_viz.ui.shell import kept_prompts

T = TypeVar("T")
P = TypeVar("P")
Limits = tuple[int, int]
_KEY = "session"
_MAX_DIGITS = 9  # no prompt is longer; Python refuses to read thousands of digits
_URL_NAMES = {
    **{"checkpoint": "ck", "layer": "l", "head": "h", "stage": "s", "query": "q", "key": "k"},
    "place": "w",
}
MAX_CHARACTERS = 200
_TELL_SECONDS = 2.0
LARGEST = 2**53 - 1  # whole numbers a browser keeps


def to_text(value: Any) -> str | None:
    """None for what has no text: nothing chosen, objects, and what is too long for an address."""
    several = isinstance(value, list | tuple)
    values = value if several else [value]
    if not all(isinstance(part, int | float | str) for part in values):
        return None
    texts = [str(part).lower() if isinstance(part, bool) else str(part) for part in values]
    if several and any("," in text for text in texts):
        return None
    text = ",".join(texts)
    return text if len(text) <= MAX_CHARACTERS else None


def from_text(
    text: str, default: Any, options: Sequence[Any] | None = None, within: Limits | None = None
) -> Any:
    """What `text` stands for: one of `options`, or of the default's kind and `within`; else ValueError."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{text[:40]}... is too long")
    if isinstance(default, list):
        return [_single(part, options, "", None) for part in text.split(",") if part]
    return _single(text, options, default, within)


def _single(text: str, options: Sequence[Any] | None, default: Any, within: Limits | None) -> Any:
    if options is not None:
        for option in options:
            if to_text(option) == text:
                return option
        raise ValueError(f"{text} is not on offer here")
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError(f"{text} is neither true nor false")
        return text == "true"
    if not isinstance(default, int | float):
        return text
    value = type(default)(text)
    if not abs(value) <= LARGEST:
        raise ValueError(f"{text[:40]} is no number this page can take")
    if within is not None and not within[0] <= value <= within[1]:
        raise ValueError(f"{text} is not between {within[0]:,} and {within[1]:,}")
    return value


@dataclass(frozen=True)
class Selection:
    """What is looked at, counted from 0; None: the page takes its default. `place` is a kernel's."""

    checkpoint: str | None = None
    layer: int | None = None
    head: int | None = None
    stage: str | None = None
    query: int | None = None
    key: int | None = None
    place: str | None = None


@dataclass
class Link:
    """The address a session was opened by: its parameters, its settings not taken yet, what was refused.

    `prompt`, `plan` and `places` are what those parts add to the page's own address.
    """

    opened_with: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    prompt: dict[str, str] = field(default_factory=dict)
    plan: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


@dataclass
class Session:
    """One visitor's. `values`: of chosen settings by name, `usual`: of others, `drawn`: the page's defaults.

    `borrowed` and `before` name the widgets of this run of the page and of the one before, `turns` counts how
    often each got a value that its visitor did not give it, `shown` is what each key's widget shows,
    `called` each name's value and its word, `sent` when that was first sent; `restoring`: this run was asked
    for by the browser's Back or Forward, and the address says what is shown.
    """

    selection: Selection = field(default_factory=Selection)
    page: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    usual: dict[str, Any] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    borrowed: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    restoring: bool = False
    turns: dict[str, int] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    called: dict[str, tuple[Any, str]] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    link: Link = field(default_factory=Link)
    parts: dict[type, Any] = field(default_factory=dict)


def session() -> Session:
    """This visitor's session; its selection is read from the address at first."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = Session(selection_from_url(dict(st.query_params)))
    return st.session_state[_KEY]


def part(kind: type[P]) -> P:
    """This session's dataclass of a room, made with its defaults at first."""
    return session().parts.setdefault(kind, kind())


def begin_anew(parameters: dict[str, str]) -> None:
    """Forget everything this visitor chose, half-typed text included; begin as at this address."""
    for name in [name for name in st.session_state if str(name).startswith("widget.")]:
        del st.session_state[name]
    st.session_state[_KEY] = Session(selection_from_url(parameters))


def selection() -> Selection:
    """What is looked at now."""
    return session().selection


def select(**changes: Any) -> Selection:
    """Change parts of the selection, e.g. `select(layer=2, head=1)`."""
    session().selection = replace(selection(), **changes)
    return selection()


def selection_from_url(parameters: dict[str, str]) -> Selection:
    """A selection from URL parameters. What is no whole number of at least 0 is left out."""
    values: dict[str, Any] = {}
    for field_name, name in _URL_NAMES.items():
        text = parameters.get(name)
        if text and field_name in ("checkpoint", "stage"):
            values[field_name] = text
        elif field_name == "place":
            values[field_name] = text if text in PARAMETERS else None
        elif text and text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
            values[field_name] = int(text)
    return Selection(**values)


def url_from_selection(current: Selection) -> dict[str, str]:
    """The URL parameters of a selection, without what is not chosen."""
    texts = {name: getattr(current, field_name) for field_name, name in _URL_NAMES.items()}
    return {name: str(value) for name, value in texts.items() if value is not None}


@dataclass
class Wanted:
    """The measurements that take a while and that the visitor asked for, by their keys."""

    keys: set[Hashable] = field(default_factory=set)


class _Last(dict[str, Hashable]):
    """What settings were last chosen for, by a name."""


def is_another(name: str, now: Hashable) -> bool:
    """Whether settings were chosen for something else than `now`; from here on they are of that."""
    last = part(_Last)
    before, last[name] = last.get(name, now), now
    return before != now


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting of a page, declared once: `SCALE = Setting("scale", "this map")`.

    Its name is that of its parameter in the address, unless it is `private`: the same thing said in another
    way there, or something of one computer.
    """

    name: str
    default: T
    private: bool = False

    @property
    def value(self) -> T:
        """As it is now."""
        return session().values.get(self.name, session().usual.get(self.name, self.default))

    def put(self, value: T) -> None:
        """Set it; the widget that borrows it follows at its next drawing."""
        session().values[self.name] = value

    def declare(
        self, default: T | None = None, options: Sequence[T] | None = None, within: Limits | None = None
    ) -> T:
        """Say that the page has it: it goes into the address, and is taken from the one that was opened.

        `default`: of this page. `within`: the least and largest number an address may ask for.
        """
        usual, current = self.default if default is None else default, session()
        if self.private:
            return current.values.get(self.name, usual)
        if current.restoring and self.name not in current.drawn:  # what an address leaves out is as usual
            current.values.pop(self.name, None)
        current.drawn[self.name] = usual
        if (text := current.link.settings.pop(self.name, None)) is not None:
            try:
                long = isinstance(usual, str) and options is None and kept_prompts.is_address(text)
                value = kept_prompts.text_at(text) if long else from_text(text, usual, options, within)
                current.values[self.name] = value
            except ValueError as error:
                current.link.refused.append(f"{self.name}: {str(error)[:100]}")
        return current.values.get(self.name, usual)

    def widget(
        self,
        options: Sequence[T] | None = None,
        *,
        default: T | None = None,
        within: Limits | None = None,
        words: Callable[[Any], str] = str,
    ) -> dict[str, Any]:
        """Arguments that tie a widget to it, `**HIDE.widget()`; its default for none of `options`."""
        value: Any = self.declare(default, options, within)
        if options is not None and isinstance(value, list):
            value = [item for item in value if item in options]
        elif options is not None and value not in options:
            value = self.default if default is None else default
            session().values.pop(self.name, None)
        (session().values if self.name in session().values else session().usual)[self.name] = value
        key = borrow(self.name, value, str([*map(words, value)] if isinstance(value, list) else words(value)))
        # also for a browser that has the widget later than the value
        shown: dict[str, Any] = {"value": value}
        if options is not None:
            shown = {"default": value} if isinstance(value, list) else {"index": options.index(value)}
        return {"key": key, "on_change": on_choice(key, self.put), **shown}


def widget_value(key: str) -> Any:
    """What the widget of this key holds now; None where it has not been drawn."""
    return st.session_state.get(key)


def set_widget(key: str, value: Any) -> None:
    """Have the widget of this key show `value` when it is drawn next."""
    st.session_state[key] = value


def borrow(name: str, value: Any, called: str = "") -> str:
    """The key of the widget `name`, which shows `value` at its next drawing.

    It takes the value as its own default too: a browser still loading what draws it sees the last run alone.
    A browser forgets a widget that a run did not draw, though its value is still there under its key: it is
    told anew. Setting an equal value at every run would erase half-typed text. A widget whose value is not
    the visitor's is another one, under a key of its own: until a browser hears of the new value it answers
    with the old one under the old key, which changes nothing, while what a visitor chooses there does. So is
    one whose value is `called` otherwise now: a browser keeps the old word. A value is sent again for a
    moment: a busy browser draws the second of two runs alone.
    """
    current = session()
    turn = current.turns.get(name, 0)
    key = _widget_key(name, turn)
    drawn = name in current.borrowed | current.before
    before, current.called[name] = current.called.get(name, (value, called)), (value, called)
    renamed = before != (value, called) and before[0] == value
    if drawn and key in st.session_state and (renamed or st.session_state[key] != value):
        turn = current.turns[name] = turn + 1
        key = _widget_key(name, turn)
    now = time.monotonic()
    if not drawn or key not in st.session_state:
        current.sent[key] = now
    if now < current.sent.get(key, -math.inf) + _TELL_SECONDS:
        st.session_state[key] = value
    current.borrowed.add(name)
    current.shown[key] = value
    return key


def on_choice(key: str, choose: Callable[[Any], object]) -> Callable[[], None]:
    """What a borrowed widget calls at a change: `choose` with its value, if that is not the one it showed."""

    def act() -> None:
        value, shown = st.session_state.get(key), session().shown
        if value != shown.get(key):
            shown[key] = value
            session().sent.pop(key, None)  # the browser knows it
            choose(value)

    return act


def _widget_key(name: str, turn: int) -> str:
    return f"widget.{name}.{turn}" if turn else f"widget.{name}"


def parameters() -> dict[str, str]:
    """What the address holds: selection, prompt, plan, crop and spans, and the settings of this page."""
    current, link = session(), session().link
    settings = {
        name: _setting_text(name, value)
        for name, default in current.drawn.items()
        if (value := current.values.get(name, default)) != default
    }
    texts = {name: text for name, text in settings.items() if text is not None}
    return texts | url_from_selection(current.selection) | link.prompt | link.plan | link.places


def _setting_text(name: str, value: Any) -> str | None:
    if not isinstance(value, str) or (len(value) <= MAX_CHARACTERS and not kept_prompts.is_address(value)):
        return to_text(value)
    return part(kept_prompts.Own).address(name, value)


def read_settings(known: Collection[str]) -> None:
    """Keep what the address says of settings until they are drawn; `known` parameters are no settings."""
    link, names = session().link, {*_URL_NAMES.values(), "embed", "embed_options", *known}
    link.opened_with = dict(st.query_params)
    link.settings = {name: text for name, text in st.query_params.items() if name not in names}


def retire(name: str, text: str) -> None:
    """Take what an older address says of a setting as done: the page shows it anyway now."""
    settings = session().link.settings
    if settings.get(name) == text:
        del settings[name]


def left_out() -> tuple[str, ...]:
    """What of the address's settings could not be restored: not on this page, or not possible here."""
    link = session().link
    return (*link.refused, *(f"{name}={text[:60]}" for name, text in link.settings.items()))


def mirror() -> None:
    """Write it to the address bar, if it differs."""
    if dict(st.query_params) != (wanted := parameters()):
        st.query_params.from_dict(wanted)


def enter(page: str) -> bool:
    """Say which page is drawn, before any setting; whether it is another one than before.

    After Back or Forward the selection is the address's, and so are the settings as they are declared.
    """
    current = session()
    changed = current.page not in ("", page)
    current.before, current.borrowed = set() if changed else current.borrowed, set()
    current.page, current.drawn = page, {}
    current.restoring = went_back()
    if current.restoring:
        current.selection, current.link = selection_from_url(dict(st.query_params)), Link()
    return changed


def went_back() -> bool:
    """Whether this run was asked for by the browser's Back or Forward."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def leave() -> None:
    """Say that the page is drawn: the address follows from now on."""
    mirror()
    session().restoring = False

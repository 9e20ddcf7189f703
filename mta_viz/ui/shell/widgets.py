"""Small widgets every page uses: text that is never markup, labels, terms, charts, fields, tables, files.

Tokens and messages may hold anything a user can type, so nothing reaches Streamlit's markdown without
`plain`. Labels of layers and heads are counted from 0 or from 1 as the visitor chose. A term is shown with
its definition where one points at the word; the definitions are data, `assets/terms.toml`. Fields of forms
are tied to a setting. Files are handed over in the browser.
"""

import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from html import escape
from itertools import groupby
from typing import Any, TypeVar

import streamlit as st

from mta_viz.errors import PromptError
from mta_viz.plots.theme import Figure
from mta_viz.printed import printable, safe
from mta_viz.tokenizers.base import CUT_PLACES, CutPlace
from mta_viz.ui.shell import state
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.uploads import upload
from mta_viz.version import ASSETS

_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$^=&])")
_CODES = re.compile(r":(?=\S)|@(?=\w)|www(?=\.)", re.IGNORECASE)  # emoji, icons, addresses
_RIGHT_TO_LEFT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]+"
_SUCH_WORDS = re.compile(f"{_RIGHT_TO_LEFT}(?: {_RIGHT_TO_LEFT})*")
_ENDS = [re.compile(end) for end in (r"(?<=[.?!]) (?=\S)", r"; | \(", r": ")]  # of a line's first part
LINE, HALF_LINE = 100, 50  # characters: a page of a window of 1280 px, and half of one beside a button
MIME_TYPES = {
    **{"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf", "html": "text/html"},
    **{"csv": "text/csv", "json": "application/json", "zip": "application/zip"},
}
MAKING_SECONDS = 180.0  # that a browser waits for a file
CHART_CONFIG = {"displaylogo": False, "displayModeBar": False, "scrollZoom": False}


def layer_list(layers: Sequence[int], numbering: int) -> str:
    """`1, 3, 5–9`."""
    runs = [[layer for _, layer in run] for _, run in groupby(enumerate(layers), lambda at: at[1] - at[0])]
    ends = [(run[0] + numbering, run[-1] + numbering) for run in runs]
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in ends)


def isolated(text: str) -> str:
    """Text as it is, safe: words from right to left isolated, or they would move the numbers after them."""
    return _SUCH_WORDS.sub("\u2068\\g<0>\u2069", safe(text))


def plain(text: str) -> str:
    """Text as markdown that shows exactly the text: no markup, no `:emoji:`, line breaks kept."""
    joined = _CODES.sub("\\g<0>\u2060", isolated(text))  # a word joiner, invisible, breaks the code
    return _MARKUP.sub(r"\\\1", joined).replace("\n", "  \n")


def caption(text: str, most: int = LINE, whole: str = "") -> None:
    """A grey line; of more than `most` characters its first part. Behind its sign all of it, and `whole`."""
    first, behind = text, text if whole in text else f"{text}\n\n{whole}"
    for end in _ENDS:
        first = first if len(first) <= most else end.split(first, maxsplit=1)[0]
    st.caption(plain(first), help=None if behind == first else plain(behind))


def lines(text: str, key: str) -> None:
    """Lines of equally wide letters; `st.code` would load a syntax highlighter before the map is drawn."""
    with st.container(key=f"mono-{key}"):
        st.text(isolated(text))


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

    `square`: in a container whose key begins with `beside-`, which style.css shares out. `name` keys the
    widget: another where an old choice must not be kept.
    """
    key = f"chart.{name}"
    choosing: dict[str, Any] = {}
    if then is not None:
        choosing = {"selection_mode": modes, "on_select": lambda: then(key)}
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


def icon_button(words: str, icon: str, key: str, act: Callable[..., None], disabled: bool = False) -> None:
    """A button of which style.css hides the words from the eye alone; a pointer over it shows them."""
    look: dict[str, Any] = {"icon": f":material/{icon}:", "help": words, "disabled": disabled}
    st.button(words, key=f"icon.{key}", on_click=act, **look)


class Presses(set[str]):
    """Keys of buttons that were pressed and not acted on yet: a run may be cut short before it comes to one.

    A run of the page that comes to its end leaves none: what is not there any more is not pressed later.
    """


def pressed(label: str, key: str, **look: Any) -> bool:
    """A button, and whether it was pressed; to be acted on at once, before anything else is drawn."""
    press_button(label, key, **look)
    return take_press(key)


def press_button(label: str, key: str, **look: Any) -> None:
    """The button alone, where `take_press` stands elsewhere."""
    st.button(label, key=key, on_click=state.part(Presses).add, args=(key,), **look)


def take_press(key: str) -> bool:
    """Whether the button was pressed since this was asked."""
    presses = state.part(Presses)
    there = key in presses
    presses.discard(key)
    return there


def offer_cuts(cut: Callable[[CutPlace], None]) -> None:
    """Three buttons, each of which makes the prompt fit in another way."""
    with st.container(horizontal=True):
        for place in CUT_PLACES:
            words = f"Cut {'in the middle' if place == 'middle' else f'at the {place}'}"
            st.button(words, key=f"cut.{place}", on_click=cut, args=(place,))


def selection_on(widget: str) -> dict[str, Any]:
    """What is chosen on a chart or in a table, as Streamlit has it."""
    return dict(dict(state.widget_value(widget) or {}).get("selection") or {})


def picked(widget: str) -> int | None:
    """The row chosen in a table, None when the choice was taken back."""
    rows = selection_on(widget).get("rows")
    return int(rows[0]) if rows else None


class TokenizerFiles(dict[str, str]):
    """The tokenizer file given for each model, by the model's path."""


class Bases(dict[str, str]):
    """Where the base of each adapter lies, as the visitor said, by the adapter's path."""


@dataclass
class Making:
    """The file of a button, as it is made beside the page; `failure`: why it could not be."""

    ended: threading.Event = field(default_factory=threading.Event)
    failure: str = ""

    def make(self, content: Callable[[], str | bytes]) -> str | bytes:
        """What `content` gives, which may raise."""
        self.failure = ""
        try:
            return content()
        except Exception as error:
            self.failure = str(error) or type(error).__name__
            raise
        finally:
            self.ended.set()


class Makings(dict[str, Making]):
    """Of a session, by the button's key and the file's name."""


def file_button(label: str, content: Callable[[], str | bytes], name: str, key: str, **look: Any) -> None:
    """A button that saves a file, made when it is asked for; where that fails it says why.

    Streamlit itself says for some seconds that it failed: it runs `content` beside the page.
    """
    making = state.part(Makings).setdefault(f"{key} {name}", Making())
    suffix = name.rpartition(".")[2]
    look["mime"] = MIME_TYPES.get(suffix, "application/octet-stream")
    asked, place = st.download_button(label, partial(making.make, content), name, key=key, **look), st.empty()
    until = time.monotonic() + MAKING_SECONDS
    while asked and not making.ended.wait(0.1) and time.monotonic() < until:
        place.caption("Making the file ...")  # and ends here, where something else is clicked
    making.ended.clear()
    if asked and making.failure:
        place.error(plain(f"{name} could not be made: {making.failure}"))
    elif asked:
        place.empty()


@dataclass
class Window:
    """The window over the page: the key of its button, what was made in it, whether the page has drawn it.

    Streamlit leaves it there when a part of the page runs alone, also where that does not draw it.
    """

    key: str = ""
    made: Any = None
    drawn: bool = False


def window(title: str, **look: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A function that draws a window, as `st.dialog` makes it."""
    return st.dialog(title, on_dismiss=close_window, **look)


def window_button(label: str, key: str, draw: Callable[[], object], **look: Any) -> None:
    """A button that opens the window which `draw` draws.

    It is drawn by every run of the page until it is closed: the run that a click asks for may be cut short,
    by other work that is through, and one that comes later would take the window away.
    """
    st.button(label, key=key, on_click=_open_window, args=(key,), **look)
    open_now = state.part(Window)
    if open_now.key == key:
        open_now.drawn = True
        draw()


def _open_window(key: str) -> None:
    state.session().parts[Window] = Window(key)


def close_window() -> None:
    """It is not drawn by the next run of the page."""
    state.session().parts.pop(Window, None)


@dataclass
class TextFile:
    """One place for a text file: the page it is on, what is there, and how often its uploader began anew."""

    page: str = ""
    content: tuple[str, str] | None = None
    turn: int = 0


@dataclass
class TextFiles:
    """Those of a session by their places; `brought` came with an opened session and wait to be drawn."""

    at: dict[str, TextFile] = field(default_factory=dict)
    brought: dict[str, tuple[str, str]] = field(default_factory=dict)


def text_file(name: str, label: str, types: list[str], megabytes: int, back: str) -> tuple[str, str] | None:
    """A place for a file of UTF-8 text; its name and content, kept under `name` over page changes.

    `back` is the button that lets go of it. Raises PromptError for what is no text; what was there stays.
    """
    here = state.part(TextFiles)
    file, brought = here.at.setdefault(name, TextFile()), here.brought.pop(name, None)
    file.page = state.session().page
    if brought is not None and len(brought[1].encode()) <= megabytes * 2**20:
        file.content = brought
    given = upload(label, types, megabytes, f"widget.{name}.{file.turn}")
    if given is not None:
        file.content = given.name, decoded(given.name, given.getvalue(), megabytes)
    if file.content is not None:
        st.text(f"{printable(file.content[0])}: {len(file.content[1]):,} characters")
        anew = TextFile(turn=file.turn + 1)  # a new uploader as well, since the old one still holds the file
        st.button(back, key=f"forget.{name}", on_click=here.at.__setitem__, args=(name, anew))
    return file.content


def bring(files: Mapping[str, tuple[str, str]], places: Iterable[str]) -> None:
    """Have these files at their places when they are drawn; of all `places` the uploaders begin anew."""
    here = state.part(TextFiles)
    here.brought = dict(files)
    for name in (*places, *files):  # the old uploader still holds its file
        here.at[name] = TextFile(turn=time.monotonic_ns())


def files_of_page() -> dict[str, tuple[str, str]]:
    """Name and content of the files of this page, by their places."""
    page, at = state.session().page, state.part(TextFiles).at.items()
    return {name: file.content for name, file in at if file.page == page and file.content is not None}


def decoded(name: str, content: bytes, megabytes: int) -> str:
    """The text of a file. Raises PromptError for one that is none, or too large: browsers need not look."""
    if len(content) > megabytes * 2**20:
        raise PromptError(
            f"{printable(name)} has {len(content) / 2**20:,.1f} MB; at most {megabytes} MB are taken"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{printable(name)} is not UTF-8 text; save it as UTF-8, or choose another"
        ) from error


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
    if not isinstance(options, Mapping):
        return {"options": names, **setting.widget(names, default=default)}
    words = options.__getitem__
    return {"options": names, "format_func": words, **setting.widget(names, default=default, words=words)}


def number(
    label: str, setting: Setting[int], within: tuple[int, int], *, default: int | None = None, **look: Any
) -> int:
    """A whole number, least and largest included."""
    look |= setting.widget(default=default, within=within)
    return int(st.number_input(label, min_value=within[0], max_value=within[1], **look))


def explain(line: str, more: str) -> None:
    """A grey line, and behind its sign the rest of what it means."""
    st.caption(plain(line), help=plain(more))


def row_table(key: str, rows: Any, items: Sequence[T], choose: Callable[[T], object], **look: Any) -> None:
    """A table of what Streamlit takes for one; a click on a row calls `choose` with its item."""

    def take() -> None:
        at = picked(key)
        if at is not None and 0 <= at < len(items):
            choose(items[at])

    st.dataframe(rows, hide_index=True, key=key, on_select=take, selection_mode="single-row", **look)


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

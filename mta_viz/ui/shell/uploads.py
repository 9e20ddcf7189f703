"""Files handed over in the browser: kept in the temporary folder for readers, or as text in the session."""

import hashlib
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import streamlit as st

from mta_viz.errors import PromptError
from mta_viz.ui.shell import state


@dataclass
class TokenizerFiles:
    """The tokenizer file given for each model, by the model's path."""

    of: dict[str, str] = field(default_factory=dict)


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


def text_at(name: str) -> tuple[str, str] | None:
    """Name and content of the file at a place, None without one."""
    file = state.part(TextFiles).at.get(name)
    return None if file is None else file.content


def keep_upload(name: str, content: bytes) -> Path:
    """Where the uploaded bytes now lie, under their own file name; equal bytes share a place.

    Nobody else on the machine can read or write there, and it is gone when the process ends.
    """
    folder = Path(_own_folder().name) / hashlib.sha256(content).hexdigest()
    folder.mkdir(exist_ok=True)
    file = folder / Path(name).name
    if not file.exists():
        file.write_bytes(content)
    return file


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mta-viz-")


def text_file(name: str, label: str, types: list[str], megabytes: int, back: str) -> tuple[str, str] | None:
    """A place for a file of UTF-8 text; its name and content, kept under `name` over page changes.

    `back` is the button that lets go of it. Raises PromptError for a file that is no text; what was
    there before stays.
    """
    file = state.part(TextFiles).at.setdefault(name, TextFile())
    file.page = state.session().page
    brought = state.part(TextFiles).brought.pop(name, None)
    if brought is not None and len(brought[1].encode()) <= megabytes * 2**20:
        file.content = brought
    upload = st.file_uploader(label, type=types, max_upload_size=megabytes, key=f"widget.{name}.{file.turn}")
    if upload is not None:
        file.content = upload.name, decoded(upload.name, upload.getvalue(), megabytes)
    if file.content is not None:
        st.text(f"{file.content[0]}: {len(file.content[1]):,} characters")
        st.button(back, key=f"forget.{name}", on_click=_forget, args=(file,))
    return file.content


def bring(files: Mapping[str, tuple[str, str]], places: Iterable[str]) -> None:
    """Have these files at their places when they are drawn; of all `places` the uploaders begin anew."""
    here = state.part(TextFiles)
    here.brought = dict(files)
    for name in (*places, *files):  # the old uploader still holds its file
        here.at[name] = TextFile(turn=time.monotonic_ns())


def files_of_page() -> dict[str, tuple[str, str]]:
    """Name and content of the files of this page, by their places."""
    page, files = state.session().page, state.part(TextFiles).at
    return {
        name: file.content for name, file in files.items() if file.page == page and file.content is not None
    }


def decoded(name: str, content: bytes, megabytes: int) -> str:
    """The text of a file. Raises PromptError for one that is none, or too large: browsers need not look."""
    if len(content) > megabytes * 2**20:
        raise PromptError(f"{name} has {len(content) / 2**20:,.1f} MB; at most {megabytes} MB are taken")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 text; save it as UTF-8, or choose another") from error


def _forget(file: TextFile) -> None:
    """A new uploader as well, since the old one still holds the file."""
    file.content, file.turn = None, file.turn + 1

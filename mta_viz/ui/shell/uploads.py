"""Files handed over in the browser: kept in the temporary folder for readers, or as text in the session."""

import hashlib
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import streamlit as st

from mta_viz.errors import PromptError
from mta_viz.ui.shell import state


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
    turn, here = f"{name} turn", state.get("files", {})
    state.put("files", {**here, name: st.session_state.get("page")})
    _take_carried(name, megabytes)
    upload = st.file_uploader(
        label, type=types, max_upload_size=megabytes, key=f"widget.{name}.{state.get(turn, 0)}"
    )
    if upload is not None:
        state.put(name, (upload.name, decoded(upload.name, upload.getvalue(), megabytes)))
    kept = state.get(name)
    if kept is not None:
        st.text(f"{kept[0]}: {len(kept[1]):,} characters")
        st.button(back, key=f"forget.{name}", on_click=_forget, args=(name, turn))
    return kept


def _take_carried(name: str, megabytes: int) -> None:
    """The file an opened session brought for this place, once."""
    brought = state.get("session files", {}).pop(name, None)
    if brought is not None and len(brought[1].encode()) <= megabytes * 2**20:
        state.put(name, brought)


def bring(files: Mapping[str, tuple[str, str]], places: Iterable[str]) -> None:
    """Have these files at their places when they are drawn; of all `places` the uploaders begin anew."""
    state.put("session files", dict(files))
    for name in (*places, *files):
        state.put(f"{name} turn", time.monotonic_ns())  # the old uploader still holds its file


def files_of_page() -> dict[str, tuple[str, str]]:
    """Name and content of the files of this page, by their places."""
    page = st.session_state.get("page")
    names = [name for name, of in state.get("files", {}).items() if of == page]
    return {name: state.get(name) for name in names if state.get(name) is not None}


def decoded(name: str, content: bytes, megabytes: int) -> str:
    """The text of a file. Raises PromptError for one that is none, or too large: browsers need not look."""
    if len(content) > megabytes * 2**20:
        raise PromptError(f"{name} has {len(content) / 2**20:,.1f} MB; at most {megabytes} MB are taken")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 text; save it as UTF-8, or choose another") from error


def _forget(name: str, turn: str) -> None:
    """A new uploader as well, since the old one still holds the file."""
    state.put(name, None)
    state.put(turn, state.get(turn, 0) + 1)

"""Files handed over in the browser: kept in the temporary folder for readers, or as text in the session."""

import hashlib
import tempfile
from pathlib import Path

import streamlit as st

from mta_viz.errors import PromptError
from mta_viz.ui import state


def keep_upload(name: str, content: bytes) -> Path:
    """Where the uploaded bytes now lie, under their own file name; equal bytes share a place."""
    folder = Path(tempfile.gettempdir()) / f"mta-viz-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    file = folder / Path(name).name
    if not file.exists():
        file.write_bytes(content)
    return file


def text_file(name: str, label: str, types: list[str], megabytes: int, back: str) -> tuple[str, str] | None:
    """A place for a file of UTF-8 text; its name and content, kept under `name` over page changes.

    `back` is the button that lets go of it. Raises PromptError for a file that is no text; what was
    there before stays.
    """
    turn = f"{name} turn"
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

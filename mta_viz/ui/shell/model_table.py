"""One table of what the folders with models hold, the newest first, to search and to choose from.

And a place for a model of one's own, a file or a ZIP, which stands in the table of this session.
"""

import hashlib
import shutil
import time
import zipfile
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import streamlit as st

from mta_viz.checkpoint.reading import Found
from mta_viz.errors import MtaVizError
from mta_viz.exporting.saved import DAMAGED_ZIP
from mta_viz.printed import printable, size_text
from mta_viz.ui.shell import cache, models, state, uploads
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.widgets import caption, picked, plain, window

TABLE, SEARCH = "models.table", "models.search"
MOST_MB, MOST_FILES = 200, 200  # of an upload, packed and unpacked
FILES = ("zip", "gguf", "safetensors")


def row_of(found: Found) -> dict[str, Any]:
    """A checkpoint's line in the table; what a broken one has none of is empty."""
    summary = found.summary
    row = {"model": found.name, "changed": cache.changed(found.path) // 10**9, "kind": "cannot be read"}
    if summary is not None:
        row |= {
            "kind": summary.format,
            "variant": VARIANTS[summary.config.variant],
            "step": "" if summary.step is None else str(summary.step),
            "size": size_text(summary.n_bytes),
            "tokenizer": summary.tokenizer_name or "none",
        }
    return {**row, "why not": printable(found.problem or ""), "path": printable(str(found.path))}


def rows_of(found: tuple[Found, ...], search: str) -> list[tuple[Found, dict[str, Any]]]:
    """The lines that hold every word of `search`, the newest first."""
    rows = [(model, row_of(model)) for model in found]
    words = search.lower().split()
    holding = [
        row for row in rows if all(word in " ".join(map(str, row[1].values())).lower() for word in words)
    ]
    return sorted(holding, key=lambda row: -row[1]["changed"])


@window("Models", width="large")
def draw_models() -> None:
    """The table; a click on a line chooses its model."""
    found = cache.discovery(tuple(map(str, models.roots()))).found
    rows = rows_of(
        found, st.text_input("Search", key=SEARCH, placeholder="name, kind, tokenizer, folder ...")
    )
    caption(f"{len(rows)} of {len(found)} models; a click on a line chooses it.")
    shown = [
        {**row, "changed": time.strftime("%Y-%m-%d %H:%M", time.localtime(row["changed"]))} for _, row in rows
    ]
    look: dict[str, Any] = {"hide_index": True, "on_select": "rerun", "selection_mode": "single-row"}
    st.dataframe(shown, key=f"{TABLE}.{len(rows)}", **look)
    at = picked(f"{TABLE}.{len(rows)}")
    if at is not None and at < len(rows):
        choose(rows[at][0], found)
    _draw_upload()


def choose(model: Found, found: tuple[Found, ...]) -> None:
    """Go on with this model, on another head and place."""
    name = models.identity(model, [other.name for other in found])
    if name != state.selection().checkpoint:
        state.session().selection = state.Selection(checkpoint=name)
    st.rerun()


def _draw_upload() -> None:
    given = uploads.upload(
        f"A model of your own: a .gguf or .safetensors file, or a .zip of a folder (at most {MOST_MB} MB)",
        FILES,
        MOST_MB,
        "models.upload",
    )
    if given is None:
        return
    try:
        folder = keep_model(given.name, given.getvalue())
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    own = state.part(models.Uploaded)
    if str(folder) not in own:
        own.append(str(folder))
        st.rerun()
    caption(f"{given.name} stands in the table for this session.")


def keep_model(name: str, content: bytes) -> Path:
    """The folder an uploaded model lies in. Raises MtaVizError for a damaged or too large one."""
    if not name.lower().endswith(".zip"):
        return uploads.keep_upload(name, content).parent
    uploads.checked_name(name)
    folder = uploads.folder_of(hashlib.sha256(content).hexdigest())
    if not folder.is_dir():
        try:
            _unpack(content, folder)
        except DAMAGED_ZIP as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise MtaVizError(f"{printable(name)} cannot be unpacked: {printable(error)}") from error
    return folder


def _unpack(content: bytes, folder: Path) -> None:
    """Regular files alone, inside the folder, no more bytes than they say. Raises ValueError otherwise."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = {_place(info): info for info in archive.infolist() if not info.is_dir()}
        size = sum(info.file_size for info in members.values())
        if size > MOST_MB * 2**20 or len(members) > MOST_FILES:
            raise ValueError(
                f"it has {len(members):,} files of {size_text(size)}, more than {MOST_FILES} or {MOST_MB} MB"
            )
        uploads.make_room(size, folder)
        for place, info in members.items():
            file = folder / place
            file.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as packed:
                file.write_bytes(packed.read(info.file_size))


def _place(info: zipfile.ZipInfo) -> PurePosixPath:
    place = PurePosixPath(info.filename)
    parts = [uploads.checked_name(part) for part in place.parts]
    if place.is_absolute() or ".." in parts or parts != list(place.parts) or info.external_attr >> 28 == 0xA:
        raise ValueError(f"its {printable(info.filename)} is a link or leads out of the folder")
    return place

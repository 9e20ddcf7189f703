"""A session as a file: what a page was asked to show, and the figures and numbers it showed.

A ZIP with `session.json` and the texts and files a visitor gave, which are all that is read back, and for
each figure an HTML page that works offline, its numbers, caption and sidecar. Nothing in it is run.
"""

import hashlib
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from plotly.offline import get_plotlyjs
from pydantic import Field

from mta_viz.checkpoint.validate import from_text
from mta_viz.errors import MtaVizError
from mta_viz.exporting.carriers import embed
from mta_viz.exporting.pictures import printable
from mta_viz.exporting.saved import Choices, Saved, beside, zipped
from mta_viz.printed import size_text
from mta_viz.version import VERSION

FORMAT = "mta_viz session 1"
NAME = "session.json"
# What unpacking and parsing raise, and what is found wrong here.
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(ValueError, RecursionError, NotImplementedError, RuntimeError),
)
MAX_BYTES = 4 * 2**20  # of session.json, unpacked
MAX_CARRIED = 60 * 2**20  # bytes of the texts and files, unpacked
MAX_FILES = 20


@dataclass(frozen=True)
class Carried:
    """A text that no address holds: of a file, `place` says for what and `name` is its own; else typed."""

    text: str
    place: str = ""
    name: str = ""


@dataclass(frozen=True)
class Session:
    """`page`: its title; `view`: the parameters of its address; `prompt`: a text, token ids or None.

    `sha256` is that of the weights of the model the view names.
    """

    page: str
    view: dict[str, str]
    prompt: str | list[int] | None = None
    sha256: str = ""
    carried: tuple[Carried, ...] = ()


def fitting(carried: Sequence[Carried]) -> tuple[Carried, ...]:
    """The first of them that a session has room for."""
    found: list[Carried] = []
    room = MAX_CARRIED
    for one in carried:
        room -= len(one.text.encode())
        if room >= 0 and len(found) < MAX_FILES:
            found.append(one)
    return tuple(found)


def session_bytes(session: Session, figures: Sequence[Saved]) -> bytes:
    """The session's file."""
    said = {
        "format": FORMAT,
        "version": VERSION,
        **vars(session),
        "carried": [
            {"file": _member(at), "place": given.place, "name": given.name, "sha256": _digest(given)}
            for at, given in enumerate(session.carried)
        ],
        "figures": [figure.file("html") for figure in figures],
    }
    files = [(NAME, (json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode())]
    files += [(_member(at), one.text.encode()) for at, one in enumerate(session.carried)]
    if figures:
        files.append(("plotly.min.js", get_plotlyjs().encode()))
    for figure in figures:  # all pages of a session share one plotly.min.js
        page = printable(figure.figure).to_html(include_plotlyjs="directory", full_html=True).encode()
        name = figure.file("html")
        files.append((name, embed(page, "html", figure.provenance.text(name))))
        files += beside(figure, Choices()).items()
    return zipped(files)


def _member(at: int) -> str:
    return f"given/{at}.txt"  # never by the name a visitor's file had


def _digest(given: Carried) -> str:
    return hashlib.sha256(given.text.encode()).hexdigest()


def read_session(content: bytes) -> Session:
    """What a session's file asks for. Raises MtaVizError for a damaged or foreign file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = _unpacked(archive, NAME, MAX_BYTES)
            given = from_text(_Given, text, NAME, file_format=FORMAT)
            carried = _carried(archive, given.carried)
        return Session(given.page, given.view, given.prompt, given.sha256, carried)
    except DAMAGED as error:
        raise MtaVizError(
            f"This file cannot be read as a session ({error}). Expected a .zip saved here."
        ) from error


@dataclass(frozen=True)
class _Listed:
    """A text or file as session.json names it, by its place in the list."""

    place: str
    name: str
    sha256: str


@dataclass(frozen=True)
class _Given:
    """What of session.json is read back."""

    page: str
    view: dict[str, str]
    sha256: str
    prompt: str | list[Annotated[int, Field(ge=0, lt=2**31)]] | None = None
    carried: Annotated[list[_Listed], Field(max_length=MAX_FILES)] = field(default_factory=list)


def _carried(archive: zipfile.ZipFile, listed: Sequence[_Listed]) -> tuple[Carried, ...]:
    """The texts and files, each as it was saved. Raises ValueError otherwise."""
    found, room = [], MAX_CARRIED
    for at, one in enumerate(listed):
        content = _unpacked(archive, _member(at), room)
        room -= len(content)
        if hashlib.sha256(content).hexdigest() != one.sha256:
            raise ValueError(f"its file {_member(at)} is damaged: its sha256 is another")
        found.append(Carried(content.decode("utf-8"), one.place, one.name))
    return tuple(found)


def _unpacked(archive: zipfile.ZipFile, member: str, limit: int) -> bytes:
    """A member's bytes; whatever size it declares, no more are unpacked. Raises ValueError without it."""
    if member not in archive.namelist():
        raise ValueError(f"it has no {member}")
    with archive.open(member) as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"its {member} is larger than {size_text(limit)}")
    return content

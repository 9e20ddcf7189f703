"""A figure as the files a user takes away, one or many, and a session: what a page showed, as a file.

A picture says whence it is; numbers, caption and sidecar go with it, under names any file system
takes. Many figures make a PDF with a page each and an outline, or a ZIP. `mta_viz.export` writes one
drawn in a notebook, at the size and in the colours of print. A session is a ZIP with `session.json`
and the texts and files a visitor gave, which are all that is read back, and each figure as an HTML page
that works offline. Nothing in it is run.
"""

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from pydantic import Field

from mta_viz.checkpoint.pickles import opened_zip
from mta_viz.checkpoint.types import Source as Origin
from mta_viz.checkpoint.validate import from_text
from mta_viz.errors import MtaVizError
from mta_viz.exporting import pictures
from mta_viz.exporting.pictures import FORMATS, SIZES, Format, Sized, SizeName, figure_bytes, printable
from mta_viz.exporting.provenance import KEY, Provenance, embed, many_text, provenance_of
from mta_viz.figures.base import Drawn
from mta_viz.printed import safe, size_text
from mta_viz.run.tracing import Progress, ignore
from mta_viz.version import VERSION
from mta_viz.writing import check_new, write

# Names Windows keeps for devices, whatever the suffix.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def file_name(*parts: object, suffix: str) -> str:
    """`file_name("blocks", "L2 H1", "kq'", suffix="png")` -> `blocks-L2-H1-kq.png`.

    Letters a-z, digits, `.`, `_` and `-` only; never empty, hidden, a device's name or over 100
    characters before the suffix.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(str(part) for part in parts))
    stem = re.sub(r"-{2,}", "-", stem)[:100].strip("-.")
    if not stem or _RESERVED.fullmatch(stem):
        stem = f"mta-viz-{stem}".rstrip("-")
    return f"{stem}.{suffix}"


Colours = Literal["colour", "greys"]
COLOURS: tuple[Colours, ...] = ("colour", "greys")
SCREEN_DPI = 96


@dataclass(frozen=True)
class Choices:
    """How a figure is exported; `dpi` counts for PNG."""

    size: SizeName = "screen"
    colours: Colours = "colour"
    dpi: int = 300


@dataclass(frozen=True)
class Saved:
    """A figure with all that goes with it; `name` are the parts of its files' names."""

    name: tuple[object, ...]
    figure: go.Figure
    caption: str
    csv: str
    provenance: Provenance
    is_table: bool = False  # numbers without a picture

    def file(self, suffix: str) -> str:
        """The name of one of its files."""
        return file_name(*self.name, suffix=suffix)


def saved(figure: Drawn, digest: Callable[[Origin], str] | None = None) -> Saved:
    """A drawn figure, or table, as files. `digest`: as `provenance_of` takes it."""
    name = (figure.source.name, *figure.spec.file_parts())
    origin = provenance_of(figure, digest)
    picture = go.Figure() if figure.figure is None else figure.figure
    return Saved(name, picture, figure.caption, figure.table.csv(), origin, figure.figure is None)


def choices_of(provenance: Provenance, dpi: int = 300) -> Choices:
    """How a figure was exported. Raises MtaVizError for a size or colours this version does not know."""
    size = next((name for name in SIZES if name == provenance.size), None)
    colours = next((name for name in COLOURS if name == provenance.colours), None)
    if size is None or colours is None:
        raise MtaVizError(
            f"the figure's size {provenance.size!r} is to be one of {', '.join(SIZES)}, its "
            f"colours {provenance.colours!r} one of {', '.join(COLOURS)}; another version "
            f"made it ({provenance.version})"
        )
    return Choices(size, colours, dpi)


def laid_out(figure: go.Figure, choices: Choices) -> Sized:
    """The figure at its size and in its colours."""
    return pictures.sized(pictures.in_greys(figure) if choices.colours == "greys" else figure, choices.size)


def picture(saved: Saved, format: Format, choices: Choices) -> bytes:
    """A picture with its provenance inside.

    Raises MtaVizError for a table, and where no browser draws it; HTML needs none.
    """
    if saved.is_table:
        raise MtaVizError("this is a table, of which there is no picture: save its numbers as .csv")
    made = laid_out(saved.figure, choices)
    content = figure_bytes(made.figure, format, choices.dpi / SCREEN_DPI, size=made.scale)
    return embed(content, format, provenance_with(saved, choices).text(saved.file(format)))


def provenance_with(saved: Saved, choices: Choices) -> Provenance:
    """Its provenance, with its caption and how it is exported."""
    return replace(saved.provenance, size=choices.size, colours=choices.colours, caption=saved.caption)


def sidecar(saved: Saved, choices: Choices) -> bytes:
    """The provenance as a file of its own."""
    return (provenance_with(saved, choices).text(saved.file("json")) + "\n").encode()


def all_files(saved: Saved, format: Format, choices: Choices) -> dict[str, bytes]:
    """Picture, numbers, caption and sidecar by their names."""
    return {saved.file(format): picture(saved, format, choices), **beside(saved, choices)}


def beside(saved: Saved, choices: Choices) -> dict[str, bytes]:
    """Numbers, caption and sidecar by their names."""
    return {
        saved.file("csv"): saved.csv.encode(),
        saved.file("txt"): (safe(saved.caption) + "\n").encode(),
        saved.file("json"): sidecar(saved, choices),
    }


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """The files as a ZIP; of equal names the later ones get a number."""
    written, taken = io.BytesIO(), set[str]()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            stem, _, suffix = name.rpartition(".")
            free, number = name, 2
            while free in taken:
                free, number = f"{stem}-{number}.{suffix}", number + 1
            taken.add(free)
            archive.writestr(free, content)
    return written.getvalue()


Form = Literal["pdf", "zip"]


def together(
    figures: Sequence[Saved],
    form: Form,
    format: Format = "pdf",
    choices: Choices | None = None,
    progress: Progress = ignore,
) -> bytes:
    """One PDF, a page a figure, or a ZIP with each one's picture in `format`, numbers, caption and sidecar.

    The PDF says of every page where it comes from.

    `progress` is told the share that is done. Raises MtaVizError where no browser draws the pictures.
    """
    looks = choices or Choices()
    if form == "pdf":
        pages = [picture(figure, "pdf", looks) for figure in _counted(figures, progress)]
        origin = many_text([provenance_with(figure, looks) for figure in figures])
        return one_pdf(
            [(str(figure.caption), page) for figure, page in zip(figures, pages, strict=True)], origin
        )
    files = (
        pair for figure in _counted(figures, progress) for pair in all_files(figure, format, looks).items()
    )
    return zipped(files)


def _counted(figures: Sequence[Saved], progress: Progress) -> Iterator[Saved]:
    for place, figure in enumerate(figures):
        yield figure
        progress((place + 1) / len(figures))


def one_pdf(pages: Sequence[tuple[str, bytes]], origin: str) -> bytes:
    """The pages of several PDFs in one, each at its own size; the outline names them by their captions.

    `origin` is what the file says of where they come from.
    """
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter()
    for title, content in pages:
        first = len(writer.pages)
        for page in PdfReader(io.BytesIO(content)).pages:
            writer.add_page(page)
        writer.add_outline_item(title=safe(title[:200]), page_number=first)
    writer.add_metadata({f"/{KEY}": origin})
    writer.compress_identical_objects()
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def export(
    figure: go.Figure | Drawn,
    path: Path | str,
    *,
    size: SizeName = "screen",
    colours: Colours = "colour",
    dpi: int = 300,
    force: bool = False,
) -> Path:
    """Write a figure to `path`, whose suffix is the format: .png, .svg, .pdf or .html; returns the path.

    One by `mta_viz.figure` has in it where it is from: `mta_viz figure --from` makes it again.

    `size`: "screen" (as drawn), "column" (84 mm), "page" (174 mm) or "slide" (254 mm); letters stay readable
    and the plot gives way. `colours`: "colour" or "greys", which keep the sign. `dpi` is of a .png.

    Raises MtaVizError for another suffix, for a file that is there without `force`, a folder that is not,
    and where no Chrome or Chromium draws a picture (.html needs none).

    >>> import tempfile, mta_viz, plotly.graph_objects as go
    >>> figure = go.Figure(go.Heatmap(z=[[0.0, 1.0]]), layout={"width": 300, "height": 200})
    >>> mta_viz.export(figure, tempfile.mkdtemp() + "/map.html", size="column").name
    'map.html'
    """
    path = Path(path)
    format = next((name for name in FORMATS if f".{name}" == path.suffix.lower()), None)
    if format is None:
        raise MtaVizError(f"{path} ends with none of .{', .'.join(FORMATS)}: which format is it to have?")
    check_new(path, force)
    if not path.parent.is_dir():
        raise MtaVizError(f"the folder {path.parent} does not exist; create it first")
    choices = Choices(size, colours, dpi)
    if isinstance(figure, Drawn):
        write(path, picture(saved(figure), format, choices))
        return path
    made = laid_out(figure, choices)
    write(path, figure_bytes(made.figure, format, dpi / SCREEN_DPI, size=made.scale))
    return path


SESSION_FORMAT = "mta_viz session 1"
SESSION_FILE = "session.json"
# What unpacking and parsing raise, and what is found wrong here.
DAMAGED_ZIP = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(ValueError, RecursionError, NotImplementedError, RuntimeError),
)
MAX_SESSION = 4 * 2**20  # of session.json, unpacked
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
    kept: list[Carried] = []
    room = MAX_CARRIED
    for given in carried:
        room -= len(given.text.encode())
        if room >= 0 and len(kept) < MAX_FILES:
            kept.append(given)
    return tuple(kept)


def session_bytes(session: Session, figures: Sequence[Saved]) -> bytes:
    """The session's file."""
    about = {
        "format": SESSION_FORMAT,
        "version": VERSION,
        **vars(session),
        "carried": [
            {"file": _member(at), "place": given.place, "name": given.name, "sha256": _digest(given)}
            for at, given in enumerate(session.carried)
        ],
        "figures": [figure.file("html") for figure in figures],
    }
    files = [(SESSION_FILE, (json.dumps(about, ensure_ascii=False, indent=1) + "\n").encode())]
    files += [(_member(at), given.text.encode()) for at, given in enumerate(session.carried)]
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
        with opened_zip(io.BytesIO(content), len(content)) as archive:
            text = _unpacked(archive, SESSION_FILE, MAX_SESSION)
            given = from_text(_Given, text, SESSION_FILE, file_format=SESSION_FORMAT)
            carried = _carried(archive, given.carried)
        return Session(given.page, given.view, given.prompt, given.sha256, carried)
    except DAMAGED_ZIP as error:
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
    carried, room = [], MAX_CARRIED
    for at, entry in enumerate(listed):
        content = _unpacked(archive, _member(at), room)
        room -= len(content)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise ValueError(f"its file {_member(at)} is damaged: its sha256 is another")
        carried.append(Carried(content.decode("utf-8"), entry.place, entry.name))
    return tuple(carried)


def _unpacked(archive: zipfile.ZipFile, member: str, limit: int) -> bytes:
    """A member's bytes; whatever size it declares, no more are unpacked. Raises ValueError without it."""
    if member not in archive.namelist():
        raise ValueError(f"it has no {member}")
    with archive.open(member) as opened:
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"its {member} is larger than {size_text(limit)}")
    return content

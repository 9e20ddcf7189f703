"""Where a figure comes from: its name, its parameters and the run it is drawn from; in files, and made again.

A `Provenance` is a JSON object: PNG has it in a text chunk, SVG in <metadata>, PDF among its properties,
HTML in a script that is data, tables as a file beside them. A PDF of many figures holds a list, one for
each page. Reading takes it from any of these, and never runs anything; `make_again` draws the figure
it speaks of.
"""

import html
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from mta_viz.checkpoint import door
from mta_viz.checkpoint.locate import locate, sha256, sha256_as_read
from mta_viz.checkpoint.reading import find_checkpoints
from mta_viz.checkpoint.relatives import model_roots
from mta_viz.checkpoint.types import Source as Origin
from mta_viz.config import DTYPES
from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import limits
from mta_viz.figures import spec
from mta_viz.figures.base import Drawn, Source, drawn
from mta_viz.model.hooking import weights_of
from mta_viz.model.plans import plan_as_data, plan_from_data
from mta_viz.printed import safe
from mta_viz.run.files import check_as_read
from mta_viz.run.tracing import capture, load, operated, tokenize
from mta_viz.version import VERSION

FORMAT = "mta_viz figure 2"
OLDER = "mta_viz figure 1"  # of 0.1.0: it named a page and its address, not the figure
MANY = "mta_viz figures 1"  # of a file with a figure on each of its pages
MAX_TEXT = 8 * 2**20  # characters
COMMAND = "python -m mta_viz figure --from {name}"


@dataclass(frozen=True)
class RunOf:
    """A model, and the prompt that was run: a text, token ids or None.

    `checkpoint` is a name, `sha256` of the weights, `step` the training step of a run folder; `tokens` as
    they are shown; `interventions` a plan as JSON.
    """

    checkpoint: str = ""
    sha256: str = ""
    step: int | None = None
    dtype: str = "float32"
    prompt: str | tuple[int, ...] | None = None
    tokens: tuple[str, ...] = ()
    interventions: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Provenance:
    """One figure. `beside` is the other run of a comparison; `limits` are the ends of its colour scales.

    `size` and `colours` say how it was exported.
    """

    figure: str
    parameters: dict[str, Any] = field(default_factory=dict)
    run: RunOf = RunOf()
    beside: RunOf | None = None
    numbering: int = 0
    limits: tuple[tuple[float, float], ...] = ()
    caption: str = ""
    size: str = "screen"
    colours: str = "colour"
    version: str = VERSION

    def text(self, name: str = "FILE") -> str:
        """As JSON; `name` is that of the file that carries it, for the command that makes it again."""
        head = {"format": FORMAT, "command": COMMAND.format(name=name)}
        return safe(json.dumps(head | asdict(self), ensure_ascii=False))


def provenance_of(figure: Drawn, digest: Callable[[Origin], str] | None = None) -> Provenance:
    """Where a drawn figure comes from. `digest` gives the sha256 of a model's weights, where it is known.

    Raises MtaVizError where the weights are no longer those that were read: their sha256 would be another's.
    """
    known = digest or sha256_as_read
    source = figure.source
    return Provenance(
        figure.spec.name,
        figure.spec.parameters(),
        _run_of(source, known),
        None if source.beside is None else _run_of(source.beside, known),
        source.numbering,
        () if figure.figure is None else limits(figure.figure),
        figure.caption,
    )


def _run_of(source: Source, digest: Callable[[Origin], str]) -> RunOf:
    origin, dtype = source.model.source, str(source.model.dtype).removeprefix("torch.")
    plan = tuple(plan_as_data(source.model.plan))
    model = RunOf(interventions=plan, dtype=dtype)
    if origin is not None:
        ran_with = source.run.ran_with if source.run else None
        check_as_read(source.model, (ran_with or weights_of(source.model)).marks)
        model = replace(model, checkpoint=source.name, sha256=digest(origin), step=origin.step)
    if source.run is None:
        return model
    tokens = source.run.tokens
    return replace(
        model, prompt=tokens.ids if tokens.text is None else tokens.text, tokens=tuple(tokens.pieces)
    )


def many_text(pages: Sequence[Provenance], name: str = "FILE") -> str:
    """Those of a file with a figure on each of its pages, as JSON."""
    command = f"{COMMAND.format(name=name)} --page N"
    figures = [json.loads(page.text()) for page in pages]
    return safe(json.dumps({"format": MANY, "command": command, "figures": figures}, ensure_ascii=False))


class NotThisOne(MtaVizError):
    """A figure's file all the same: of many of which none is named, or of a version that did not name it."""


def from_text(text: str, page: int | None = None) -> Provenance:
    """What `Provenance.text` wrote, or `many_text` of this page, counted from 1.

    Raises MtaVizError saying what is missing or of the wrong kind, and for a file of 0.1.0.
    """
    try:
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # JSON can hold halves of characters
    except (ValueError, RecursionError) as error:
        raise MtaVizError(f"it holds no JSON ({error})") from error
    if isinstance(data, dict) and data.get("format") == MANY:
        data = _on_page(data.get("figures"), page)
    elif page not in (None, 1):
        raise MtaVizError(f"it holds one figure, not a page {page}")
    if isinstance(data, dict) and data.get("format") == OLDER:
        raise NotThisOne(
            f"mta_viz 0.1.0 saved it, which named a page ({data.get('page')}) and not the figure; open its "
            "checkpoint in the app, and save the figure again"
        )
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise MtaVizError(f'it does not say "format": "{FORMAT}"')
    try:
        return TypeAdapter(Provenance).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        wrong = dict.fromkeys(".".join(map(str, fault["loc"][:2])) for fault in error.errors())
        raise MtaVizError(f"its {', '.join(wrong)} cannot be read") from error


def _on_page(figures: object, page: int | None) -> object:
    """One of many. Raises MtaVizError listing them where none of them is named."""
    if not isinstance(figures, list) or not all(isinstance(figure, dict) for figure in figures):
        raise MtaVizError("its figures cannot be read")
    if page is not None and 1 <= page <= len(figures):
        return figures[page - 1]
    names = "; ".join(
        f"{at}: {str(figure.get('caption'))[:60]}" for at, figure in enumerate(figures, start=1)
    )
    raise NotThisOne(f"it holds {len(figures)} figures, one a page; name one with --page N ({names})")


KEY = "mta_viz"
MAX_BYTES = 64 * 2**20  # of a file that is looked into
_IN_SVG = '<metadata id="mta_viz">', "</metadata>"
_IN_HTML = '<script type="application/json" id="mta_viz">', "</script>"


def embed(content: bytes, suffix: str, text: str) -> bytes:
    """A file's content with the provenance in it; content that has no place for it stays as it is."""
    if suffix == "png":
        return _into_png(content, text)
    if suffix == "pdf":
        return _into_pdf(content, text)
    if suffix == "svg":
        place = content.index(b">", content.index(b"<svg")) + 1
        element = html.escape(text, quote=False).join(_IN_SVG)
    elif suffix == "html":
        place = content.rindex(b"</body>")
        # JSON all the same, and nothing a browser takes for a tag
        element = text.replace("<", "\\u003c").join(_IN_HTML)
    else:
        return content
    return content[:place] + element.encode() + content[place:]


def _into_png(content: bytes, text: str) -> bytes:
    """An iTXt chunk before the last chunk, IEND, which takes 12 bytes."""
    data = KEY.encode() + b"\0\1\0\0\0" + zlib.compress(text.encode())  # compressed, no language
    body = b"iTXt" + data
    chunk = struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    return content[:-12] + chunk + content[-12:]


def _into_pdf(content: bytes, text: str) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    writer.add_metadata({f"/{KEY}": text})
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def read(path: Path, page: int | None = None) -> Provenance:
    """The provenance a file carries: a sidecar, or a PNG, SVG, PDF or HTML file of a figure.

    `page`, counted from 1, is needed for a PDF of many figures.

    Raises MtaVizError for a file that carries none, is damaged or too large, or is not there.
    """
    content = door.read_bytes(path, MAX_BYTES)
    try:
        text = _find(content)
        if len(text) > MAX_TEXT:
            raise MtaVizError("what it says of itself is too long")
        return from_text(text, page)
    except NotThisOne as error:
        raise MtaVizError(f"{path}: {error}") from error
    except MtaVizError as error:
        raise MtaVizError(
            f"{path} is no figure of this app nor a sidecar of one: {error}. Expected a .json sidecar, or a "
            ".png, .svg, .pdf or .html file saved by it"
        ) from error


def _find(content: bytes) -> str:
    """The text inside, by what the content is, not by its name."""
    if content.startswith(b"\x89PNG"):
        return _png_text(content)
    if content.startswith(b"%PDF"):
        return _pdf_text(content)
    text = content.decode("utf-8-sig", "replace")
    if text.lstrip().startswith("{"):
        return text
    for start, end in (_IN_SVG, _IN_HTML):
        _, begun, rest = text.partition(start)
        inside, ended, _ = rest.partition(end)
        if begun and ended:
            return html.unescape(inside) if start == _IN_SVG[0] else inside
    raise MtaVizError("it does not say where it comes from")


def _png_text(content: bytes) -> str:
    place = 8
    while place + 12 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, data = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        head = KEY.encode() + b"\0\1\0\0\0"
        if kind == b"iTXt" and data.startswith(head):
            return _unzipped(data[len(head) :])
        place += 12 + length
    raise MtaVizError("this PNG does not say where it comes from")


def _unzipped(data: bytes) -> str:
    unzip = zlib.decompressobj()
    try:
        text = unzip.decompress(data, MAX_TEXT)
    except zlib.error as error:
        raise MtaVizError(f"it is damaged ({error})") from error
    if not unzip.eof:
        raise MtaVizError("it is damaged: its text ends too early or is too long")
    return text.decode("utf-8", "replace")


def _pdf_text(content: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        properties: Mapping[str, Any] = PdfReader(io.BytesIO(content)).metadata or {}
    except (PyPdfError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise MtaVizError(f"this PDF cannot be read ({error})") from error
    if f"/{KEY}" not in properties:
        raise MtaVizError("this PDF does not say where it comes from")
    return str(properties[f"/{KEY}"])


def make_again(provenance: Provenance, checkpoint: Path | None = None, base: Path | None = None) -> Drawn:
    """The figure a provenance speaks of, from the same weights: `checkpoint`, or a model that is found.

    `base`: of an adapter, where that is not found by itself.
    Raises MtaVizError when no model with these weights is there, or this version has no such figure.
    """
    source = _source(provenance.run, checkpoint, provenance.numbering, base)
    if provenance.beside is not None:
        source = replace(source, beside=_source(provenance.beside, None, provenance.numbering))
    return drawn(spec(provenance.figure, provenance.parameters), source)


def _source(run: RunOf, checkpoint: Path | None, numbering: int, base: Path | None = None) -> Source:
    """The model, edited as it was, and its run."""
    if run.dtype not in DTYPES:
        raise MtaVizError(f"the figure was computed in {run.dtype!r}; known are {', '.join(DTYPES)}")
    model = load(_weights(run, checkpoint), base=base, dtype=getattr(torch, run.dtype))
    plan = plan_from_data(list(run.interventions))
    if run.prompt is None:
        return Source(operated(model, plan, 0) if plan else model, numbering=numbering)
    tokens = tokenize(model, run.prompt)
    trace = capture(operated(model, plan, len(tokens)) if plan else model, tokens)
    return Source(trace.model, trace, numbering=numbering)


def _weights(run: RunOf, checkpoint: Path | None) -> Path:
    """The folder whose weights have the sha256 the figure was made from."""
    if checkpoint is not None:
        folder = locate(checkpoint, run.step).folder
        digest = sha256(folder)
        if digest != run.sha256:
            raise MtaVizError(
                f"{checkpoint} has other weights than the figure: sha256 {digest[:12]}..., not "
                f"{run.sha256[:12]}... Name the checkpoint the figure was made from"
            )
        return folder
    for model in find_checkpoints(list(model_roots())).found:
        if model.name == run.checkpoint and model.problem is None:
            folder = locate(model.path, run.step).folder
            if sha256(folder) == run.sha256:
                return folder
    raise MtaVizError(
        f"no model named {run.checkpoint} with the sha256 {run.sha256[:12]}... is known here; give its "
        "folder, or name the folder it lies in with MTA_VIZ_MODELS"
    )

"""Files that say where their figure comes from: PNG in a text chunk, SVG in <metadata>, PDF among its
properties, HTML in a script that is data. Reading takes it from any of these, and never runs anything.
"""

import html
import io
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import MAX_TEXT, Provenance, WhichPage, from_text

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
    except WhichPage as error:
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

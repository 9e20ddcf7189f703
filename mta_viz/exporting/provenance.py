"""Where a figure comes from: what a file of it carries, and what is read back from one.

A `Provenance` is a JSON object. Pictures carry it inside: PNG in a text chunk, SVG in <metadata>, PDF among
its document properties, HTML in a script that is data; tables have it as a file beside them. A PDF of many
figures holds a list, one for each page. Reading takes it from any of these, and never runs anything.
"""

import html
import io
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mta_viz.errors import MtaVizError
from mta_viz.version import VERSION

FORMAT = "mta_viz figure 1"
MANY = "mta_viz figures 1"  # of a file with a figure on each of its pages
KEY = "mta_viz"
MAX_BYTES = 64 * 2**20  # of a file that is looked into
MAX_TEXT = 8 * 2**20  # characters of the provenance itself
COMMAND = "python -m mta_viz figure --from {name}"
_IN_SVG = '<metadata id="mta_viz">', "</metadata>"
_IN_HTML = '<script type="application/json" id="mta_viz">', "</script>"


@dataclass(frozen=True)
class Provenance:
    """One figure of one page. `view`: the parameters of its address; `figure`: its name on that page.

    `checkpoint` is a name and `sha256` that of the weights; `prompt` a text, token ids or None; `tokens` as
    they are shown; `interventions` a plan as JSON; `limits` the ends of its colour scales; `size`, `colours`,
    `queries` and `keys` (token ranges, ends excluded, None: all) how it was exported.
    """

    page: str
    figure: str
    view: dict[str, str]
    checkpoint: str = ""
    sha256: str = ""
    prompt: str | list[int] | None = None
    tokens: list[str] = field(default_factory=list)
    interventions: list[Any] = field(default_factory=list)
    limits: list[list[float]] = field(default_factory=list)
    caption: str = ""
    size: str = "screen"
    colours: str = "colour"
    queries: list[int] | None = None
    keys: list[int] | None = None
    version: str = VERSION

    def text(self, name: str = "FILE") -> str:
        """As JSON; `name` is that of the file that carries it, for the command that makes it again."""
        head = {"format": FORMAT, "command": COMMAND.format(name=name)}
        return json.dumps(head | asdict(self), ensure_ascii=False)


def many_text(pages: Sequence[Provenance], name: str = "FILE") -> str:
    """Those of a file with a figure on each of its pages, as JSON."""
    command = f"{COMMAND.format(name=name)} --page N"
    figures = [{"format": FORMAT} | asdict(one) for one in pages]
    return json.dumps({"format": MANY, "command": command, "figures": figures}, ensure_ascii=False)


def from_text(text: str, page: int | None = None) -> Provenance:
    """What `Provenance.text` wrote, or `many_text` of this page, counted from 1.

    Raises MtaVizError saying what is missing or of the wrong kind.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MtaVizError(f"it holds no JSON ({error})") from error
    if isinstance(data, dict) and data.get("format") == MANY:
        data = _on_page(data.get("figures"), page)
    elif page not in (None, 1):
        raise MtaVizError(f"it holds one figure, not a page {page}")
    return _from_data(data)


def _on_page(figures: object, page: int | None) -> object:
    """One of many. Raises MtaVizError listing them where none of them is named."""
    if not isinstance(figures, list) or not all(isinstance(one, dict) for one in figures):
        raise MtaVizError("its figures cannot be read")
    if page is not None and 1 <= page <= len(figures):
        return figures[page - 1]
    names = "; ".join(f"{at}: {str(one.get('caption'))[:60]}" for at, one in enumerate(figures, start=1))
    raise WhichPage(f"it holds {len(figures)} figures, one a page; name one with --page N ({names})")


def _from_data(data: object) -> Provenance:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise MtaVizError(f'it does not say "format": "{FORMAT}"')
    values = {one.name: data[one.name] for one in fields(Provenance) if one.name in data}
    problems = [name for name, kind in _KINDS.items() if not isinstance(values.get(name, kind()), kind)]
    problems += [name for name in ("page", "figure", "view") if name not in values]
    view = values.get("view", {})
    if isinstance(view, dict) and not all(isinstance(value, str) for value in view.values()):
        problems.append("view")
    problems += [name for name in ("queries", "keys") if not _is_range(values.get(name))]
    if not _is_prompt(values.get("prompt")):
        problems.append("prompt")
    problems += [name for name, value in values.items() if not _is_unicode(value)]
    if problems:
        raise MtaVizError(f"its {', '.join(dict.fromkeys(problems))} cannot be read")
    return Provenance(**values)


class WhichPage(MtaVizError):
    """A file of many figures, and none of its pages is named."""


_KINDS: dict[str, type] = {
    **dict.fromkeys(("page", "figure", "checkpoint", "sha256", "caption", "size", "colours", "version"), str),
    **dict.fromkeys(("tokens", "interventions", "limits"), list),
    "view": dict,
}


def _is_unicode(value: object) -> bool:
    """Whether it can be written as UTF-8: JSON can hold halves of characters."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_range(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and [*map(type, value)] == [int, int] and 0 <= value[0] < value[1]


def _is_prompt(value: object) -> bool:
    ids = isinstance(value, list) and all(type(one) is int for one in value)
    return value is None or isinstance(value, str) or ids


def embed(content: bytes, suffix: str, text: str) -> bytes:
    """A file's content with the provenance in it; content that has no place for it stays as it is."""
    put = {"png": _into_png, "svg": _into_svg, "pdf": _into_pdf, "html": _into_html}.get(suffix)
    return content if put is None else put(content, text)


def _into_png(content: bytes, text: str) -> bytes:
    """An iTXt chunk before the last chunk, IEND, which takes 12 bytes."""
    data = KEY.encode() + b"\0\1\0\0\0" + zlib.compress(text.encode())  # compressed, no language
    body = b"iTXt" + data
    chunk = struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    return content[:-12] + chunk + content[-12:]


def _into_svg(content: bytes, text: str) -> bytes:
    place = content.index(b">", content.index(b"<svg")) + 1
    metadata = f'<metadata id="{KEY}">{html.escape(text, quote=False)}</metadata>'
    return content[:place] + metadata.encode() + content[place:]


def _into_pdf(content: bytes, text: str) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    writer.add_metadata({f"/{KEY}": text})
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def _into_html(content: bytes, text: str) -> bytes:
    data = text.replace("<", "\\u003c")  # JSON all the same, and nothing a browser takes for a tag
    script = f'<script type="application/json" id="{KEY}">{data}</script>'
    place = content.rindex(b"</body>")
    return content[:place] + script.encode() + content[place:]


def read(path: Path, page: int | None = None) -> Provenance:
    """The provenance a file carries: a sidecar, or a PNG, SVG, PDF or HTML file of a figure.

    `page`, counted from 1, is needed for a PDF of many figures.

    Raises MtaVizError for a file that carries none, is damaged or too large; OSError for none at all.
    """
    size = path.stat().st_size
    if not path.is_file():
        raise MtaVizError(f"{path} is no regular file; name a figure's file or its sidecar")
    if size > MAX_BYTES:
        raise MtaVizError(f"{path} is larger than any figure's file ({MAX_BYTES // 2**20} MiB)")
    content = path.read_bytes()
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
    inside = _between(text, *_IN_SVG)
    if inside is not None:
        return html.unescape(inside)
    inside = _between(text, *_IN_HTML)
    if inside is None:
        raise MtaVizError("it does not say where it comes from")
    return inside


def _between(text: str, start: str, end: str) -> str | None:
    """What stands between the first `start` and the first `end` after it."""
    _, found, rest = text.partition(start)
    inside, ended, _ = rest.partition(end)
    return inside if found and ended else None


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
        said: Mapping[str, Any] = PdfReader(io.BytesIO(content)).metadata or {}
    except (PyPdfError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise MtaVizError(f"this PDF cannot be read ({error})") from error
    if f"/{KEY}" not in said:
        raise MtaVizError("this PDF does not say where it comes from")
    return str(said[f"/{KEY}"])

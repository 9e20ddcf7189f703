"""A session as a file: what a page was asked to show, and the figures and numbers it showed.

A ZIP with `session.json`, which is all that is read back, and for each figure an HTML page that works
offline, its numbers, caption and sidecar. Nothing in it is run.
"""

import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plotly.offline import get_plotlyjs

from mta_viz import __version__
from mta_viz.errors import MtaVizError
from mta_viz.exporting.figures import printable
from mta_viz.exporting.provenance import embed
from mta_viz.exporting.saved import Choices, Saved, sidecar, zipped

FORMAT = "mta_viz session 1"
NAME = "session.json"
# What unpacking and parsing raise, and what is found wrong here.
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(ValueError, RecursionError, NotImplementedError, RuntimeError),
)
MAX_BYTES = 4 * 2**20  # of session.json, unpacked


@dataclass(frozen=True)
class Session:
    """`page`: its title; `view`: the parameters of its address; `prompt`: a text, token ids or None.

    `sha256` is that of the weights of the model the view names.
    """

    page: str
    view: dict[str, str]
    prompt: str | list[int] | None = None
    sha256: str = ""


def session_bytes(session: Session, figures: Sequence[Saved]) -> bytes:
    """The session's file."""
    said = {
        "format": FORMAT,
        "version": __version__,
        **vars(session),
        "figures": [one.file("html") for one in figures],
    }
    files = [(NAME, (json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode())]
    if figures:
        files.append(("plotly.min.js", get_plotlyjs().encode()))
    for one in figures:
        files += _files(one)
    return zipped(files)


def _files(one: Saved) -> list[tuple[str, bytes]]:
    """Page, numbers, caption and sidecar of a figure; all pages of a session share one plotly.min.js."""
    page = printable(one.figure).to_html(include_plotlyjs="directory", full_html=True).encode()
    choices = Choices()
    return [
        (one.file("html"), embed(page, "html", one.provenance.text(one.file("html")))),
        (one.file("csv"), one.csv.encode()),
        (one.file("txt"), (one.caption + "\n").encode()),
        (one.file("json"), sidecar(one, choices)),
    ]


def read_session(content: bytes) -> Session:
    """What a session's file asks for. Raises MtaVizError for a damaged or foreign file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            member = archive.getinfo(NAME)
            if member.file_size > MAX_BYTES:
                raise ValueError(f"its {NAME} is larger than {MAX_BYTES // 2**20} MiB")
            with archive.open(member) as opened:
                text = opened.read(MAX_BYTES + 1)
        return _session(json.loads(text.decode("utf-8")))
    except KeyError as error:
        raise MtaVizError(f"This ZIP is no session of this app: it has no {NAME}.") from error
    except DAMAGED as error:
        raise MtaVizError(
            f"This file cannot be read as a session ({error}). Expected a .zip saved here."
        ) from error


def _session(data: Any) -> Session:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f'{NAME} does not say "format": "{FORMAT}"')
    page, view, prompt, sha256 = (data.get(name) for name in ("page", "view", "prompt", "sha256"))
    if not isinstance(page, str) or not isinstance(view, dict) or not isinstance(sha256, str):
        raise ValueError(f"{NAME} lacks its page, its view or its sha256")
    if not all(isinstance(value, str) for value in view.values()):
        raise ValueError("its view holds something else than texts")
    ids = isinstance(prompt, list) and all(type(one) is int for one in prompt)
    if not (prompt is None or isinstance(prompt, str) or ids):
        raise ValueError("its prompt is neither a text nor token ids")
    for text in (page, *view, *view.values(), prompt if isinstance(prompt, str) else ""):
        text.encode()  # a UnicodeEncodeError, which is a ValueError, for halves of characters
    return Session(page, view, prompt, sha256)

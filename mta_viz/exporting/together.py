"""Many figures in one file: a PDF with a page each and an outline, or a ZIP with all that goes with them."""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from mta_viz.exporting.figures import Format
from mta_viz.exporting.provenance import KEY, many_text
from mta_viz.exporting.saved import Choices, Saved, all_files, picture, said, zipped

Form = Literal["pdf", "zip"]
Progress = Callable[[float], None]


def together(
    figures: Sequence[Saved],
    form: Form,
    format: Format = "pdf",
    choices: Choices | None = None,
    progress: Progress | None = None,
) -> bytes:
    """One PDF, a page a figure, or a ZIP with each one's picture in `format`, numbers, caption and sidecar.

    The PDF says of every page where it comes from.

    `progress` is told the share that is done. Raises MtaVizError where no browser draws the pictures.
    """
    looks = choices or Choices()
    if form == "pdf":
        pages = [picture(one, "pdf", looks) for one in _told(figures, progress)]
        told = many_text([said(one, looks) for one in figures])
        return one_pdf([(str(one.caption), page) for one, page in zip(figures, pages, strict=True)], told)
    files = (pair for one in _told(figures, progress) for pair in all_files(one, format, looks).items())
    return zipped(files)


def _told(figures: Sequence[Saved], progress: Progress | None) -> Iterator[Saved]:
    for place, one in enumerate(figures):
        yield one
        if progress is not None:
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
        writer.add_outline_item(title=title[:200], page_number=first)
    writer.add_metadata({f"/{KEY}": origin})
    writer.compress_identical_objects()
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()

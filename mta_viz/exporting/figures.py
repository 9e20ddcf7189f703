"""Figures as bytes: PNG, SVG and PDF through a headless Chrome or Chromium, or one HTML page.

The browser starts with the first picture and stays warm until the process ends. Pictures are
always light, whatever theme the page has.
"""

import threading
from typing import Any, Literal, get_args

import plotly.graph_objects as go

from mta_viz.errors import MtaVizError
from mta_viz.plots import theme
from mta_viz.plots.cells import TARGETS

Format = Literal["png", "svg", "pdf", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
NO_BROWSER = (
    "Saving as {format} needs Chrome or Chromium, and none was found. Install one "
    "(Debian, Ubuntu: `apt-get install -y chromium`; anywhere: `plotly_get_chrome`), or set "
    "BROWSER_PATH to its program file. Saving as html needs none."
)
# kaleido's server answers one caller at a time.
_one_at_a_time = threading.Lock()


def figure_bytes(figure: go.Figure, format: Format, scale: float = 2.0, *, size: float = 1.0) -> bytes:
    """The figure as a file's content, `size` times as large as its layout; an HTML page as it is laid out.

    SVG and PDF have 96 pixels to the inch; `scale` multiplies the pixels of a PNG.

    Raises MtaVizError when no browser is found or it fails to draw.
    """
    import kaleido  # costs a second, and most sessions save nothing

    printed = printable(figure)
    if format == "html":
        return printed.to_html(include_plotlyjs=True, full_html=True).encode()
    options: dict[str, Any] = {
        "width": printed.layout.width,
        "height": printed.layout.height,
        "scale": scale * size if format == "png" else size,
    }
    with _one_at_a_time:
        _start_browser(format)
        try:
            return kaleido.calc_fig_sync(printed.to_plotly_json(), opts={"format": format, **options})
        except Exception as error:
            # The browser may have died; the next call must not talk to it again.
            kaleido.stop_sync_server(silence_warnings=True)
            raise MtaVizError(f"the browser could not draw the {format}: {error}; try again") from error


def printable(figure: go.Figure) -> go.Figure:
    """A copy on white paper with dark text and without the invisible click targets."""
    copy = go.Figure(figure)
    copy.data = [trace for trace in copy.data if trace.meta != TARGETS]
    return copy.update_layout(paper_bgcolor="white", font_color=theme.INK)


def _start_browser(format: Format) -> None:
    import kaleido
    from choreographer.browsers.chromium import Chromium

    # A server started without a browser would wait for it for ever.
    if Chromium.find_browser(skip_local=False) is None:
        raise MtaVizError(NO_BROWSER.format(format=format))
    kaleido.start_sync_server(silence_warnings=True)

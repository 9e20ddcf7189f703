"""The ends of a figure's colour scales, which its file says.

A figure's colour scales in greys that print and photocopy: lightness follows the numbers.
A figure at the size it is printed or shown at: one or two columns of a paper, a slide.
Figures as bytes: PNG, SVG and PDF through a headless Chrome or Chromium, or one HTML page.
"""

import asyncio
import atexit
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import plotly.graph_objects as go
from PIL.ImageColor import getrgb

from mta_viz.errors import MtaVizError
from mta_viz.plots import theme
from mta_viz.plots.cells import TARGETS
from mta_viz.plots.theme import PX_PER_MM, Figure
from mta_viz.printed import valid


def limits(figure: Figure) -> tuple[tuple[float, float], ...]:
    """The ends of every colour scale of a figure, each pair once, in the order of its traces."""
    sides = (("zmin", "zmax"), ("cmin", "cmax"))
    ends: list[Any] = [[getattr(at, end, None) for end in pair] for at in _coloured(figure) for pair in sides]
    return tuple(dict.fromkeys((float(low), float(high)) for low, high in ends if None not in (low, high)))


def _coloured(figure: go.Figure) -> list[Any]:
    """What can have a colour scale: traces, then their markers, then axes of colour."""
    markers = [trace.marker for trace in figure.data if getattr(trace, "marker", None) is not None]
    axes = [figure.layout[name] for name in figure.layout if name.startswith("coloraxis")]
    return [*figure.data, *markers, *axes]


SIGNED = ((0.0, "rgb(10,10,10)"), (0.5, "rgb(150,150,150)"), (1.0, "rgb(255,255,255)"))
MASS = ((0.0, "rgb(255,255,255)"), (1.0, "rgb(10,10,10)"))
WHITE = 200  # of 255: what a signed scale's middle is lighter than


def has_scales(figure: go.Figure) -> bool:
    """Whether greys would change it: whether a colour in it stands for a number."""
    return bool(_holders(figure))


def in_greys(figure: go.Figure) -> go.Figure:
    """A copy with all its scales in greys."""
    copy = go.Figure(figure)
    for holder in _holders(copy):
        holder.colorscale = SIGNED if _is_signed(holder.colorscale) else MASS
    return copy


def _holders(figure: go.Figure) -> list[Any]:
    """Those that have a scale."""
    return [holder for holder in _coloured(figure) if getattr(holder, "colorscale", None) is not None]


def _is_signed(scale: Sequence[tuple[float, str]]) -> bool:
    """Whether its middle is nearly white and both its ends are not."""
    nearest = [min(scale, key=lambda entry: abs(entry[0] - place)) for place in (0.0, 0.5, 1.0)]
    low, middle, high = (min(getrgb(color)[:3]) for _, color in nearest)
    return middle > WHITE and low < WHITE and high < WHITE


SizeName = Literal["screen", "column", "page", "slide"]
PX_PER_PT = 96 / 72
LEAST_SHARE, LEAST_SHARE_OF_PANELS = 0.5, 0.8  # of its own width: narrower, titles lie over each other
LABEL_PITCH = 1.2  # of the letters' height
DEFAULT_FONT, DEFAULT_MARGINS = 12.0, {"l": 80, "r": 80, "t": 100, "b": 80}


@dataclass(frozen=True)
class Size:
    """`mm` wide, None: as on the screen. `least_pt`: how small letters may be there."""

    words: str
    mm: int | None
    least_pt: int


SIZES: dict[SizeName, Size] = {
    "screen": Size("as on the screen", None, 0),
    "column": Size("one column, 84 mm", 84, 7),
    "page": Size("two columns, 174 mm", 174, 7),
    "slide": Size("slide, 254 mm", 254, 14),
}


@dataclass(frozen=True)
class Sized:
    """The figure laid out anew; drawn `scale` times as large as its layout it has the size asked for.

    `smallest_pt`: its smallest letters, in points, once scaled. `left_out`: labels that had no room.
    """

    figure: go.Figure
    scale: float
    smallest_pt: float
    left_out: int = 0

    @property
    def mm(self) -> tuple[float, float]:
        """Width and height once scaled."""
        layout = self.figure.layout
        return layout.width * self.scale / PX_PER_MM, layout.height * self.scale / PX_PER_MM


def sized(figure: go.Figure, name: SizeName = "screen") -> Sized:
    """The figure for one of `SIZES`; the one given stays as it is."""
    copy, size = go.Figure(figure), SIZES[name]
    letters = min(_font_sizes(copy.to_plotly_json()), default=DEFAULT_FONT)
    if size.mm is None:
        return Sized(copy, 1.0, letters / PX_PER_PT)
    target = size.mm * PX_PER_MM
    wanted = target / (size.least_pt * PX_PER_PT / letters)
    own = copy.layout.width or 700
    domains = [axis.domain for axis in copy.select_xaxes() if axis.domain]
    panels = any(last - first < LEAST_SHARE for first, last in domains)
    least = own * (LEAST_SHARE_OF_PANELS if panels else LEAST_SHARE)
    width = float(min(max(wanted, least), own))
    copy.update_layout(width=round(width), height=round(_height(copy, width)))
    left_out = sum(_thin(copy, axis) for axis in (*copy.select_xaxes(), *copy.select_yaxes()))
    scale = target / copy.layout.width
    return Sized(copy, scale, letters * scale / PX_PER_PT, left_out)


def _font_sizes(part: Any, under: str = "") -> Iterator[float]:
    """Sizes of all fonts but those of hover labels and of hidden tick labels."""
    if isinstance(part, Mapping):
        if under.endswith("font") and isinstance(part.get("size"), int | float):
            yield float(part["size"])
        for name, inner in part.items():
            hidden = name == "tickfont" and part.get("showticklabels") is False
            if name != "hoverlabel" and not hidden:
                yield from _font_sizes(inner, name)
    elif isinstance(part, list | tuple):
        for inner in part:
            if isinstance(inner, Mapping):
                yield from _font_sizes(inner, under)


def _margins(figure: go.Figure) -> tuple[float, float]:
    """Left and right together, top and bottom together."""
    given = {side: figure.layout.margin[side] for side in DEFAULT_MARGINS}
    margin = {side: float(DEFAULT_MARGINS[side] if width is None else width) for side, width in given.items()}
    return margin["l"] + margin["r"], margin["t"] + margin["b"]


def _height(figure: go.Figure, width: float) -> float:
    """That gives the plot between the margins the proportions it had."""
    across, down = _margins(figure)
    own_width, own_height = figure.layout.width or 700, figure.layout.height or 450
    share = max(width - across, 1) / max(own_width - across, 1)
    return down + (own_height - down) * share


def _thin(figure: go.Figure, axis: Any) -> int:
    """Leave out every second label until those that stay have room; how many went."""
    if axis.showticklabels is False or axis.tickvals is None or axis.ticktext is None or axis.range is None:
        return 0
    along = axis.plotly_name.startswith("xaxis")
    if along and axis.tickangle not in (-90, 90):
        return 0  # labels that lie need room by their length, which their figure saw to
    across, down = _margins(figure)
    length = figure.layout.width - across if along else figure.layout.height - down
    first, last = axis.domain or (0, 1)
    px = length * (last - first) / max(abs(axis.range[1] - axis.range[0]), 1e-9)
    pitch = (axis.tickfont.size or DEFAULT_FONT) * LABEL_PITCH
    stay: list[int] = []
    for index in sorted(range(len(axis.tickvals)), key=lambda index: axis.tickvals[index]):
        if not stay or abs(axis.tickvals[index] - axis.tickvals[stay[-1]]) * px >= pitch:
            stay.append(index)
    gone = len(axis.tickvals) - len(stay)
    if gone:
        axis.tickvals, axis.ticktext = (
            [values[index] for index in stay] for values in (axis.tickvals, axis.ticktext)
        )
    return gone


Format = Literal["png", "svg", "pdf", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
NO_BROWSER = (
    "Saving as {format} needs Chrome or Chromium, and none was found. Install one "
    "(Debian, Ubuntu: `apt-get install -y chromium`; anywhere: `plotly_get_chrome`), or set "
    "BROWSER_PATH to its program file. Saving as html needs none."
)
DRAW_SECONDS = 120.0  # for the browser to start and to draw a figure: after that it hangs


class _Drawer:
    """A browser in an event loop of a thread of its own; one that failed is ended, and not asked again."""

    def __init__(self) -> None:
        self._kaleido: Any = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        atexit.register(self.end)

    def draw(self, figure: Any, options: Mapping[str, Any]) -> bytes:
        """Raises what the browser's libraries raise, RuntimeError where it ends, TimeoutError."""
        work = asyncio.run_coroutine_threadsafe(self._draw(figure, options), self._loop)
        end = time.monotonic() + DRAW_SECONDS
        while not wait([work], timeout=0.2).done and time.monotonic() < end:
            if self.has_ended():
                raise RuntimeError("its process ended")
        return work.result(0)

    async def _draw(self, figure: Any, options: Mapping[str, Any]) -> bytes:
        import kaleido  # costs a second, and most sessions save nothing

        if self._kaleido is None:
            self._kaleido = kaleido.Kaleido(n=1, timeout=DRAW_SECONDS)
            await self._kaleido.open()
        return await self._kaleido.calc_fig(figure, opts=options)

    def has_ended(self) -> bool:
        """Whether there was a browser, and its process is no more: the system ended it, say."""
        process = getattr(self._kaleido, "subprocess", None)
        return process is not None and process.poll() is not None

    def end(self, seconds: float = 5.0) -> None:
        """End the browser, one that answers no more by force."""
        atexit.unregister(self.end)
        if self._kaleido is not None:
            with suppress(Exception):  # whatever is wrong with it
                asyncio.run_coroutine_threadsafe(self._kaleido.close(), self._loop).result(seconds)
        if hasattr(self._kaleido, "subprocess"):
            self._kaleido.subprocess.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)


_drawers: list[_Drawer] = []  # one, or none
_one_at_a_time = threading.Lock()


def find_browser(format: str) -> str:
    """The program that draws and prints. Raises MtaVizError where there is none."""
    from choreographer.browsers.chromium import Chromium

    program = Chromium.find_browser(skip_local=False)
    if program is None:
        raise MtaVizError(NO_BROWSER.format(format=format))
    return str(program)


def figure_bytes(figure: go.Figure, format: Format, scale: float = 2.0, *, size: float = 1.0) -> bytes:
    """The figure as a file's content, `size` times as large as its layout; an HTML page as it is laid out.

    SVG and PDF have 96 pixels to the inch; `scale` multiplies the pixels of a PNG.

    Raises MtaVizError when no browser is found or it fails to draw.
    """
    printed = printable(figure)
    if format == "html":
        return printed.to_html(include_plotlyjs=True, full_html=True).encode()
    options: dict[str, Any] = {
        "width": printed.layout.width,
        "height": printed.layout.height,
        "scale": scale * size if format == "png" else size,
    }
    with _one_at_a_time:
        find_browser(format)
        data = printed.to_plotly_json()
        try:
            return _drawn(data, {"format": format, **options}, again=True)
        except Exception as error:
            reason = str(next(iter(error.args), f"it gave no answer in {DRAW_SECONDS:.0f} s")).rstrip(".")
            raise MtaVizError(
                f"the browser could not draw the {format}: {reason}. Try again, save as html, or name "
                "another browser with BROWSER_PATH"
            ) from error


def _drawn(figure: Any, options: Mapping[str, Any], *, again: bool) -> bytes:
    """`again`: a browser that ended is replaced, once."""
    if not _drawers:
        _drawers.append(_Drawer())
    try:
        return _drawers[0].draw(figure, options)
    except Exception:
        drawer = _drawers.pop()
        ended = drawer.has_ended()
        drawer.end(1.0)
        if not (again and ended):
            raise
    return _drawn(figure, options, again=False)


def printable(figure: go.Figure) -> go.Figure:
    """A copy on white paper with dark text and without the invisible click targets; every text is valid."""
    copy = go.Figure(_valid(figure.to_plotly_json()))
    copy.data = [trace for trace in copy.data if trace.meta != TARGETS]
    return copy.update_layout(paper_bgcolor="white", font_color=theme.INK)


def _valid(part: Any) -> Any:
    """The same with no character in its texts that XML forbids."""
    if isinstance(part, str):
        return valid(part)
    if isinstance(part, dict):
        return {name: _valid(inner) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_valid(inner) for inner in part]
    texts = isinstance(part, np.ndarray) and part.dtype.kind in "OU"
    return _valid(part.tolist()) if texts else part

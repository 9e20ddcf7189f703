"""`mta_viz.export`: a figure drawn in a notebook as a file, at the size and in the colours of print."""

from pathlib import Path

import plotly.graph_objects as go

from mta_viz.checkpoint.files import replacing
from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import FORMATS, SizeName, figure_bytes
from mta_viz.exporting.saved import SCREEN_DPI, Choices, Colours, laid_out


def export(
    figure: go.Figure,
    path: Path | str,
    *,
    size: SizeName = "screen",
    colours: Colours = "colour",
    dpi: int = 300,
    force: bool = False,
) -> Path:
    """Write a figure to `path`, whose suffix is the format: .png, .svg, .pdf or .html; returns the path.

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
    format = next((one for one in FORMATS if f".{one}" == path.suffix.lower()), None)
    if format is None:
        raise MtaVizError(f"{path} ends with none of .{', .'.join(FORMATS)}: which format is it to have?")
    if path.exists() and not force:
        raise MtaVizError(f"{path} exists; choose another name, or replace it with force=True")
    if not path.parent.is_dir():
        raise MtaVizError(f"the folder {path.parent} does not exist; create it first")
    made = laid_out(figure, Choices(size, colours, dpi))
    content = figure_bytes(made.figure, format, dpi / SCREEN_DPI, size=made.scale)
    with replacing(path) as partial:
        partial.write_bytes(content)
    return path

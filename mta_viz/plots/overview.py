"""A pooled map in which a box can be drawn, with the part that is shown exactly outlined."""

import plotly.graph_objects as go

from mta_viz.plots.theme import Figure


def choose_part(overview: Figure, queries: slice, keys: slice) -> Figure:
    """A copy of a pooled map's figure: dragging draws a box; `queries` x `keys` is outlined."""
    figure = go.Figure(overview)
    figure.update_layout(dragmode="select")
    return figure.add_shape(
        type="rect",
        x0=keys.start - 0.5,
        x1=keys.stop - 0.5,
        y0=queries.start - 0.5,
        y1=queries.stop - 0.5,
        line={"color": "#000000", "width": 2},
    )

"""The ends of a figure's colour scales, which its file says."""

from collections.abc import Mapping
from typing import Any

from mta_viz.plots.theme import Figure


def limits(figure: Figure) -> list[list[float]]:
    """The ends of every colour scale of a figure, each pair once, in the order of its traces."""
    data = figure.to_plotly_json()
    axes = [axis for name, axis in data["layout"].items() if name.startswith("coloraxis")]
    holders: list[Mapping[str, Any]] = [
        *data["data"],
        *(one.get("marker", {}) for one in data["data"]),
        *axes,
    ]
    found: dict[tuple[float, float], None] = {}
    for holder in holders:
        for low, high in (("zmin", "zmax"), ("cmin", "cmax")):
            if holder.get(low) is not None and holder.get(high) is not None:
                found[float(holder[low]), float(holder[high])] = None
    return [list(pair) for pair in found]

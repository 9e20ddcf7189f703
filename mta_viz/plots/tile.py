"""A tile of the kernel gallery: its numbers, what is said on it, and the colour limit of several."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.maps import round_up
from mta_viz.plots.mosaic import LIMIT_FLOOR


@dataclass(frozen=True)
class Target:
    """Rows `first`..`last` of a tile as something to point at: `id` comes back with a click."""

    id: str
    hover: str
    first: int
    last: int


@dataclass(frozen=True)
class Tile:
    """One picture: `values` are taps or weights, `own` the cells of the own tap or weight.

    `mark` is the letter under it, `note` what is said on it when nothing can be drawn.
    """

    name: str
    values: Float[np.ndarray, "row column"]
    own: tuple[tuple[int, int], ...]
    mark: str
    note: str
    targets: tuple[Target, ...]

    def others(self) -> Float[np.ndarray, "row column"]:
        """The values without the own ones, which are NaN."""
        rest = np.array(self.values, np.float32)
        rest[tuple(np.array(self.own, int).T)] = np.nan
        return rest

    def limit(self) -> float:
        """Colour limit from the values other than the own ones, at least 1 % of the largest."""
        return common_limit([self])


def common_limit(tiles: Iterable[Tile]) -> float:
    """One round colour limit for all tiles, from what is not an own tap."""
    others = own = 0.0
    for tile in tiles:
        others = max(others, _largest(tile.others()))
        own = max(own, _largest(tile.values))
    return round_up(max(others, LIMIT_FLOOR * own))


def _largest(values: Float[np.ndarray, "row column"]) -> float:
    return float(np.abs(np.where(np.isfinite(values), values, 0.0)).max(initial=0.0))

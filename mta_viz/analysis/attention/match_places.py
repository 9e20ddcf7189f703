"""Where a kernel acts on a match: the place its shape points to, from its row of the kernel table."""

from dataclasses import dataclass

from mta_viz.analysis.kernels.naming import UNNAMED
from mta_viz.analysis.kernels.table import Row

ON_THE_MATCH = ("diagonal", "anti-diagonal", "smoothing", "sharpening")
_BEFORE = {"induction": (0, -1), "priming": (-1, 0), "inhibition of return": (-1, 0)}  # the main tap reads


@dataclass(frozen=True)
class Target:
    """Where a kernel's main tap writes what it reads at a match (i, j): cell (i + `query`, j + `key`)."""

    query: int
    key: int

    @property
    def words(self) -> str:
        """`the key after a match`."""
        side = "after" if self.key > 0 else "before"
        far = "" if abs(self.key) == 1 else f"{abs(self.key)} "
        place = f"the key {far}{side} a match" if self.key else "the matched key"
        later = f", {self.query} {'query' if self.query == 1 else 'queries'} later" if self.query else ""
        return place + later


def target_of(row: Row) -> Target:
    """Where a kernel's shape acts on a match, from its row of the kernel table.

    Of a template the place its line gives: diagonals and boxes hold the own tap, so the matched key itself;
    induction reads the key before, so the key after the match (alike other shifted diagonals); priming the
    query before, so the same key one query later. Of edges and single taps the place the largest tap besides
    the own one writes to: opposite to what it reads. Without a name the matched key itself.
    """
    shape, _, shift = row["shape"].removeprefix("negative ").partition(" at ")
    if shift:  # a diagonal at another key offset
        return Target(0, -int(shift))
    if shape in (*ON_THE_MATCH, *UNNAMED):
        return Target(0, 0)
    query, key = _BEFORE[shape] if shape in _BEFORE else (row["dominant_query"], row["dominant_key"])
    return Target(-query, -key)

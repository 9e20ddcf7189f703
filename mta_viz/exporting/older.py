"""Files saved before figures had names: a page's address and a figure's key on it, as a named figure.

Each room's file of figures has a table `OLDER` from key to the figure the address spoke of.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import Provenance
from mta_viz.figures import ROOMS
from mta_viz.figures.base import NamedFigure, Source

Made = NamedFigure[Any] | tuple[NamedFigure[Any], Source]  # the source where it is another: of two runs
Older = Callable[[dict[str, str], Source], Made]


def older_figure(provenance: Provenance, source: Source) -> tuple[NamedFigure[Any], Source]:
    """The named figure an older file speaks of, and what it is drawn from.

    Raises MtaVizError where this version has none such.
    """
    make = _tables().get(provenance.figure)
    if make is None:
        raise MtaVizError(
            f"the page {provenance.page} of an older version showed {provenance.figure!r}, which this "
            "version cannot make again; open its checkpoint in the app"
        )
    made = make(provenance.view, source)
    return made if isinstance(made, tuple) else (made, source)


def _tables() -> dict[str, Older]:
    tables = [import_module(f"mta_viz.figures.{room}").OLDER for room in ROOMS]
    return {key: make for table in tables for key, make in table.items()}

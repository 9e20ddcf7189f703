"""Every figure and table the product shows, by name: `figure("kernel-map", model, layer=5, head=7)`.

One file a room (attention, kernels, cause, compare, labs); `base` says what a named figure is.
"""

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mta_viz.errors import MtaVizError
from mta_viz.figures.base import REGISTRY, Drawn, NamedFigure, Source, drawn

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from mta_viz.model.transformer import HookedMTA
    from mta_viz.run.trace import Trace

ROOMS = ("attention", "kernels", "cause", "compare", "labs")


def registry() -> dict[str, type[NamedFigure[Any]]]:
    """Every figure by its name."""
    for room in ROOMS:
        import_module(f"mta_viz.figures.{room}")
    return REGISTRY


def spec(name: str, parameters: dict[str, Any]) -> NamedFigure[Any]:
    """The figure of this name with these parameters.

    Raises MtaVizError for a name nobody has, and listing every parameter that is unknown, missing or of the
    wrong kind.
    """
    from pydantic import TypeAdapter, ValidationError

    known = registry()
    if name not in known:
        raise MtaVizError(f"there is no figure named {name!r}; there are {', '.join(sorted(known))}")
    unknown = sorted(parameters.keys() - known[name].__dataclass_fields__.keys())
    if unknown:
        there = ", ".join(known[name].__dataclass_fields__) or "none"
        raise MtaVizError(f"{name} has no parameter {', '.join(unknown)}; its parameters are {there}")
    try:
        return TypeAdapter(known[name]).validate_python(parameters)
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        raise MtaVizError(f"{name} cannot be drawn with these parameters: {faults}") from error


def _fault(error: "ErrorDetails") -> str:
    """A parameter with what is wrong with it; what the parameters say of themselves together stands alone."""
    name, own = ".".join(map(str, error["loc"])), error.get("ctx", {}).get("error")
    words = error["msg"] if own is None else str(own)
    return f"{name}: {words}" if name else words


def figure(
    name: str,
    source: "HookedMTA | Trace",
    *,
    beside: "HookedMTA | Trace | None" = None,
    numbering: int = 0,
    **parameters: Any,
) -> Drawn:
    """A named figure of a model, or of a run (`mta_viz.capture`): `.figure`, `.table`, `.caption`.

    `beside` is the other model or run of a comparison; layers and heads are labelled from `numbering`.

    Raises MtaVizError for a name or parameters that are not there, and for figures that need a run.

    >>> drawn = mta_viz.figure("attention-map", trace, layer=3, head=1, stage="final")
    >>> drawn.table.columns[:3]
    ('layer', 'head', 'stage')
    """
    other = None if beside is None else _source(beside, numbering)
    chosen = _source(source, numbering)
    made = drawn(spec(name, parameters), Source(chosen.model, chosen.run, other, numbering))
    if made.figure is None:
        return made
    from plotly.graph_objects import Figure

    checked = Figure(made.figure)  # which checks what a notebook changes of it
    return replace(made, given=made.result, picture=checked)


def _source(given: "HookedMTA | Trace", numbering: int) -> Source:
    from mta_viz.run.trace import Trace

    if isinstance(given, Trace):
        return Source(given.model, given, numbering=numbering)
    return Source(given, numbering=numbering)

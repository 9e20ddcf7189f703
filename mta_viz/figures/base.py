"""What a named figure is: its parameters, and the way from a run to its result, picture, table and caption.

A figure is a class that `@named("...")` makes a frozen dataclass; its fields are its parameters, all of them
plain values, so that they can stand in a file and be read back. The app, the command line, a
notebook, `figure --from` and the export window all draw it through `drawn`; where a figure comes from is its
name and its parameters. Knows neither pages nor files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, dataclass_transform

from mta_viz.checkpoint import files
from mta_viz.errors import MtaVizError
from mta_viz.tables import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from mta_viz.model.transformer import HookedMTA
    from mta_viz.run.trace import Trace

R = TypeVar("R")
F = TypeVar("F", bound="type[NamedFigure]")


@dataclass(frozen=True)
class Source:
    """What a figure is drawn from: a model, a run of it where the figure needs one, and another beside it.

    `remember(make, *key)` is how results are kept (the app keeps them by run and key, elsewhere they are made
    at once), `remember_with_run` how those are that hold a run, of which there may be few, and
    `remember_weights` those that hang on the weights alone; `progress(share done)` may raise Cancelled;
    layers and heads are labelled from `numbering`.
    """

    model: "HookedMTA"
    run: "Trace | None" = None
    beside: "Source | None" = None
    numbering: int = 0
    remember: Callable[..., Any] = lambda make, *key: make()
    remember_with_run: Callable[..., Any] = lambda make, *key: make()
    remember_weights: Callable[..., Any] = lambda make, *key: make()
    progress: Callable[[float], None] = lambda share: None

    @property
    def trace(self) -> "Trace":
        """The run. Raises MtaVizError where there is none."""
        if self.run is None:
            raise MtaVizError("this figure needs a run of a prompt; give it a prompt")
        return self.run

    def of_run(self, make: Callable[..., R], *of: Hashable) -> R:
        """What `make` says of the run and these, made once."""
        return self.remember(partial(make, self.trace, *of), make.__name__, *of)

    def keeper(self, figure: "NamedFigure[Any]") -> Callable[..., Any]:
        """How a figure's result is kept."""
        return self.remember_with_run if figure.holds_run else self.remember

    @property
    def other(self) -> "Source":
        """What stands beside it. Raises MtaVizError where nothing does."""
        if self.beside is None:
            raise MtaVizError("this figure compares two runs; give it the other one")
        return self.beside

    @property
    def name(self) -> str:
        """The checkpoint's name, as files and captions have it."""
        source = self.model.source
        if source is None:
            return "model"
        return source.name if source.step is None else files.run_folder(files.beside(source.path)).name


@dataclass(frozen=True)
class NamedFigure(ABC, Generic[R]):
    """The base of every figure: subclasses add parameters as fields and say what is drawn.

    A figure without a picture is a table: `draw` gives None. `words` are a caption that is always the same.
    """

    name: ClassVar[str] = ""
    words: ClassVar[str] = ""
    holds_run: ClassVar[bool] = False  # whether its result holds a run, and with it a model

    @abstractmethod
    def result(self, source: Source) -> R:
        """What is shown, as a frozen result. Raises MtaVizError for parameters the run cannot serve."""

    def draw(self, source: Source, result: R) -> "go.Figure | None":
        """The picture; None for a table."""
        return None

    def table(self, source: Source, result: R) -> Table:
        """The numbers behind it: those of the result, unless the figure has others."""
        own: Any = result
        return own.table()

    def caption(self, source: Source, result: R) -> str:
        """What is shown, on which scale, in words."""
        return self.words

    def line(self, source: Source, result: R) -> str:
        """What a page writes under it, the caption behind a sign; the caption itself where that is short."""
        return self.caption(source, result)

    def file_parts(self) -> tuple[object, ...]:
        """The parts of a file's name after the model's, from 0: its name, its parameters without default."""
        needed = [field.name for field in fields(self) if field.default is MISSING]
        signs = {"layer": "L", "head": "H"}
        return (self.name, *(f"{signs.get(name, '')}{getattr(self, name)}" for name in needed))

    def cropped(
        self, queries: tuple[int, int] | None, keys: tuple[int, int] | None
    ) -> "NamedFigure[R] | None":
        """The same figure of some tokens only (ends excluded, None: as it is); None: it has no parts."""
        return None

    def parameters(self) -> dict[str, Any]:
        """The parameters as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Measured(NamedFigure[R]):
    """A figure whose result takes long. Those that share one say its name, and by which parameters."""

    result_of: ClassVar[str] = ""
    hangs_on: ClassVar[tuple[str, ...]] = ()

    @property
    def of_weights(self) -> bool:
        """Whether the prompt plays no part: the result is kept for the weights then, not for the run."""
        return False

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What the result is kept by."""
        return (self.result_of or self.name, *(getattr(self, name) for name in self.hangs_on))

    @abstractmethod
    def measure(self, source: Source) -> R:
        """The result; reports to `source.progress`."""

    def result(self, source: Source) -> R:
        remember = source.remember_weights if self.of_weights else source.keeper(self)
        return remember(lambda: self.measure(source), *self.key)


@dataclass(frozen=True)
class Drawn:
    """A figure with all that goes with it. In a notebook it shows as its picture, or as its table.

    Each part is made when it is first asked for, and may raise MtaVizError then. `given`: the result, where
    it was measured already, or as far as it came; then nothing of it is kept by the source. `picture` stands
    for the figure's own.
    """

    spec: NamedFigure[Any]
    source: Source
    given: Any = None
    picture: "go.Figure | None" = None

    @cached_property
    def result(self) -> Any:
        """What is shown."""
        if self.given is not None:
            return self.given
        remember = self.source.keeper(self.spec)
        return remember(lambda: self.spec.result(self.source), "result", self.spec.name, self.spec)

    @cached_property
    def figure(self) -> "go.Figure | None":
        """The picture; None for a table."""
        if self.picture is not None:
            return self.picture
        if self.given is not None:
            return self.spec.draw(self.source, self.given)
        key = ("picture", self.spec.name, self.spec, self.source.numbering)
        return self.source.remember(lambda: self.spec.draw(self.source, self.result), *key)

    @cached_property
    def caption(self) -> str:
        """What is shown, on which scale, in words."""
        return self.spec.caption(self.source, self.result)

    @cached_property
    def line(self) -> str:
        """What a page writes under it."""
        return self.spec.line(self.source, self.result)

    @property
    def table(self) -> Table:
        """The numbers behind it; made when they are asked for."""
        return self.spec.table(self.source, self.result)

    def cropped(self, queries: tuple[int, int] | None, keys: tuple[int, int] | None) -> "Drawn":
        """The same figure of some tokens only. Raises MtaVizError where that cannot be."""
        part = self.spec.cropped(queries, keys)
        if part is None:
            raise MtaVizError(f"of {self.spec.name} no part of the prompt can be drawn alone")
        return drawn(part, self.source)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if self.figure is not None:
            return self.figure._repr_mimebundle_(**options)
        return {"text/html": self.table.frame()._repr_html_(), "text/plain": repr(self.table.frame())}


REGISTRY: dict[str, type[NamedFigure[Any]]] = {}


@dataclass_transform(frozen_default=True)
def named(name: str, *, kw_only: bool = False) -> Callable[[F], F]:
    """A frozen dataclass registered as a figure under its name, which files keep: never given to another."""

    def register(figure: F) -> F:
        if name in REGISTRY:
            raise ValueError(f"two figures are named {name}")
        figure.name = name
        REGISTRY[name] = dataclass(frozen=True, kw_only=kw_only)(figure)
        return figure

    return register


def drawn(spec: NamedFigure[Any], source: Source, result: Any = None) -> Drawn:
    """The figure, its result and picture kept as the source keeps them. Raises as its parts do.

    `result`: what was measured already, or as far as it came.
    """
    figure = Drawn(spec, source, result)
    _ = figure.result, figure.figure, figure.caption  # so that what is wrong is said here
    return figure

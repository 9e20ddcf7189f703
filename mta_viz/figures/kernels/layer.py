"""One layer's kernels: all heads side by side, their head mixing, and how both came about in training."""

from dataclasses import dataclass
from typing import Any, ClassVar

import plotly.graph_objects as go

from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.table import FROM_START, OLDER, KernelCurves, kernel_curves
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.history import HISTORY_FILE, KernelHistory, read_history, read_run_history
from mta_viz.config import KernelPlace, MixingPlace, Where
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source, named
from mta_viz.figures.kernels.gallery import KernelFigure, model_layers
from mta_viz.plots.kernels.mosaic import Scale, kernel_grid, tap_limit, training_curves
from mta_viz.plots.kernels.paper import head_mixing
from mta_viz.tables import Table

READING = (
    "Each kernel reads the cells around the one it is read for: rows are earlier queries (0 = now), columns "
    "are keys to its left and right. The own tap is framed."
)
NO_HISTORY = (
    f"This checkpoint came without {HISTORY_FILE} and is no step of a run with several, so nothing is known "
    "of its kernels earlier in training. Open a run folder (checkpoints/0000010000/ and so on), or train "
    "with `python -m mta_viz train`, which writes that file beside the weights."
)
FOREIGN = (
    f"{HISTORY_FILE} does not hold this model's kernels: it belongs to another checkpoint, or these "
    "weights were trained on. It is not drawn."
)


@dataclass(frozen=True)
class _OfLayer(KernelFigure[kernels.LayerKernelSet]):
    layer: int
    where: Where = "pre"

    def result(self, source: Source) -> kernels.LayerKernelSet:
        """All kernels of the layer. Raises MtaVizError where it has none at that place."""
        kernels.check_layer(source.model.config, self.layer, self.where)
        return model_layers(source)[self.layer]


@named("layer-kernels")
class LayerKernels(_OfLayer):
    """The key-query kernels of a layer, a panel a head, for the screen; "kernels" is the printed one.

    `scale`: "shared" by all heads, or each its "own".
    """

    where: KernelPlace = "pre"
    scale: Scale = "shared"

    def draw(self, source: Source, result: kernels.LayerKernelSet) -> go.Figure:
        return kernel_grid(result, self.where, scale=self.scale, layer=self.layer, numbering=source.numbering)

    def caption(self, source: Source, result: kernels.LayerKernelSet) -> str:
        """How many there are, of which size, and how they are read."""
        count, c_q, c_k = result.taps(self.where)[0].shape
        return f"{count} kernels of {c_q} queries x {c_k} keys. {READING}"


@named("layer-mixing")
class LayerMixing(_OfLayer):
    """The head-mixing matrix of a layer; groups of heads are blocks."""

    words: ClassVar[str] = "Rows: what this target head receives; columns: the source heads it takes from."
    where: MixingPlace = "head_pre"

    def draw(self, source: Source, result: kernels.LayerKernelSet) -> go.Figure:
        return head_mixing(result, self.where, self.layer, numbering=source.numbering)


class NoHistory(MtaVizError):
    """Nothing is known of the kernels earlier in training."""


def training_history(source: Source) -> KernelHistory:
    """The file beside the weights, else the steps of the run they are one of. Raises NoHistory."""
    origin, config = source.model.source, source.model.config
    if origin is None:
        raise NoHistory(NO_HISTORY)

    def read() -> KernelHistory | None:
        history = read_history(beside(origin.path), config)
        return history or read_run_history(origin.path, config, source.progress)

    history = source.remember(read, "history")
    if history is None:
        raise NoHistory(NO_HISTORY)
    if not source.remember(lambda: history.holds(source.model.state_dict()), "history fits"):
        raise NoHistory(FOREIGN)
    return history


@dataclass(frozen=True)
class Snapshot:
    """A layer's kernels at a step, those at `where` drawn; `limit` is the colour limit of all steps."""

    where: KernelPlace
    layer: kernels.LayerKernelSet
    step: int
    limit: float

    def table(self) -> Table:
        """All kernels of the layer at that step."""
        return self.layer.table()


@named("training-kernels")
class TrainingKernels(KernelFigure[Snapshot]):
    """A layer's kernels at one step of their training (None: the last), colours alike at every step."""

    layer: int
    where: KernelPlace | None = None  # before the softmax, where the model has kernels there
    step: int | None = None

    def result(self, source: Source) -> Snapshot:
        """The snapshot. Raises NoHistory, and MtaVizError for a step or kernels that are not there."""
        history = training_history(source)
        at, config = snapshot_of(history, self.step), source.model.config
        where = self.where or kernels.kernel_places(config)[0]
        kernels.check_layer(config, self.layer, where)
        snapshot = kernels.layer_kernels(history.at(at), config, self.layer)
        _, offsets = snapshot.taps(where)
        every = history.kernels[f"blocks.{self.layer}.attn.kernel_{where}"]
        limit = tap_limit(every.flatten(0, 1).numpy(), offsets.own)
        return Snapshot(where, snapshot, history.steps[at], limit)

    def draw(self, source: Source, result: Snapshot) -> go.Figure:
        look: dict[str, Any] = {"limit": result.limit, "numbering": source.numbering}
        return kernel_grid(result.layer, result.where, layer=self.layer, **look)

    def caption(self, source: Source, result: Snapshot) -> str:
        words = f"The kernels {kernels.WHERE[result.where]} after {result.step:,} training steps."
        return f"{words} The colours mean the same at every step."


@named("training-curves")
class TrainingCurves(KernelFigure[KernelCurves]):
    """A score of a layer's kernels over training, one line a head; `head` is thick, `step` dotted."""

    layer: int
    where: KernelPlace | None = None  # as of "training-kernels"
    score: str = "distance_from_identity"
    head: int = 0
    step: int | None = None

    @property
    def shown(self) -> str:
        """The score, by its name of today."""
        return OLDER.get(self.score, self.score)

    def result(self, source: Source) -> KernelCurves:
        """All scores. Raises NoHistory, and MtaVizError for a score or kernels that are not there."""
        history, config = training_history(source), source.model.config
        where = self.where or kernels.kernel_places(config)[0]
        key = ("curves", self.layer, where)
        curves = source.remember(lambda: kernel_curves(history, config, self.layer, where), *key)
        if curves is None:
            raise MtaVizError(f"the history holds no kernel {kernels.WHERE[where]} of layer {self.layer}")
        if self.shown not in curves.values:
            raise MtaVizError(f"there is no score {self.score!r}; there are {', '.join(curves.values)}")
        return curves

    def draw(self, source: Source, result: KernelCurves) -> go.Figure:
        return training_curves(
            result,
            self.shown,
            head=self.head,
            snapshot=snapshot_of(training_history(source), self.step),
            title=f"L{self.layer + source.numbering}: {self.shown.replace('_', ' ')}",
            numbering=source.numbering,
        )

    def caption(self, source: Source, result: KernelCurves) -> str:
        return (
            f"One line a head, H{self.head + source.numbering} thick; hover names the others, a click "
            "chooses head and step. Dotted: the step chosen above. A line has a gap where the score means "
            "nothing."
        )


def snapshot_of(history: KernelHistory, step: int | None) -> int:
    """The place of a step among the snapshots, None: the last. Raises MtaVizError listing the steps."""
    if step is None:
        return len(history.steps) - 1
    if step not in history.steps:
        steps = ", ".join(map(str, history.steps))
        raise MtaVizError(f"no kernels are known of step {step}; there are the steps {steps}")
    return history.steps.index(step)


TRAINING_SCORES = (
    *("distance_from_identity", FROM_START, "energy_off_identity", "diagonal", "induction", "anti_diagonal"),
    *("priming", "smoothing", "first_of_run", "last_of_run", "dominant_share"),
)

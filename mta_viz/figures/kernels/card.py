"""One kernel's card: its taps, scores, probe, nearest kernels, frequencies; of head mixing a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.attention.matches import AtMatches, measure_matches
from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels import table as tables
from mta_viz.analysis.kernels.probes import ASSUMED, PROBES, ProbeResult, claims_of, probe_of, run_probe
from mta_viz.config import KernelPlace, MixingPlace
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source, named
from mta_viz.figures.kernels.gallery import BESIDE, KernelFigure, kernel_rows, model_layers
from mta_viz.plots.kernels import card as pictures
from mta_viz.printed import head_name
from mta_viz.tables import Table

SHAPES = (
    *("diagonal", "induction", "anti_diagonal", "priming", "smoothing"),
    *("first_of_run", "last_of_run", "dominant_share"),
)
SCALE_AFTER_SOFTMAX = (
    "After the softmax the group norm may divide a common factor out again, so the row is drawn at length 1: "
    "its raw scale is not identified."
)
R = TypeVar("R")


@dataclass(frozen=True)
class CardKernel:
    """One key-query kernel with its row of the kernel table and the model's kernels of the same size.

    `layer`: the table's rows of its layer.
    """

    row: tables.Row
    stack: kernels.KernelStack
    layer: tuple[tables.Row, ...]

    @property
    def kernel(self) -> kernels.KernelId:
        """Which it is."""
        return tables.kernel_of(self.row)

    @property
    def taps(self) -> Float[np.ndarray, "c_q c_k"]:
        """Its taps, float64."""
        return self.stack.taps[self.stack.ids.index(self.kernel)]

    @property
    def offsets(self) -> kernels.Offsets:
        """What they read."""
        return self.stack.offsets

    def table(self) -> Table:
        """A row a tap."""
        return Table.of(("query_offset", "key_offset", "value"), self.offsets.rows(self.taps))


def row_in(rows: Sequence[tables.Row], kernel: kernels.KernelId) -> tables.Row:
    """The kernel's row of the kernel table. Raises MtaVizError for a kernel the model lacks."""
    row = next((row for row in rows if tables.kernel_of(row) == kernel), None)
    if row is None:
        where = kernels.WHERE[kernel.where]
        raise MtaVizError(f"the model has no kernel {where} in layer {kernel.layer}, head {kernel.head}")
    return row


def card_kernel(source: Source, kernel: kernels.KernelId) -> CardKernel:
    """A key-query kernel. Raises MtaVizError for one the model lacks."""
    rows, weights, config = kernel_rows(source), source.model.state_dict(), source.model.config
    stacks = source.remember_weights(lambda: kernels.kernel_stacks(weights, config), "kernel stacks")
    layer = tuple(row for row in rows if row["layer"] == kernel.layer)
    return CardKernel(row_in(rows, kernel), next(stack for stack in stacks if kernel in stack.ids), layer)


@dataclass(frozen=True)
class _OfKernel(KernelFigure[R]):
    layer: int
    head: int
    where: KernelPlace = "pre"

    def kernel(self, source: Source) -> CardKernel:
        """The kernel it is of."""
        return card_kernel(source, kernels.KernelId(self.layer, self.head, self.where))


@named("kernel-taps")
class KernelTaps(_OfKernel[CardKernel]):
    """The taps with numbers, and the sums of their rows and columns."""

    words: ClassVar[str] = (
        "Rows: query offsets, columns: key offsets; bars: sums of columns and rows. Framed: the own tap."
    )
    hide_own: bool = False

    def result(self, source: Source) -> CardKernel:
        return self.kernel(source)

    def draw(self, source: Source, result: CardKernel) -> go.Figure:
        return pictures.kernel_picture(result.taps, result.offsets, hide_own=self.hide_own)


@named("kernel-scores")
class KernelScores(_OfKernel[CardKernel]):
    """How much of each shape a kernel holds, beside what Gaussian kernels reach."""

    words: ClassVar[str] = (
        "How much of each shape the taps hold, own tap left out; dominant share: the energy in one tap. "
        "First and last of run: how much more these get than a run's middle, by the large taps, all queries "
        "alike; an edge's name and score are of the fitted edge, its queries' weights free. A bar beyond its "
        "ticks is rare among Gaussian kernels."
    )

    def result(self, source: Source) -> CardKernel:
        """The kernel. Raises MtaVizError for one too small for any shape."""
        kernel = self.kernel(source)
        if all(kernel.row[name] is None for name in SHAPES):
            raise MtaVizError("This kernel is too small for any shape score.")
        return kernel

    def draw(self, source: Source, result: CardKernel) -> go.Figure:
        marks = source.remember_weights(
            lambda: tables.chance_marks(result.offsets), "chance marks", result.offsets
        )
        there = [name for name in SHAPES if result.row[name] is not None]
        bars = [
            pictures.ScoreBar(name.replace("_", " "), result.row[name], marks.get(name)) for name in there
        ]
        return pictures.score_bars(bars)

    def table(self, source: Source, result: CardKernel) -> Table:
        """A row a column of the kernel table that means something for this kernel."""
        rows = tuple((name, value) for name, value in result.row.items() if value is not None)
        return Table(("name", "value"), rows, exact=True)


def kernel_at_matches(source: Source, card: CardKernel) -> AtMatches | None:
    """What the kernel does where the run's tokens match; None without a run, or taps that are not finite.

    Every kernel of its layer is measured at once.
    """
    if source.run is None:
        return None
    run, layer = source.run, card.kernel.layer
    of_layer = source.remember(lambda: measure_matches(card.layer, [run]), "at matches", layer)
    measured: AtMatches | None = of_layer.get(card.kernel)
    return measured


@named("kernel-probe")
class KernelProbe(_OfKernel[ProbeResult]):
    """A synthetic map before and after the kernel; `probe` None: the one that tests the kernel's name.

    With a run matches score what they do in it, without one +1.
    """

    probe: str | None = None

    def result(self, source: Source) -> ProbeResult:
        """The probe's answer; its claim is the kernel's name where that is what the probe tests."""
        kernel = self.kernel(source)
        own = probe_of(kernel.row["shape"])
        probe = self.probe or own or PROBES[0]
        if probe not in PROBES:
            raise MtaVizError(f"there is no probe {probe!r}; there are {', '.join(PROBES)}")
        if not kernel.stack.usable()[kernel.stack.ids.index(kernel.kernel)]:
            raise MtaVizError("a kernel with NaN, infinite or only zero taps cannot be probed")
        claim = kernel.row["shape"] if probe == own else claims_of(probe, kernel.row)
        measured = kernel_at_matches(source, kernel)
        level = None if measured is None else measured.level
        return run_probe(kernel.taps, kernel.offsets, claim, level)

    def draw(self, source: Source, result: ProbeResult) -> go.Figure:
        return pictures.probe_picture(result)

    def caption(self, source: Source, result: ProbeResult) -> str:
        level = f"a match scores {ASSUMED.removeprefix('for a match of ')}, and the largest tap counts as 1"
        if result.level is not None:
            unit = "its mean above its row" if self.where == "pre" else "the mean weight"
            level = f"a match is {result.level:+.3g}, {unit} on this prompt"
        return (
            f"Probe “{result.probe}” for the shape “{result.claim}”: a part of a map whose keys all come "
            "before its queries. Rows: queries, columns: keys. Framed: where the number is read. "
            f"Here {level}. Beyond the border the kernel reads 0."
        )


@dataclass(frozen=True)
class NearKernels:
    """The kernels most like one, with their cosine and taps; all of the same size."""

    near: tuple[tuple[kernels.KernelId, float], ...]
    taps: Float[np.ndarray, "kernel c_q c_k"]
    offsets: kernels.Offsets

    def table(self) -> Table:
        """A row a tap of each."""
        rows = (
            (kernel.layer, kernel.head, kernel.where, cosine, *tap)
            for (kernel, cosine), taps in zip(self.near, self.taps, strict=True)
            for tap in self.offsets.rows(taps)
        )
        return Table.of(("layer", "head", "where", "cosine", "query_offset", "key_offset", "value"), rows)


@named("nearest-kernels")
class NearestKernels(_OfKernel[NearKernels]):
    """The model's kernels most like this one, own taps left out."""

    words: ClassVar[str] = (
        "The kernels most like this one, each on its own colour scale; before or after the softmax."
    )

    def result(self, source: Source) -> NearKernels:
        """Up to four. Raises MtaVizError where there is none to compare with."""
        kernel = self.kernel(source)
        near = tables.nearest_kernels(kernel.stack, kernel.kernel)
        if not near:
            raise MtaVizError(
                "No other kernel of this size to compare with, or this one has no tap besides its own."
            )
        taps = np.stack([kernel.stack.taps[kernel.stack.ids.index(other)] for other, _ in near])
        return NearKernels(near, taps, kernel.offsets)

    def draw(self, source: Source, result: NearKernels) -> go.Figure:
        places = [(head_name(at.layer, at.head, source.numbering), BESIDE[at.where]) for at, _ in result.near]
        names = [
            f"{' '.join(at)}<br>cosine {near[1]:+.2f}" for at, near in zip(places, result.near, strict=True)
        ]
        return pictures.neighbour_tiles(result.taps, result.offsets, names)


@dataclass(frozen=True)
class Response:
    """`sizes` of a kernel's answer to waves of these frequencies, in cycles a token."""

    frequencies: Float[np.ndarray, " frequency"]
    sizes: Float[np.ndarray, "query_frequency key_frequency"]

    def table(self) -> Table:
        """A row a pair of frequencies."""
        each = self.frequencies.tolist()
        rows = ((each[query], each[key], float(size)) for (query, key), size in np.ndenumerate(self.sizes))
        return Table.of(("query_frequency", "key_frequency", "size"), rows)


@named("kernel-frequencies")
class KernelFrequencies(_OfKernel[Response]):
    """How strongly a kernel answers waves over queries and keys."""

    words: ClassVar[str] = (
        "How strongly the kernel answers waves over queries and keys. Large in the middle: it "
        "smooths; large away from it: it sharpens or finds edges; even: it passes scores as they are."
    )

    def result(self, source: Source) -> Response:
        return Response(*tables.frequency_response(self.kernel(source).taps))

    def draw(self, source: Source, result: Response) -> go.Figure:
        return pictures.frequency_picture(result.frequencies, result.sizes)


@named("mixing-row")
class MixingRow(KernelFigure[kernels.LayerKernelSet]):
    """What one target head receives of each source head."""

    layer: int
    head: int
    where: MixingPlace = "head_pre"

    def result(self, source: Source) -> kernels.LayerKernelSet:
        """All kernels of the layer. Raises MtaVizError where it has no such row."""
        row_in(kernel_rows(source), kernels.KernelId(self.layer, self.head, self.where))
        return model_layers(source)[self.layer]

    def draw(self, source: Source, result: kernels.LayerKernelSet) -> go.Figure:
        """A bar a source head of the group; after the softmax the row is drawn at length 1."""
        first, own, matrix = mixing_group(result, self.where, self.head)
        drawn, unit = matrix[own], "weight"
        if self.where == "head_post":
            unit, length = "weight / length of the row", float(np.linalg.norm(drawn))
            drawn = drawn / length if np.isfinite(length) and length > 0 else drawn
        heads = range(first + source.numbering, first + source.numbering + len(drawn))
        labels = [f"H{head}" + " own" * (at == own) for at, head in enumerate(heads)]
        return pictures.mixing_row(drawn, labels, own, unit=unit)

    def caption(self, source: Source, result: kernels.LayerKernelSet) -> str:
        return (
            f"Target head H{self.head + source.numbering} receives this much of each source head. "
            "Subtracted: the part of that head taken off, per unit of the own weight. "
        ) + SCALE_AFTER_SOFTMAX * (self.where == "head_post")


def mixing_group(
    layer: kernels.LayerKernelSet, where: MixingPlace, head: int
) -> tuple[int, int, Float[np.ndarray, "target source"]]:
    """The first head of a head's group, the head's row in it, and the group's matrix, float64."""
    mixing = layer.mixing(where)
    group, own = divmod(head, mixing.shape[1])
    return group * mixing.shape[1], own, mixing[group].double().numpy()

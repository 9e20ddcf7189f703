"""The paper's figures of kernels, as they are printed: `width` is one column of two, or the page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention import kernel_map
from mta_viz.analysis.attention.maps import shared_limit
from mta_viz.analysis.attention.spans import Span, asked_span, needle_spans
from mta_viz.analysis.kernels import kernels, mixing
from mta_viz.config import KernelPlace, MixingPlace, ModelConfig
from mta_viz.errors import MtaVizError, PromptError, check_index
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.figures.kernels.gallery import KernelFigure
from mta_viz.plots.kernels import paper as pictures
from mta_viz.plots.kernels.gallery import common_limit
from mta_viz.plots.kernels.mosaic import tap_limit
from mta_viz.plots.theme import limit_text, score_text

Ends = tuple[int, int]  # the first, and the one after the last
OWN_BEYOND = "from what is not framed; beyond them the end colours"
R = TypeVar(
    "R", kernels.LayerPicture, kernel_map.KernelBesideMap, mixing.MixingOverLayers, mixing.MixingByLayer
)


@dataclass(frozen=True)
class PaperFigure(KernelFigure[R]):
    """What the paper's figures share: they are ready to print."""

    picture: ClassVar[Callable[..., go.Figure]]

    def draw(self, source: Source, result: R) -> go.Figure:
        return type(self).picture(result, width=self.parameters()["width"], numbering=source.numbering)


@named("kernels")
class Kernels(PaperFigure[kernels.LayerPicture]):
    """The key-query kernels of a layer, a panel a head."""

    picture = staticmethod(pictures.layer_figure)
    layer: int
    where: KernelPlace | None = None  # before the softmax, where the model has kernels there
    width: pictures.Width = "page"

    def result(self, source: Source) -> kernels.LayerPicture:
        """The taps. Raises MtaVizError where there are none, naming the layers that have some."""
        where = self.where or kernels.kernel_places(source.model.config)[0]
        return kernels.layer_picture(source.model.state_dict(), source.model.config, self.layer, where)

    def caption(self, source: Source, result: kernels.LayerPicture) -> str:
        """What is drawn, on which scale, and what could not be drawn."""
        (n_heads, c_q, c_k), start = result.taps.shape, source.numbering
        own = result.taps[:, result.offsets.own[0], result.offsets.own[1]]
        own = own[np.isfinite(own)]
        framed = f", {score_text(float(own.min()))} to {score_text(float(own.max()))}" if own.size else ""
        limit = limit_text(tap_limit(result.taps, result.offsets.own))
        return (
            f"Key-query kernels {kernels.WHERE[result.where]} of {source.name}, "
            f"layer {result.layer + start}: {_count(n_heads, 'head')}, {c_q} queries x {c_k} keys. "
            f"Rows: query offset, 0 (now) at the bottom; columns: key offset. "
            f"Framed: the own tap{framed}. Colour limits ±{limit}, {OWN_BEYOND}."
            f"{_broken(result.taps, [f'head {head + start}' for head in range(n_heads)])}{_counting(start)}"
        )


@named("kernel-map")
class KernelMap(PaperFigure[kernel_map.KernelBesideMap]):
    """A kernel beside the map it makes of a prompt, cut to the queries `rows` and the keys `keys`.

    Without them the question and the needle it asks for, as far as the prompt has them; without a layer and
    head those that attend most to the keys. `where` None: before the softmax, where the model has kernels.
    """

    picture = staticmethod(pictures.kernel_map_figure)
    layer: int | None = None
    head: int | None = None
    where: KernelPlace | None = None
    rows: Ends | None = None
    keys: Ends | None = None
    width: pictures.Width = "page"

    def result(self, source: Source) -> kernel_map.KernelBesideMap:
        """Kernel and map. Raises MtaVizError for what the model or the prompt has not."""
        where, (rows, keys) = self.where or kernels.kernel_places(source.model.config)[0], self.spans(source)
        if (self.layer is None) != (self.head is None):
            raise MtaVizError("a layer and a head go together: give both, or neither for the strongest")
        layer, head = self.layer, self.head
        if layer is None or head is None:
            layer, head = kernel_map.strongest_head(source.trace, rows, keys, where)
        check_index("head", head, source.model.config.n_heads)
        return kernel_map.kernel_beside_map(source.trace, kernels.KernelId(layer, head, where), rows, keys)

    def spans(self, source: Source) -> tuple[Span, Span]:
        """Rows and keys as they are shown. Raises PromptError where the prompt asks for no needle."""
        tokens, mta = source.trace.tokens, source.model.config.mta
        named_spans = needle_spans(tokens)
        keys = asked_span(named_spans) if self.keys is None else _span(self.keys, "A", len(tokens))
        if keys is None:
            raise PromptError("the prompt asks for no needle; name the keys to show")
        if self.rows is not None:
            return _span(self.rows, "B", len(tokens)), keys
        kernel = mta.pre_kernel or mta.post_kernel or (1, 1)
        return kernel_map.question_span(named_spans, len(tokens), kernel[0]), keys

    def caption(self, source: Source, result: kernel_map.KernelBesideMap) -> str:
        """Which kernel and which tokens, on which scales, and what is no number."""
        kernel, stage, start = result.kernel, result.attention.stage.value, source.numbering
        taps_limit = limit_text(tap_limit(result.taps[None], result.offsets.own))
        map_limit = limit_text(shared_limit([result.attention]))
        bad = _broken(result.taps[None], [f"head {kernel.head + start}"])
        if result.attention.n_bad:
            bad += f" Crosses: {_count(result.attention.n_bad, 'cell')} of the map not a number."
        return (
            f"Kernel of layer {kernel.layer + start}, head {kernel.head + start} of {source.name}, "
            f"{kernels.WHERE[kernel.where]}, and the map it makes: {stage.long} ({stage.unit}), "
            f"rows: “{_text(result, result.rows)}”, columns: “{_text(result, result.keys)}”, "
            f"in a prompt of {len(result.tokens)} tokens. Colour limits ±{taps_limit} for the taps "
            f"({OWN_BEYOND}), ±{map_limit} for the map.{bad}{_counting(start)}"
        )


@named("head-kernels")
class HeadKernels(PaperFigure[mixing.MixingOverLayers]):
    """The head-mixing matrices of these layers (none named: all), a panel a layer."""

    picture = staticmethod(pictures.mixing_figure)
    where: MixingPlace | None = None  # before the softmax, where the model mixes heads there
    layers: tuple[int, ...] = ()
    width: pictures.Width = "page"

    def result(self, source: Source) -> mixing.MixingOverLayers:
        """The matrices. Raises MtaVizError where heads are not mixed."""
        weights, config = source.model.state_dict(), source.model.config
        where = self.where or kernels.mixing_places(config)[0]
        return mixing.mixing_over_layers(weights, config, where, self.layers or None)

    def caption(self, source: Source, result: mixing.MixingOverLayers) -> str:
        """How it is read, the scale, and what is broken."""
        _, n_groups, size, _ = result.matrices.shape
        panels = "a layer" if n_groups == 1 else f"a layer (down) and group of {size} heads (across)"
        tiles = [pictures.matrix_tile("", matrix) for groups in result.matrices for matrix in groups]
        names = [f"layer {layer + source.numbering}" for layer in result.layers]
        return (
            f"Head-mixing kernels {kernels.WHERE[result.where]} of {source.name}: one panel {panels}. "
            "Rows: target heads, columns: the source heads they take from; framed: a head's weight on "
            f"itself. Colour limits ±{limit_text(common_limit(tiles))}, {OWN_BEYOND}."
            f"{_broken(result.matrices, names)}{_counting(source.numbering)}"
        )


@dataclass(frozen=True)
class _MixingBars(PaperFigure[mixing.MixingByLayer]):
    what: ClassVar[pictures.Bars] = "diagonal"
    width: pictures.Width = "page"

    def draw(self, source: Source, result: mixing.MixingByLayer) -> go.Figure:
        look: dict[str, Any] = {"width": self.width, "numbering": source.numbering}
        return pictures.bars_figure(result, self.what, **look)

    def result(self, source: Source) -> mixing.MixingByLayer:
        """Means by layer. Raises MtaVizError where heads are not mixed."""
        weights, config = source.model.state_dict(), source.model.config
        return mixing.mixing_by_layer(weights, config, off_diagonal=self.what == "ratio")

    def caption(self, source: Source, result: mixing.MixingByLayer) -> str:
        """What the bars are, and the layers without one."""
        marked = " Orange: layers with key-query kernels." if any(result.key_query) else ""
        places = " and ".join(kernels.WHERE[means.where] for means in result.places)
        bad = ""
        for means in result.places:
            numbers = pictures.bar_values(means, self.what)
            broken = [
                f"layer {layer + source.numbering} "
                + (f"(NaN in {_count(n_bad, 'weight')})" if n_bad else "(diagonal is 0)")
                for layer, (number, n_bad) in enumerate(zip(numbers, means.n_bad, strict=True))
                if not np.isfinite(number)
            ]
            bad += f" Without a number {kernels.WHERE[means.where]}: {', '.join(broken)}." if broken else ""
        of = f"of the head-mixing kernels of {source.name} by layer"
        return f"{self.words} {of}, {places}.{marked}{bad}{_counting(source.numbering)}"


@named("head-diagonal")
class HeadDiagonal(_MixingBars):
    """How much of itself a head keeps, by layer."""

    words: ClassVar[str] = "Mean size |w| of the diagonal"


@named("head-ratio")
class HeadRatio(_MixingBars):
    """How much a head takes of others, against what it keeps, by layer."""

    what: ClassVar[pictures.Bars] = "ratio"
    words: ClassVar[str] = "Mean size |w| of the off-diagonal over the mean size of the diagonal"


PAPER: tuple[type[PaperFigure[Any]], ...] = (Kernels, KernelMap, HeadKernels, HeadDiagonal, HeadRatio)


def every_kernel(config: ModelConfig, width: pictures.Width = "page") -> Iterator[NamedFigure[Any]]:
    """All a model's kernels: a figure a layer and place, then one of each kind of head mixing over layers."""
    for place in kernels.KEY_QUERY:
        for layer in kernels.layers_having(config, place):
            yield Kernels(layer, place, width)
    for mixes in kernels.MIXING:
        if kernels.layers_having(config, mixes):
            yield HeadKernels(mixes, width=width)


def _span(ends: Ends, letter: str, n_tokens: int) -> Span:
    if ends[1] > n_tokens:
        raise PromptError(f"the prompt has {n_tokens} tokens; choose rows and keys inside it")
    return Span(f"tokens {ends[0]}–{ends[1] - 1}", letter, *ends)


def _text(result: kernel_map.KernelBesideMap, span: Span) -> str:
    tokens = result.tokens
    if tokens.text is None:
        return " ".join(tokens.pieces[at] for at in span.positions)
    return tokens.text[tokens.spans[span.start][0] : tokens.spans[span.stop - 1][1]].strip()


def _broken(stack: np.ndarray, names: Sequence[str]) -> str:
    """Which parts of a stack, along its first axis, hold NaN, or nothing but 0."""
    counts = (~np.isfinite(stack)).reshape(len(stack), -1).sum(1)
    bad = [f"{name} ({_count(int(n), 'value')})" for name, n in zip(names, counts, strict=True) if n]
    zero = [name for name, part in zip(names, stack, strict=True) if not part.any()]
    return (f" Crosses: NaN or infinite in {', '.join(bad)}." if bad else "") + (
        f" All 0: {', '.join(zero)}." if zero else ""
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _counting(numbering: int) -> str:
    return f" Layers and heads count from {numbering}."

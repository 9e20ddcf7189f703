"""What the paper's figures of kernels show, for any checkpoint: the numbers behind each, nothing drawn.

A kernel beside its map is shown as the paper shows the needle: queries of the question x keys of the asked
needle. Layers and heads count from 0 in results and messages. Raises MtaVizError, saying what a model lacks,
instead of returning an empty result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.maps import AttentionMap, exact_map
from mta_viz.analysis.attention.spans import QUESTION, Span, share_and_mass
from mta_viz.analysis.cause.kernel_effect import MADE_BY
from mta_viz.analysis.kernels.kernels import (
    KEY_QUERY,
    MIXING,
    WHERE,
    KernelId,
    MixPlace,
    Offsets,
    Place,
    layer_kernels,
)
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import KERNELS_ONLY, Trace
from mta_viz.tables import Row, Table
from mta_viz.tasks.needles import NeedleSample, NeedleTask, make_needle_sample
from mta_viz.tokenizers.base import Tokens


@dataclass(frozen=True)
class LayerPicture:
    """The key-query kernels of one layer and place, one a head."""

    layer: int
    where: Place
    taps: Float[np.ndarray, "head c_q c_k"]
    offsets: Offsets

    def table(self) -> Table:
        """A row a tap."""
        columns = ("layer", "where", "head", "query_offset", "key_offset", "value")
        rows = (
            (self.layer, self.where, head, *tap)
            for head, taps in enumerate(self.taps)
            for tap in self.offsets.rows(taps)
        )
        return Table.of(columns, rows)


@dataclass(frozen=True)
class MixingOverLayers:
    """The head-mixing matrices of one place, a group of heads at a time."""

    where: MixPlace
    layers: tuple[int, ...]
    matrices: Float[np.ndarray, "layer group target source"]

    def table(self) -> Table:
        """A row a weight, heads counted over all groups."""
        size = self.matrices.shape[-1]
        columns = ("layer", "where", "group", "target_head", "source_head", "value")
        rows = (
            (layer, self.where, group, group * size + target, group * size + source, float(weight))
            for layer, groups in zip(self.layers, self.matrices, strict=True)
            for (group, target, source), weight in np.ndenumerate(groups)
        )
        return Table.of(columns, rows)


@dataclass(frozen=True)
class MixingMeans:
    """Means over a layer's head-mixing weights of one place, float64; NaN in a layer that holds NaN.

    "Size" is |w|, the mean is over all groups at once. Without off-diagonal weights (groups of one head)
    their means are NaN. `n_bad`: weights that are NaN or infinite.
    """

    where: MixPlace
    diagonal_size: Float[np.ndarray, " layer"]
    diagonal: Float[np.ndarray, " layer"]
    off_diagonal_size: Float[np.ndarray, " layer"]
    off_diagonal: Float[np.ndarray, " layer"]
    n_bad: tuple[int, ...]

    @property
    def ratio(self) -> Float[np.ndarray, " layer"]:
        """Mean off-diagonal size over mean diagonal size; NaN where the diagonal is 0."""
        return _ratio(self.off_diagonal_size, self.diagonal_size)

    @property
    def signed_ratio(self) -> Float[np.ndarray, " layer"]:
        """The same of the means with their signs."""
        return _ratio(self.off_diagonal, self.diagonal)

    def rows(self, key_query: Sequence[bool]) -> Iterator[Row]:
        """A row a layer, as `MixingByLayer.table` has them."""
        columns = (
            *(self.diagonal_size, self.diagonal, self.off_diagonal_size, self.off_diagonal),
            *(self.ratio, self.signed_ratio),
        )
        for layer, marked in enumerate(key_query):
            numbers = (float(column[layer]) for column in columns)
            yield (self.where, layer, int(marked), *numbers, self.n_bad[layer])


@dataclass(frozen=True)
class MixingByLayer:
    """The means of each place that mixes heads; `key_query[layer]`: whether it has key-query kernels."""

    places: tuple[MixingMeans, ...]
    key_query: tuple[bool, ...]

    def table(self) -> Table:
        """A row a place and layer: means of sizes and of signed values, their ratios, how many are NaN."""
        columns = (
            *("where", "layer", "key_query_kernels", "mean_abs_diagonal", "mean_diagonal"),
            *("mean_abs_off_diagonal", "mean_off_diagonal", "ratio_of_abs", "ratio_of_signed", "nan_weights"),
        )
        rows = (row for means in self.places for row in means.rows(self.key_query))
        return Table(columns, tuple(rows), exact=True)


def layer_picture(
    state_dict: Mapping[str, Tensor], config: ModelConfig, layer: int, where: Place
) -> LayerPicture:
    """The kernels of all heads of a layer; `state_dict` has the names of `parameter_shapes(config)`."""
    check_layer(config, layer, where)
    kernels = layer_kernels(state_dict, config, layer)
    taps, offsets = kernels.taps(where), kernels.offsets(where)
    if taps is None or offsets is None:
        raise MtaVizError(f"the weights hold no key-query kernel {WHERE[where]} of layer {layer}")
    return LayerPicture(layer, where, taps.numpy(), offsets)


def layers_having(config: ModelConfig, where: Place | MixPlace) -> tuple[int, ...]:
    """Layers with a kernel at that place."""
    return tuple(at for at in range(config.n_layers) if getattr(config.kernels(at), where))


def kernel_places(config: ModelConfig) -> tuple[Place, ...]:
    """Where the model has key-query kernels. Raises MtaVizError where it has none."""
    places = tuple(place for place in KEY_QUERY if layers_having(config, place))
    if not places:
        raise MtaVizError(f"{_nothing(config)} no key-query kernels. This figure needs a model that has some")
    return places


def mixing_places(config: ModelConfig) -> tuple[MixPlace, ...]:
    """Where the model mixes heads. Raises MtaVizError where it does not."""
    places = tuple(place for place in MIXING if layers_having(config, place))
    if not places:
        raise MtaVizError(f"{_nothing(config)} no head mixing. This figure needs a model that mixes heads")
    return places


def mixing_over_layers(
    state_dict: Mapping[str, Tensor],
    config: ModelConfig,
    where: MixPlace,
    layers: Sequence[int] | None = None,
) -> MixingOverLayers:
    """The head-mixing matrices of some layers (None: all)."""
    wanted = tuple(range(config.n_layers)) if layers is None else tuple(layers)
    for layer in wanted:
        check_layer(config, layer, where)
    stack = [layer_kernels(state_dict, config, layer).mixing(where) for layer in wanted]
    return MixingOverLayers(
        where, wanted, np.stack([mixing.numpy() for mixing in stack if mixing is not None])
    )


def mixing_by_layer(
    state_dict: Mapping[str, Tensor], config: ModelConfig, *, off_diagonal: bool = False
) -> MixingByLayer:
    """Mean diagonal and off-diagonal weights by layer; `off_diagonal`: only places that have such weights."""
    stacks = [mixing_over_layers(state_dict, config, place) for place in mixing_places(config)]
    if off_diagonal:
        stacks = [stack for stack in stacks if stack.matrices.shape[-1] > 1]
    if not stacks:
        raise MtaVizError("heads are mixed in groups of one, which have no off-diagonal weights to compare")
    key_query = tuple(
        bool(config.kernels(at).pre or config.kernels(at).post) for at in range(config.n_layers)
    )
    return MixingByLayer(tuple(map(_means, stacks)), key_query)


def check_layer(config: ModelConfig, layer: int, where: Place | MixPlace) -> None:
    """Raises MtaVizError unless the layer has a kernel at that place, naming those that have."""
    if not 0 <= layer < config.n_layers:
        raise MtaVizError(f"there is no layer {layer}; the model has layers 0 to {config.n_layers - 1}")
    if layer not in layers_having(config, where):
        raise MtaVizError(lacking(config, where, layer))


def lacking(config: ModelConfig, where: Place | MixPlace, layer: int | None = None) -> str:
    """What a layer, or the model, does not have, and what it has."""
    kind = "key-query kernel" if where in KEY_QUERY else "head mixing"
    having = layers_having(config, where)
    if having:
        return f"layer {layer} has no {kind} {WHERE[where]}; layers that have: {', '.join(map(str, having))}"
    return f"{_nothing(config)} no {kind} {WHERE[where]}"


def _nothing(config: ModelConfig) -> str:
    some = any(config.kernels(layer).any for layer in range(config.n_layers))
    return "this checkpoint has" if some else "this checkpoint has no kernels at all:"


def _means(stack: MixingOverLayers) -> MixingMeans:
    weights = stack.matrices.astype(np.float64)
    own = np.eye(weights.shape[-1], dtype=bool)
    finite = np.isfinite(weights)
    weights = np.where(finite, weights, np.nan)

    def mean(of: Callable[[np.ndarray], np.ndarray], where: np.ndarray) -> np.ndarray:
        chosen = of(weights)[..., where].reshape(len(weights), -1)
        return chosen.mean(1) if chosen.size else np.full(len(weights), np.nan)

    return MixingMeans(
        stack.where,
        mean(np.abs, own),
        mean(np.positive, own),
        mean(np.abs, ~own),
        mean(np.positive, ~own),
        tuple((~finite).sum((1, 2, 3)).tolist()),
    )


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below != 0)


NEEDLES, MOST_TOKENS = 4, 512


@dataclass(frozen=True)
class KernelBesideMap:
    """A kernel, and the map it makes cut to the queries of `rows` and the keys of `keys`.

    `attention` is exact, at the stage right after the kernel; `tokens` are the whole prompt's.
    """

    kernel: KernelId
    taps: Float[np.ndarray, "c_q c_k"]
    offsets: Offsets
    attention: AttentionMap
    tokens: Tokens
    rows: Span
    keys: Span

    def table(self) -> Table:
        """The kernel's taps, then the map's cells; a masked cell has no value."""
        columns = (
            *("part", "layer", "head", "where", "query_offset", "key_offset"),
            *("query", "query_token", "key", "key_token", "value", "masked"),
        )
        return Table(columns, (*self._tap_rows(), *self._cell_rows()))

    def _tap_rows(self) -> Iterator[Row]:
        kernel = ("kernel", self.kernel.layer, self.kernel.head, self.kernel.where)
        for query, key, value in self.offsets.rows(self.taps):
            yield (*kernel, query, key, None, None, None, None, value, 0)

    def _cell_rows(self) -> Iterator[Row]:
        map_of = ("map", self.kernel.layer, self.kernel.head, self.kernel.where, None, None)
        pieces = self.tokens.pieces
        for query, row in zip(self.rows.positions, self.attention.values.tolist(), strict=True):
            for key, value in zip(self.keys.positions, row, strict=True):
                cell = (query, pieces[query], key, pieces[key], None if key > query else value)
                yield (*map_of, *cell, int(key > query))


def needle_sample(model: HookedMTA) -> NeedleSample:
    """A prompt of the needle task, half the trained length and at most 512 tokens, the asked needle amid it.

    Raises TokenizerError and PromptError for a model that cannot be given one.
    """
    if model.kernels_only:
        raise PromptError(KERNELS_ONLY)
    if model.tokenizer is None:
        raise TokenizerError("the needle prompt needs the checkpoint's tokenizer, which is not here")
    task = NeedleTask(NEEDLES, min(model.config.n_ctx // 2, MOST_TOKENS), 50)
    return make_needle_sample(model.tokenizer, task, 0)


def gold_spans(sample: NeedleSample) -> tuple[Span, Span]:
    """The question (rows of the figure) and the asked needle (keys)."""
    by_kind = {span.kind: span for span in sample.spans}
    question, asked = by_kind["question"], by_kind["asked"]
    return (
        Span("question", "?", question.start, question.stop),
        Span(f"{asked.city} (asked)", "A", asked.start, asked.stop),
    )


def question_span(named: Sequence[Span], n_tokens: int, n_queries: int) -> Span:
    """The question among a prompt's named spans, else its last tokens, as many as a kernel has queries."""
    question = next((span for span in named if span.letter == QUESTION), None)
    return question or Span("last tokens", QUESTION, max(n_tokens - n_queries, 0), n_tokens)


def asked_span(named: Sequence[Span]) -> Span | None:
    """The asked needle among a prompt's named spans."""
    return next((span for span in named if span.name.endswith("(asked)")), None)


def strongest_head(trace: Trace, rows: Span, keys: Span, where: Place) -> tuple[int, int]:
    """(layer, head), among layers with a kernel at `where`, whose last row attends most to `keys`.

    Measured on the final weights of the last query of `rows`: sum over the keys of |P| over sum of |P|.
    """
    query = rows.stop - 1
    best, found = -1.0, None
    for layer in layers_having(trace.model.config, where):
        row = trace.maps(layer, Stage.PATTERN, slice(query, query + 1))[:, 0, : query + 1]
        share, head = share_and_mass(row, keys)[0].nan_to_num(nan=-1.0).max(0)
        if found is None or float(share) > best:
            best, found = float(share), (layer, int(head))
    if found is None:
        raise MtaVizError(lacking(trace.model.config, where))
    return found


def kernel_beside_map(trace: Trace, kernel: KernelId, rows: Span, keys: Span) -> KernelBesideMap:
    """A key-query kernel and its map, cut to queries x keys. Raises PromptError where all is masked."""
    where: Place = "pre" if kernel.where == "pre" else "post"
    check_layer(trace.model.config, kernel.layer, kernel.where)
    if max(rows.stop, keys.stop) > len(trace.tokens):
        raise PromptError(f"the prompt has {len(trace.tokens)} tokens; choose spans inside it")
    if keys.start >= rows.stop:
        raise PromptError(
            f"every key of {keys.name!r} comes after every query of {rows.name!r}: nothing is attended to. "
            "Choose keys before the queries"
        )
    picture = layer_picture(trace.model.state_dict(), trace.model.config, kernel.layer, where)
    attention = exact_map(
        trace,
        kernel.layer,
        MADE_BY[where],
        kernel.head,
        slice(rows.start, rows.stop),
        slice(keys.start, keys.stop),
    )
    taps = picture.taps[kernel.head]
    return KernelBesideMap(kernel, taps, picture.offsets, attention, trace.tokens, rows, keys)

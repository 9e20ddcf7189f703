"""The learned kernels of a layer with their real offsets, from a state dict: no model is built.

Owns which tap reads which query and key, which layers have kernels, and what is said of one that has none.
Layers and heads count from 0 in results and messages.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.config import KEY_QUERY, MIXING, KernelPlace, MixingPlace, ModelConfig, Where
from mta_viz.errors import MtaVizError
from mta_viz.model.stages import Stage
from mta_viz.tables import Table

P = TypeVar("P", bound=Where)
WHERE: dict[Where, str] = {
    "pre": "before the softmax",
    "head_pre": "before the softmax",
    "post": "after the softmax",
    "head_post": "after the softmax",
}
SHORT: dict[Where, str] = {"pre": "pre", "post": "post", "head_pre": "mix pre", "head_post": "mix post"}
MADE_BY: dict[Where, Stage] = {
    "pre": Stage.KQ,
    "head_pre": Stage.MIX,
    "post": Stage.SOFTMAX_KQ,
    "head_post": Stage.PATTERN,
}
NEAR_IDENTITY = 0.05


@dataclass(frozen=True, order=True)
class KernelId:
    """Which kernel of a model: for head mixing `head` is the target whose row is meant. Counts from 0."""

    layer: int
    head: int
    where: Where

    def name(self, numbering: int = 0) -> str:
        """`L2 H1 pre`, counted from `numbering`."""
        return f"L{self.layer + numbering} H{self.head + numbering} {SHORT[self.where]}"

    @classmethod
    def named(cls, name: object) -> "KernelId":
        """The kernel of a `name()` counted from 0. Raises ValueError for anything else."""
        parts = re.fullmatch(r"L(\d{1,4}) H(\d{1,4}) (.+)", name) if isinstance(name, str) else None
        places: list[Where] = [where for where, short in SHORT.items() if parts and parts[3] == short]
        if parts is None or not places:
            raise ValueError('no kernel; expected "L2 H1 pre", "L2 H1 mix post" ...')
        return cls(int(parts[1]), int(parts[2]), places[0])


@dataclass(frozen=True)
class Offsets:
    """What the taps of a [c_q, c_k] kernel read, relative to the cell they are read for.

    `query`: -(c_q-1)..0, one per row; `key`: one per column, negative = an earlier key.
    The own tap is the one at offsets (0, 0).
    """

    query: tuple[int, ...]
    key: tuple[int, ...]

    @property
    def own(self) -> tuple[int, int]:
        """Row and column of the own tap."""
        return self.query.index(0), self.key.index(0)

    def rows(self, taps: Float[Array, "c_q c_k"]) -> Iterator[tuple[int, int, float]]:
        """(query offset, key offset, value) of every tap."""
        for query, line in zip(self.query, taps.tolist(), strict=True):
            for key, value in zip(self.key, line, strict=True):
                yield query, key, value


@dataclass(frozen=True)
class LayerKernelSet:
    """All kernels of one layer, float32; None where the layer has none.

    `pre` and `post` are the key-query kernels before and after the softmax, `head_pre` and
    `head_post` the head mixing; the two places may have different kernel sizes.
    """

    pre: Float[Tensor, "head c_q c_k"] | None
    post: Float[Tensor, "head post_c_q post_c_k"] | None
    head_pre: Float[Tensor, "group target source"] | None
    head_post: Float[Tensor, "post_group post_target post_source"] | None
    pre_offsets: Offsets | None
    post_offsets: Offsets | None

    def taps(self, where: Where) -> tuple[Float[Tensor, "head c_q c_k"], Offsets]:
        """The key-query kernels there, and their offsets. Raises MtaVizError where the layer has none."""
        taps, offsets = getattr(self, where), getattr(self, f"{where}_offsets", None)
        if taps is None or offsets is None:
            raise MtaVizError(f"the layer has no key-query kernel {WHERE[where]}")
        return taps, offsets

    def mixing(self, where: Where) -> Float[Tensor, "group target source"]:
        """The head mixing at `head_pre` or `head_post`. Raises MtaVizError where the layer has none."""
        mixing = self.head_pre if where == "head_pre" else self.head_post
        if mixing is None:
            raise MtaVizError(f"the layer mixes no heads {WHERE[where]}")
        return mixing

    def key_query(self) -> Iterator[tuple[KernelPlace, Float[Tensor, "head c_q c_k"], Offsets]]:
        """The key-query kernels the layer has, with their place and offsets."""
        yield from ((place, *self.taps(place)) for place in KEY_QUERY if getattr(self, place) is not None)

    def groups(self) -> Iterator[tuple[MixingPlace, int, Float[Tensor, "target source"]]]:
        """The head mixing the layer has, a group at a time: its place, the group's number, its matrix."""
        for place in MIXING:
            if getattr(self, place) is not None:
                yield from ((place, group, matrix) for group, matrix in enumerate(self.mixing(place)))

    def table(self) -> Table:
        """All kernels of the layer: a row a tap (offsets) and a row a mixing weight (target, source)."""
        columns = ("kind", "head", "query_offset", "key_offset", "target_head", "source_head", "value")
        taps = (
            (place, head, query, key, None, None, value)
            for place, kernels, offsets in self.key_query()
            for head, kernel in enumerate(kernels.numpy())
            for query, key, value in offsets.rows(kernel)
        )
        weights = (
            (place, *[None] * 3, group * len(matrix) + target, group * len(matrix) + source, float(value))
            for place, group, matrix in self.groups()
            for (target, source), value in np.ndenumerate(matrix.numpy())
        )
        return Table.of(columns, chain(taps, weights))


def layer_kernels(state_dict: Mapping[str, Tensor], config: ModelConfig, layer: int) -> LayerKernelSet:
    """Read one layer's kernels; `state_dict` has the names of `parameter_shapes(config)`."""

    def read(name: str) -> Tensor | None:
        tensor = state_dict.get(f"blocks.{layer}.attn.{name}")
        return None if tensor is None else tensor.detach().float().cpu()

    pre, post = read("kernel_pre"), read("kernel_post")
    offsets = (None if taps is None else kernel_offsets(config, *taps.shape[-2:]) for taps in (pre, post))
    return LayerKernelSet(pre, post, read("head_pre"), read("head_post"), *offsets)


def kernel_offsets(config: ModelConfig, query_size: int, key_size: int) -> Offsets:
    """Offsets of a kernel of that size, by the side the keys are padded on."""
    left = config.key_pad_left(key_size)
    return Offsets(query=tuple(range(1 - query_size, 1)), key=tuple(range(-left, key_size - left)))


@dataclass(frozen=True)
class KernelStack:
    """All key-query kernels of a model that have the same taps: `taps[i]` belongs to `ids[i]`."""

    ids: tuple[KernelId, ...]
    offsets: Offsets
    taps: Float[Array, "kernel c_q c_k"]

    def usable(self) -> Array:
        """Kernels that are finite and not all 0."""
        return np.isfinite(self.taps).all((-2, -1)) & (self.taps != 0).any((-2, -1))


def kernel_stacks(
    state_dict: Mapping[str, Tensor], config: ModelConfig, *, by_place: bool = False
) -> tuple[KernelStack, ...]:
    """The key-query kernels of a model, one stack a size, `by_place` one a size and place.

    `state_dict` as in `layer_kernels`.
    """
    by_offsets: dict[tuple[Offsets, KernelPlace | None], tuple[list[KernelId], list[Array]]] = {}
    for layer in range(config.n_layers):
        for where, taps, offsets in layer_kernels(state_dict, config, layer).key_query():
            ids, stack = by_offsets.setdefault((offsets, where if by_place else None), ([], []))
            ids += [KernelId(layer, head, where) for head in range(len(taps))]
            stack.append(taps.double().numpy())
    return tuple(
        KernelStack(tuple(ids), offsets, np.concatenate(stack))
        for (offsets, _), (ids, stack) in by_offsets.items()
    )


def near_identity(kernels: Float[Tensor, "head c_q c_k"], own: tuple[int, int]) -> Bool[Tensor, " head"]:
    """Kernels with less than 5 % of their energy outside the own tap."""
    energy = kernels.double().square()
    total = energy.sum((-2, -1))
    return (total > 0) & (1 - energy[:, own[0], own[1]] / total < NEAR_IDENTITY)


@dataclass(frozen=True)
class LayerPicture:
    """The key-query kernels of one layer and place, one a head."""

    layer: int
    where: Where
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


def layer_picture(
    state_dict: Mapping[str, Tensor], config: ModelConfig, layer: int, where: Where
) -> LayerPicture:
    """The kernels of all heads of a layer; `state_dict` has the names of `parameter_shapes(config)`."""
    check_layer(config, layer, where)
    taps, offsets = layer_kernels(state_dict, config, layer).taps(where)
    return LayerPicture(layer, where, taps.numpy(), offsets)


def layers_having(config: ModelConfig, where: Where) -> tuple[int, ...]:
    """Layers with a kernel at that place."""
    return tuple(at for at in range(config.n_layers) if getattr(config.kernels(at), where))


def kernels_at(config: ModelConfig, places: Sequence[Where]) -> tuple[KernelId, ...]:
    """Every kernel at these places, head mixing by its target's rows, in the order of layers."""
    return tuple(
        KernelId(layer, head, where)
        for layer in range(config.n_layers)
        for where in places
        if getattr(config.kernels(layer), where)
        for head in range(config.n_heads)
    )


def kernel_places(config: ModelConfig) -> tuple[KernelPlace, ...]:
    """Where the model has key-query kernels. Raises MtaVizError where it has none."""
    return _places(config, KEY_QUERY, "key-query kernels. This figure needs a model that has some")


def mixing_places(config: ModelConfig) -> tuple[MixingPlace, ...]:
    """Where the model mixes heads. Raises MtaVizError where it does not."""
    return _places(config, MIXING, "head mixing. This figure needs a model that mixes heads")


def _places(config: ModelConfig, every: Sequence[P], lack: str) -> tuple[P, ...]:
    places = tuple(place for place in every if layers_having(config, place))
    if not places:
        raise MtaVizError(f"{_nothing(config)} no {lack}")
    return places


def check_layer(config: ModelConfig, layer: int, where: Where) -> None:
    """Raises MtaVizError unless the layer has a kernel at that place, naming those that have."""
    if not 0 <= layer < config.n_layers:
        raise MtaVizError(f"there is no layer {layer}; the model has layers 0 to {config.n_layers - 1}")
    if layer not in layers_having(config, where):
        raise MtaVizError(lacking(config, where, layer))


def lacking(config: ModelConfig, where: Where, layer: int | None = None) -> str:
    """What a layer, or the model, does not have, and what it has."""
    kind = "key-query kernel" if where in KEY_QUERY else "head mixing"
    having = layers_having(config, where)
    if having:
        return f"layer {layer} has no {kind} {WHERE[where]}; layers that have: {', '.join(map(str, having))}"
    return f"{_nothing(config)} no {kind} {WHERE[where]}"


def _nothing(config: ModelConfig) -> str:
    some = any(config.kernels(layer).any for layer in range(config.n_layers))
    return "this checkpoint has" if some else "this checkpoint has no kernels at all:"

"""What the paper's figures of kernels show, for any checkpoint: the numbers behind each, nothing drawn.

The kernel beside its map on a prompt is `paper_map.py`'s. Layers and heads count from 0 in results and
messages. Raises MtaVizError, saying what a model lacks, instead of returning an empty result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.kernels import WHERE, MixPlace, Offsets, Place, layer_kernels
from mta_viz.config import LayerKernels, ModelConfig
from mta_viz.errors import MtaVizError

Preset = Literal["kernels", "kernel-map", "head-kernels", "head-diagonal", "head-ratio"]


@dataclass(frozen=True)
class LayerPicture:
    """The key-query kernels of one layer and place, one a head."""

    layer: int
    where: Place
    taps: Float[np.ndarray, "head c_q c_k"]
    offsets: Offsets


@dataclass(frozen=True)
class MixingOverLayers:
    """The head-mixing matrices of one place, a group of heads at a time."""

    where: MixPlace
    layers: tuple[int, ...]
    matrices: Float[np.ndarray, "layer group target source"]


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


@dataclass(frozen=True)
class MixingByLayer:
    """The means of each place that mixes heads; `key_query[layer]`: whether it has key-query kernels."""

    places: tuple[MixingMeans, ...]
    key_query: tuple[bool, ...]


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
    places: tuple[Place, ...] = tuple(place for place in get_args(Place) if layers_having(config, place))
    if not places:
        raise MtaVizError(f"{_nothing(config)} no key-query kernels. This figure needs a model that has some")
    return places


def mixing_places(config: ModelConfig) -> tuple[MixPlace, ...]:
    """Where the model mixes heads. Raises MtaVizError where it does not."""
    places: tuple[MixPlace, ...] = tuple(at for at in get_args(MixPlace) if layers_having(config, at))
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
    found = [layer_kernels(state_dict, config, layer).mixing(where) for layer in wanted]
    return MixingOverLayers(where, wanted, np.stack([one.numpy() for one in found if one is not None]))


def mixing_by_layer(
    state_dict: Mapping[str, Tensor], config: ModelConfig, *, off_diagonal: bool = False
) -> MixingByLayer:
    """Mean diagonal and off-diagonal weights by layer; `off_diagonal`: only places that have such weights."""
    stacks = [mixing_over_layers(state_dict, config, place) for place in mixing_places(config)]
    if off_diagonal:
        stacks = [stack for stack in stacks if stack.matrices.shape[-1] > 1]
    if not stacks:
        raise MtaVizError("heads are mixed in groups of one, which have no off-diagonal weights to compare")
    return MixingByLayer(tuple(map(_means, stacks)), _key_query(config))


def check_layer(config: ModelConfig, layer: int, where: Place | MixPlace) -> None:
    """Raises MtaVizError unless the layer has a kernel at that place, naming those that have."""
    if not 0 <= layer < config.n_layers:
        raise MtaVizError(f"there is no layer {layer}; the model has layers 0 to {config.n_layers - 1}")
    if layer not in layers_having(config, where):
        raise MtaVizError(lacking(config, where, layer))


def lacking(config: ModelConfig, where: Place | MixPlace, layer: int | None = None) -> str:
    """What a layer, or the model, does not have, and what it has."""
    kind = "key-query kernel" if where in get_args(Place) else "head mixing"
    having = layers_having(config, where)
    if having:
        return f"layer {layer} has no {kind} {WHERE[where]}; layers that have: {', '.join(map(str, having))}"
    return f"{_nothing(config)} no {kind} {WHERE[where]}"


def _nothing(config: ModelConfig) -> str:
    some = any(config.kernels(layer).any for layer in range(config.n_layers))
    return "this checkpoint has" if some else "this checkpoint has no kernels at all:"


def _key_query(config: ModelConfig) -> tuple[bool, ...]:
    def has(kernels: LayerKernels) -> bool:
        return bool(kernels.pre or kernels.post)

    return tuple(has(config.kernels(layer)) for layer in range(config.n_layers))


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

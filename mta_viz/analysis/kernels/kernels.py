"""The learned kernels of a layer with their real offsets, from a state dict, and what one weighs, in numbers.

Owns which tap reads which query and key, and one small function a measure, all of them batched: kernels are
numpy float64 [kernel, c_q, c_k] with their `Offsets`. k[n, d] is the tap that reads the query n before (the
lag, 0 = now) and the key d after (negative = earlier); the own tap is k[0, 0]; r is k with the own tap set to
0; ||.|| is the root of the summed squares. A measure without meaning for a kernel (a division by zero) is
NaN. Owns no names: what a shape is called is decided in `naming.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.config import ModelConfig
from mta_viz.tables import Row, Table

Place = Literal["pre", "post"]
MixPlace = Literal["head_pre", "head_post"]
KEY_QUERY: tuple[Place, ...] = ("pre", "post")
MIXING: tuple[MixPlace, ...] = ("head_pre", "head_post")
WHERE: dict[Place | MixPlace, str] = {
    "pre": "before the softmax",
    "head_pre": "before the softmax",
    "post": "after the softmax",
    "head_post": "after the softmax",
}
SHORT: dict[Place | MixPlace, str] = {
    "pre": "pre",
    "post": "post",
    "head_pre": "mix pre",
    "head_post": "mix post",
}
NEAR_IDENTITY = 0.05


@dataclass(frozen=True, order=True)
class KernelId:
    """Which kernel of a model: for head mixing `head` is the target whose row is meant. Counts from 0."""

    layer: int
    head: int
    where: Place | MixPlace

    def name(self, numbering: int = 0) -> str:
        """`L2 H1 pre`, counted from `numbering`."""
        return f"L{self.layer + numbering} H{self.head + numbering} {SHORT[self.where]}"


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

    def taps(self, where: Place) -> Float[Tensor, "head c_q c_k"] | None:
        """The key-query kernels before (`pre`) or after (`post`) the softmax."""
        return self.pre if where == "pre" else self.post

    def offsets(self, where: Place) -> Offsets | None:
        """The offsets that belong to `taps(where)`."""
        return self.pre_offsets if where == "pre" else self.post_offsets

    def mixing(self, where: MixPlace) -> Float[Tensor, "group target source"] | None:
        """The head mixing before (`head_pre`) or after (`head_post`) the softmax."""
        return self.head_pre if where == "head_pre" else self.head_post

    def table(self) -> Table:
        """All kernels of the layer: a row a tap (offsets) and a row a mixing weight (target, source)."""
        columns = ("kind", "head", "query_offset", "key_offset", "target_head", "source_head", "value")
        rows = [row for place in KEY_QUERY for row in self._tap_rows(place)]
        return Table.of(columns, [*rows, *(row for place in MIXING for row in self._mixing_rows(place))])

    def _tap_rows(self, place: Place) -> Iterator[Row]:
        taps, offsets = self.taps(place), self.offsets(place)
        if taps is None or offsets is None:
            return
        for head, kernel in enumerate(taps.numpy()):
            for query, key, value in offsets.rows(kernel):
                yield (place, head, query, key, None, None, value)

    def _mixing_rows(self, place: MixPlace) -> Iterator[Row]:
        mixing = self.mixing(place)
        if mixing is None:
            return
        size = mixing.shape[1]
        for (group, target, source), value in np.ndenumerate(mixing.numpy()):
            heads = (group * size + target, group * size + source)
            yield (place, None, None, None, *heads, float(value))


def layer_kernels(state_dict: Mapping[str, Tensor], config: ModelConfig, layer: int) -> LayerKernelSet:
    """Read one layer's kernels; `state_dict` has the names of `parameter_shapes(config)`."""

    def read(name: str) -> Tensor | None:
        tensor = state_dict.get(f"blocks.{layer}.attn.{name}")
        return None if tensor is None else tensor.detach().float().cpu()

    pre, post = read("kernel_pre"), read("kernel_post")
    return LayerKernelSet(
        pre,
        post,
        read("head_pre"),
        read("head_post"),
        None if pre is None else kernel_offsets(config, pre.shape[-2], pre.shape[-1]),
        None if post is None else kernel_offsets(config, post.shape[-2], post.shape[-1]),
    )


def kernel_offsets(config: ModelConfig, query_size: int, key_size: int) -> Offsets:
    """Offsets of a kernel of that size, by the side the keys are padded on."""
    left = config.key_pad_left(key_size)
    return Offsets(query=tuple(range(1 - query_size, 1)), key=tuple(range(-left, key_size - left)))


def near_identity(kernels: Float[Tensor, "head c_q c_k"], own: tuple[int, int]) -> Bool[Tensor, " head"]:
    """Kernels with less than 5 % of their energy outside the own tap."""
    energy = kernels.double().square()
    total = energy.sum((-2, -1))
    return (total > 0) & (1 - energy[:, own[0], own[1]] / total < NEAR_IDENTITY)


Kernels = Float[Array, "kernel c_q c_k"]
PerKernel = Float[Array, " kernel"]

OWN_TAP_SHARE = 0.1  # of ||k||: a smaller own tap counts as none
FFT_SIZE = 64
LOW_FREQUENCY = 1 / 8  # cycles per token


def norm(kernels: Kernels) -> PerKernel:
    """||k|| = sqrt(sum k^2)."""
    return np.sqrt(np.square(kernels).sum((-2, -1)))


def own_tap(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """beta = k[0, 0], the weight of the query's own key."""
    row, column = offsets.own
    return kernels[:, row, column]


def without_own_tap(kernels: Kernels, offsets: Offsets) -> Kernels:
    """r: a copy of k with its own tap set to 0."""
    rest = kernels.copy()
    rest[(slice(None), *offsets.own)] = 0
    return rest


def has_own_tap(kernels: Kernels, offsets: Offsets) -> Array:
    """Whether |beta| >= 0.1 ||k||."""
    own = np.abs(own_tap(kernels, offsets))
    return (own > 0) & (own >= OWN_TAP_SHARE * norm(kernels))


def own_sign(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """s = sign(beta), +1 for a kernel without an own tap."""
    return np.where(has_own_tap(kernels, offsets), np.sign(own_tap(kernels, offsets)), 1.0)


def identity_cosine(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """|beta| / ||k||, 0..1."""
    return _ratio(np.abs(own_tap(kernels, offsets)), norm(kernels))


def energy_off_identity(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """||r||^2 / ||k||^2 = 1 - cosine^2, 0..1."""
    return _ratio(
        np.square(without_own_tap(kernels, offsets)).sum((-2, -1)), np.square(kernels).sum((-2, -1))
    )


def distance_from_identity(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """||k - E||, E the kernel with 1 at the own tap and 0 elsewhere: absolute, in the units of a tap."""
    identity = np.zeros(kernels.shape[1:])
    identity[offsets.own] = 1
    return norm(kernels - identity)


def sum_of_taps(kernels: Kernels, _: Offsets) -> PerKernel:
    """sum k: the answer to a constant map. Before the softmax a constant changes nothing."""
    return kernels.sum((-2, -1))


def dc_cosine(kernels: Kernels, _: Offsets) -> PerKernel:
    """sum k / (sqrt(D) ||k||) with D taps, -1..1: cosine with the constant kernel."""
    return _ratio(kernels.sum((-2, -1)), np.sqrt(kernels[0].size) * norm(kernels))


def effective_rank(kernels: Kernels, _: Offsets) -> PerKernel:
    """exp of the entropy of the singular values over their sum, 1..min(c_q, c_k) (Roy & Vetterli 2007)."""
    values = np.linalg.svd(kernels, compute_uv=False)
    share = _ratio(values, values.sum(-1, keepdims=True))
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.exp(-(share * logs).sum(-1))


def query_centroid(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """Mean query offset weighted by k^2: -(c_q - 1)..0, 0 = the query itself."""
    energy = np.square(kernels)
    return _ratio(energy.sum(-1) @ np.array(offsets.query, float), energy.sum((-2, -1)))


def key_centroid(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """Mean key offset weighted by k^2: negative = earlier keys."""
    energy = np.square(kernels)
    return _ratio(energy.sum(-2) @ np.array(offsets.key, float), energy.sum((-2, -1)))


def key_symmetry(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """sum r[n, d] r[n, -d] / ||r||^2: 1 where earlier and later keys count alike, -1 where oppositely."""
    rest, key = without_own_tap(kernels, offsets), offsets.key
    mirrored = np.zeros_like(rest)
    for column, offset in enumerate(key):
        if -offset in key:
            mirrored[..., column] = rest[..., key.index(-offset)]
    return _ratio((rest * mirrored).sum((-2, -1)), np.square(rest).sum((-2, -1)))


def sequence_gain(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """sum_n k[n, -n] / max_n |k[n, -n]|: a match of c_q tokens in a row against a match of one."""
    rows, columns = diagonal_taps(offsets)
    along = kernels[:, rows, columns]
    return _ratio(along.sum(-1), np.abs(along).max(-1))


def priming_gain(kernels: Kernels, offsets: Offsets) -> PerKernel:
    """sum_{n >= 1} k[n, 0] / beta: evidence for a key from earlier queries per unit of evidence now."""
    own = own_tap(kernels, offsets)
    return _ratio(kernels[:, :, offsets.key.index(0)].sum(-1) - own, own)


def smoothing_index(kernels: Kernels, _: Offsets) -> PerKernel:
    """(LF - A) / (1 - A): 0 for a single tap, 1 for slow changes only.

    LF is the share of |FFT(k)|^2 (zero-padded to 64 x 64) where both frequencies are at most 1/8 cycle
    per token, A that square's share of the area. The square is a product of two bands, so LF is a
    quadratic form of the taps; no transform is taken.
    """
    rows, columns = _band(kernels.shape[1]), _band(kernels.shape[2])
    low = np.einsum("knd,nm,kme,de->k", kernels, rows, kernels, columns, optimize=True)
    area = rows[0, 0] * columns[0, 0]
    share = _ratio(low, np.square(kernels).sum((-2, -1)))
    return (share - area) / (1 - area)


def diagonal_taps(offsets: Offsets) -> tuple[list[int], list[int]]:
    """Rows and columns of the taps (n, -n), as far as the kernel reaches."""
    found = [(row, offsets.key.index(lag)) for row, lag in enumerate(offsets.query) if lag in offsets.key]
    return [row for row, _ in found], [column for _, column in found]


@lru_cache(maxsize=64)
def _band(size: int) -> Float[Array, "tap tap"]:
    """The share of low frequencies as a form on a line of taps: mean over f of [f low] cos 2 pi f (n - m)."""
    frequencies = np.fft.fftfreq(max(FFT_SIZE, size))
    low = frequencies[np.abs(frequencies) <= LOW_FREQUENCY]
    distance = np.arange(size)[:, None] - np.arange(size)
    return np.cos(2 * np.pi * distance[..., None] * low).sum(-1) / len(frequencies)


def _ratio(above: Array, below: Array) -> Array:
    """above / below, NaN where below is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, np.nan, above / below)


MEASURES: dict[str, Callable[[Kernels, Offsets], PerKernel]] = {
    "own_tap": own_tap,
    "identity_cosine": identity_cosine,
    "energy_off_identity": energy_off_identity,
    "distance_from_identity": distance_from_identity,
    "sum_of_taps": sum_of_taps,
    "dc_cosine": dc_cosine,
    "effective_rank": effective_rank,
    "query_centroid": query_centroid,
    "key_centroid": key_centroid,
    "key_symmetry": key_symmetry,
    "smoothing_index": smoothing_index,
    "sequence_gain": sequence_gain,
    "priming_gain": priming_gain,
}

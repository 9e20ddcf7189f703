"""How far the kernels of paired heads are apart: ||K_A - K_B||, Frobenius, with the shapes' names.

Kernels are laid over each other by their offsets; a tap a kernel does not have is 0, and a layer without
kernels convolves with the identity. Mixing rows are compared only by index: other pairs have other sources.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.compare.pairs import HeadPairs
from mta_viz.analysis.kernels.kernels import LayerKernelSet, MixPlace, Offsets, Place, layer_kernels
from mta_viz.analysis.kernels.table import KEY_QUERY, MIXING, kernel_table
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Progress

NO_KERNEL = "no kernel (identity)"
IDENTITY = np.ones((1, 1)), Offsets((0,), (0,))
Taps = Float[np.ndarray, "_ _"]  # of two heads, whose sizes differ


@dataclass(frozen=True)
class KernelPair:
    """A kernel of A's head and of its partner in B. `distance` is in taps, sqrt of the sum of squares.

    `shape_a`, `shape_b`: names as in the atlas. `off_a`, `off_b`: distance from the identity.
    """

    layer: int
    head: int
    where: Place | MixPlace
    layer_b: int
    head_b: int
    distance: float
    off_a: float
    off_b: float
    shape_a: str
    shape_b: str


def kernel_pairs(
    a: HookedMTA, b: HookedMTA, pairs: HeadPairs, progress: Progress | None = None
) -> tuple[KernelPair, ...]:
    """Every place where one of two paired heads has a kernel, A's layers and heads in order.

    Empty for one and the same model, whose kernels are equal. Raise in `progress` to stop.
    """
    if a is b:
        return ()
    shapes = _shapes(a, progress, 0.5), _shapes(b, progress, 1.0)
    sets = [[_kernels(model, at) for at in range(model.config.n_layers)] for model in (a, b)]
    found = []
    for layer, head in np.ndindex(pairs.partner.shape[:2]):
        other = pairs.of(layer, head)
        if other is not None:
            here, there = sets[0][layer], sets[1][other[0]]
            measured = (*_key_query(here, there, head, other[1]), *_mixing(here, there, head, pairs))
            for where, distances in measured:
                names = (
                    shape.get((*place, where), NO_KERNEL)
                    for shape, place in zip(shapes, ((layer, head), other), strict=True)
                )
                found.append(KernelPair(layer, head, where, *other, *distances, *names))
    return tuple(found)


def pair_taps(
    a: HookedMTA, b: HookedMTA, first: tuple[int, int], second: tuple[int, int], where: Place
) -> tuple[Taps, Taps, Offsets]:
    """Both kernels over the same offsets, the identity where a layer has none."""
    return _laid_over(
        _taps(_kernels(a, first[0]), first[1], where), _taps(_kernels(b, second[0]), second[1], where)
    )


def _shapes(model: HookedMTA, progress: Progress | None, share: float) -> Mapping[tuple[int, int, str], str]:
    rows = kernel_table(model.state_dict(), model.config)
    if progress is not None:
        progress(share)
    return {
        (row["layer"], row["head"], row["where"]): f"{'faint ' if row['faint'] else ''}{row['shape']}"
        for row in rows
    }


def _kernels(model: HookedMTA, layer: int) -> LayerKernelSet:
    return layer_kernels(model.state_dict(), model.config, layer)


def _key_query(
    here: LayerKernelSet, there: LayerKernelSet, head: int, other: int
) -> Iterator[tuple[Place, tuple[float, float, float]]]:
    for where in KEY_QUERY:
        if here.taps(where) is not None or there.taps(where) is not None:
            first, second, offsets = _laid_over(_taps(here, head, where), _taps(there, other, where))
            identity = np.zeros_like(first)
            identity[offsets.own] = 1.0
            yield where, _distances(first, second, identity)


def _mixing(
    here: LayerKernelSet, there: LayerKernelSet, head: int, pairs: HeadPairs
) -> Iterator[tuple[MixPlace, tuple[float, float, float]]]:
    if pairs.rule != "index":
        return
    size = pairs.partner.shape[1]
    for where in MIXING:
        matrices = [one.mixing(where) for one in (here, there)]
        if any(matrix is not None for matrix in matrices):
            first, second = (_mixing_row(matrix, head, size) for matrix in matrices)
            yield where, _distances(first, second, np.eye(size)[head])


def _distances(a: np.ndarray, b: np.ndarray, identity: np.ndarray) -> tuple[float, float, float]:
    """From each other, and of each from the identity."""
    apart, off_a, off_b = (float(np.linalg.norm(one)) for one in (a - b, a - identity, b - identity))
    return apart, off_a, off_b


def _mixing_row(mixing: Tensor | None, head: int, size: int) -> np.ndarray:
    """A target's weights over all heads."""
    if mixing is None:
        return np.eye(size)[head]
    return torch.block_diag(*mixing.double())[head].numpy()


def _taps(kernels: LayerKernelSet, head: int, where: Place) -> tuple[Taps, Offsets]:
    taps, offsets = kernels.taps(where), kernels.offsets(where)
    if taps is None or offsets is None:
        return IDENTITY
    return taps[head].double().numpy(), offsets


def _laid_over(a: tuple[Taps, Offsets], b: tuple[Taps, Offsets]) -> tuple[Taps, Taps, Offsets]:
    both = a[1], b[1]
    first_query = min(one.query[0] for one in both)
    first_key, last_key = min(one.key[0] for one in both), max(one.key[-1] for one in both)
    offsets = Offsets(tuple(range(first_query, 1)), tuple(range(first_key, last_key + 1)))
    laid = []
    for taps, own in (a, b):
        whole = np.zeros((len(offsets.query), len(offsets.key)))
        row, column = own.query[0] - first_query, own.key[0] - first_key
        whole[row : row + taps.shape[0], column : column + taps.shape[1]] = taps
        laid.append(whole)
    return laid[0], laid[1], offsets

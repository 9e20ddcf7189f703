"""One kernel among the kernels of its model: profiles, frequency response, nearest kernels, rank.

Owns what a kernel's card shows besides its scores (`measures.py`) and its probe (`probes.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.kernels import KernelId, Offsets, layer_kernels
from mta_viz.analysis.shapes.edges import denoised, dominant_tap, edge_indices
from mta_viz.analysis.shapes.measures import FFT_SIZE, without_own_tap
from mta_viz.analysis.shapes.probes import probe_values
from mta_viz.analysis.shapes.significance import SEED
from mta_viz.analysis.shapes.table import KEY_QUERY
from mta_viz.analysis.shapes.templates import library, template_scores
from mta_viz.config import ModelConfig

CHANCE_QUANTILE, CHANCE_KERNELS, CHANCE_TAPS = 0.99, 10_000, 1_000_000


@dataclass(frozen=True)
class KernelStack:
    """All key-query kernels of a model that have the same taps: `taps[i]` belongs to `ids[i]`."""

    ids: tuple[KernelId, ...]
    offsets: Offsets
    taps: Float[Array, "kernel c_q c_k"]

    def usable(self) -> Array:
        """Kernels that are finite and not all 0."""
        return np.isfinite(self.taps).all((-2, -1)) & (self.taps != 0).any((-2, -1))


def kernel_stacks(state_dict: Mapping[str, Tensor], config: ModelConfig) -> tuple[KernelStack, ...]:
    """The key-query kernels of a model, one stack a size. `state_dict` as in `layer_kernels`."""
    found: dict[Offsets, tuple[list[KernelId], list[Array]]] = {}
    for layer in range(config.n_layers):
        kernels = layer_kernels(state_dict, config, layer)
        for where in KEY_QUERY:
            taps, offsets = kernels.taps(where), kernels.offsets(where)
            if taps is not None and offsets is not None:
                ids, stack = found.setdefault(offsets, ([], []))
                ids += [KernelId(layer, head, where) for head in range(len(taps))]
                stack.append(taps.double().numpy())
    return tuple(
        KernelStack(tuple(ids), offsets, np.concatenate(stack)) for offsets, (ids, stack) in found.items()
    )


def nearest_kernels(stack: KernelStack, of: KernelId, count: int = 4) -> tuple[tuple[KernelId, float], ...]:
    """The kernels of largest cosine <r, r'> / (||r|| ||r'||), own taps left out, the most alike first.

    Whole kernels near the identity would all be alike. Kernels without other taps have no cosine.
    """
    usable = stack.usable()
    rest = without_own_tap(np.where(usable[:, None, None], stack.taps, 0.0), stack.offsets)
    flat = rest.reshape(len(rest), -1)
    length = np.linalg.norm(flat, axis=-1)
    unit = flat / np.where(length > 0, length, 1)[:, None]
    own = stack.ids.index(of)
    cosine = unit @ unit[own]
    order = [int(i) for i in np.argsort(-cosine, kind="stable") if i != own and length[i] > 0]
    return tuple((stack.ids[i], float(cosine[i])) for i in order[:count]) if length[own] > 0 else ()


def probe_percentile(stack: KernelStack, of: KernelId, probe: str) -> float:
    """Share of the stack's other kernels whose probe value is below this one's, 0..1; ties count half.

    NaN for a broken kernel, or one that has no others.
    """
    usable = stack.usable()
    own = stack.ids.index(of)
    if not usable[own] or usable.sum() < 2:
        return np.nan
    values = probe_values(stack.taps[usable], stack.offsets, probe)
    place = int(usable[:own].sum())
    others = np.delete(values, place)
    return float((others < values[place]).mean() + 0.5 * (others == values[place]).mean())


def frequency_response(
    kernel: Float[Array, "c_q c_k"],
) -> tuple[Float[Array, " frequency"], Float[Array, "query_frequency key_frequency"]]:
    """Frequencies in cycles per token, -0.5..0.5, and |FFT(k)| over queries and keys, zero-padded to 64 x 64.

    1 everywhere for the identity. A kernel larger than 64 is padded to its own length.
    """
    size = max(FFT_SIZE, *kernel.shape)
    response = np.abs(np.fft.fftshift(np.fft.fft2(kernel, (size, size))))
    return np.fft.fftshift(np.fft.fftfreq(size)), response


@lru_cache(maxsize=64)
def chance_marks(offsets: Offsets) -> Mapping[str, float]:
    """What 99 of 100 Gaussian kernels of this size stay below, in size, for every shape score by name."""
    shape = len(offsets.query), len(offsets.key)
    count = min(CHANCE_KERNELS, max(CHANCE_TAPS // (shape[0] * shape[1]), 200))
    kernels = np.random.default_rng(SEED).standard_normal((count, *shape))
    values: dict[str, list[Array]] = {}
    for template, scores in zip(library(offsets), np.abs(template_scores(kernels, offsets)).T, strict=True):
        values.setdefault(template.name.replace("-", "_"), []).append(scores)
    edges = edge_indices(denoised(kernels, offsets), offsets)
    values["edge_first"], values["edge_last"] = [edges[0]], [edges[1]]
    values["dominant_share"] = [dominant_tap(kernels, offsets)[0]]
    return {
        name: float(np.quantile(np.max(found, axis=0), CHANCE_QUANTILE)) for name, found in values.items()
    }

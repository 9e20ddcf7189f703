"""How the kernels of a layer changed over training: every score of every head at every snapshot."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.kernels import Place, kernel_offsets
from mta_viz.analysis.shapes.naming import all_scores
from mta_viz.checkpoint.kernel_history import KernelHistory
from mta_viz.config import ModelConfig

FROM_START = "distance_from_start"


@dataclass(frozen=True)
class KernelCurves:
    """Scores over training: `values` by name [head, snapshot], NaN where a score means nothing.

    So are all scores of a kernel with NaN or infinite taps.

    The names are those of the kernel table, and `distance_from_start`: ||k - k of the first snapshot||,
    the distance that tells learning apart where kernels do not start as identity (paper, "Kernel
    initialization").
    """

    steps: tuple[int, ...]
    values: dict[str, Float[np.ndarray, "head snapshot"]]


def kernel_curves(
    history: KernelHistory, config: ModelConfig, layer: int, where: Place
) -> KernelCurves | None:
    """The curves of a layer's key-query kernels; None where it has none at that place."""
    stored = history.kernels.get(f"blocks.{layer}.attn.kernel_{where}")
    if stored is None:
        return None
    taps = stored.double().numpy()
    snapshots, heads, c_q, c_k = taps.shape
    flat = taps.reshape(-1, c_q, c_k)
    finite = np.isfinite(flat).all((-2, -1))
    found = all_scores(np.where(finite[:, None, None], flat, 0.0), kernel_offsets(config, c_q, c_k))
    values = {name: np.where(finite, one, np.nan).reshape(snapshots, heads).T for name, one in found.items()}
    values[FROM_START] = np.sqrt(np.square(taps - taps[:1]).sum((-2, -1))).T
    return KernelCurves(history.steps, values)

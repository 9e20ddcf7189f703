"""The health of a checkpoint at one glance."""

from dataclasses import dataclass

import torch

from mta_viz.analysis.kernels.kernels import layer_kernels, near_identity
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import SelfCheck, self_check
from mta_viz.run.trace import Trace

CLOSED_GATE = 0.05


@dataclass(frozen=True)
class Health:
    """Facts of the weights, and of one run where there is a trace (else None).

    `n_nan`, `n_inf`: parameters that are. `kernels_at_identity`: (near identity, all), key-query
    kernels of every layer, head and place; near = under 5 % of the energy off the own tap.
    `largest_tap`: largest |tap|, None without kernels. `gates_below_0_05`: share of gate values of
    the run under 0.05, None without gates. `row_sum_range`: smallest and largest row sum of the
    final weights over all layers and heads. Each of the three is NaN as soon as one of the numbers
    it is taken from is NaN. `self_check`: recomputation against the run.
    """

    n_nan: int
    n_inf: int
    kernels_at_identity: tuple[int, int]
    largest_tap: float | None
    gates_below_0_05: float | None
    row_sum_range: tuple[float, float] | None
    self_check: SelfCheck | None


def health(model: HookedMTA, trace: Trace | None = None) -> Health:
    """Examine a model and, if given, one run of it. Computes every layer's final weights once."""
    state, config = model.state_dict(), model.config
    layers = (layer_kernels(state, config, layer) for layer in range(config.n_layers))
    stacks = [(taps, offsets) for layer in layers for _, taps, offsets in layer.key_query()]
    weights = [weight for weight in state.values() if not weight.is_meta]
    at_identity = sum(int(near_identity(taps, offsets.own).sum()) for taps, offsets in stacks)
    largest = [taps.abs().max() for taps, _ in stacks]
    return Health(
        n_nan=sum(int(weight.isnan().sum()) for weight in weights),
        n_inf=sum(int(weight.isinf().sum()) for weight in weights),
        kernels_at_identity=(at_identity, sum(len(taps) for taps, _ in stacks)),
        largest_tap=float(torch.stack(largest).max()) if largest else None,
        gates_below_0_05=_closed_gates(trace) if trace else None,
        row_sum_range=_row_sum_range(trace) if trace else None,
        self_check=self_check(trace) if trace else None,
    )


def _closed_gates(trace: Trace) -> float | None:
    gates = [trace.gate(layer) for layer in range(trace.model.config.n_layers)]
    values = torch.cat([gate.flatten() for gate in gates if gate is not None] or [torch.zeros(0)])
    if not values.numel():
        return None
    # A comparison with NaN is False, which would count as an open gate.
    return float("nan") if values.isnan().any() else float((values < CLOSED_GATE).float().mean())


def _row_sum_range(trace: Trace) -> tuple[float, float]:
    layers = range(trace.model.config.n_layers)
    sums = [slab.sum(-1) for layer in layers for _, slab in trace.slabs(layer, Stage.PATTERN)]
    # torch's min and max keep a NaN; Python's drop it or not, by the order of their arguments.
    lowest = torch.stack([part.min() for part in sums]).min()
    highest = torch.stack([part.max() for part in sums]).max()
    return float(lowest), float(highest)

"""The app's check of itself: what a Trace draws, carried through to the output the run gave."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.model.ops import weighted_values
from mta_viz.model.stages import Stage
from mta_viz.tracing import Trace, score


@dataclass(frozen=True)
class SelfCheck:
    """Largest difference / largest value; NaN when either side holds a number that is not finite."""

    residual_error: float
    logits_error: float


def self_check(trace: Trace) -> SelfCheck:
    """Recompute every layer from its final weights as `trace.slabs` gives them, then the logits.

    `residual_error` compares each layer's output with the run's; `logits_error` the trace's logits
    with those of a plain run. Costs about two forwards.
    """
    model = trace.model
    with model.lock, torch.no_grad():
        errors = [
            _relative_error(_after_layer(trace, layer), trace.residuals[layer + 1])
            for layer in range(model.config.n_layers)
        ]
        plain = score(model, torch.tensor([trace.tokens.ids]))[0].float()
        return SelfCheck(float(torch.tensor(errors).max()), _relative_error(plain, trace.logits()))


def _after_layer(trace: Trace, layer: int) -> Float[Tensor, "position d_model"]:
    """The residual stream after a layer, from the trace's maps of its final weights.

    Asked for in thirds of the prompt, as crops are: never the rows the run itself went by.
    """
    block, dtype, n_tokens = trace.model.blocks[layer], trace.model.dtype, len(trace.tokens)
    v = trace.project(layer).v
    third = max(n_tokens // 3, 1)
    parts = [range(start, min(start + third, n_tokens)) for start in range(0, n_tokens, third)]
    rows = [
        weighted_values(slab[None].to(dtype), v[:, : slab.shape[2]])
        for part in parts
        for _, slab in trace.slabs(layer, Stage.PATTERN, part)
    ]
    attn_out = block.attn.output(torch.cat(rows, dim=1))
    return block.finish(trace.residuals[layer][None].to(dtype), attn_out)[0].float()


def _relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest difference / largest value; NaN, never 0, when a number on either side is not finite."""
    if not (found.isfinite().all() and expected.isfinite().all()):
        return float("nan")
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30))

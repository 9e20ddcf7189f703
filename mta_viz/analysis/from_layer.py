"""A batch of prompts through some of a model's layers: what lies below an edit is computed once.

Owns running from a layer on; single prompts, progress and generation are `tracing`'s.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.cost import set_threads
from mta_viz.model.transformer import HookedMTA


def embedded(model: HookedMTA, ids: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position d_model"]:
    """The residual stream entering layer 0, on the model's device."""
    with model.lock, torch.no_grad():
        return model.embed(ids.to(model.device))


def after_layer(
    model: HookedMTA, resid: Float[Tensor, "batch position d_model"], layer: int
) -> Float[Tensor, "batch position d_model"]:
    """The residual stream leaving `layer`, from the one entering it."""
    with model.lock, torch.no_grad():
        set_threads(model.config, resid.shape[1], batch=resid.shape[0])
        return model.blocks[layer](resid)


def last_logits(
    model: HookedMTA, resid: Float[Tensor, "batch position d_model"], layer: int, n_last: int
) -> Float[Tensor, "batch last vocab"]:
    """Logits of the last `n_last` positions, from the residual stream entering `layer`, float32."""
    for above in range(layer, model.config.n_layers):
        resid = after_layer(model, resid, above)
    with model.lock, torch.no_grad():
        return model.logits(resid[:, -n_last:]).float()


def end_logits(
    model: HookedMTA, ids: Int[Tensor, "batch position"], n_last: int
) -> Float[Tensor, "batch last vocab"]:
    """Logits of the last `n_last` positions of whole prompts, float32, in the least time.

    Of the last layer only these positions' rows are computed, since no other reaches the logits;
    the last bits may differ from a whole pass.
    """
    resid = embedded(model, ids)
    for below in range(model.config.n_layers - 1):
        resid = after_layer(model, resid, below)
    with model.lock, torch.no_grad():
        return model.logits(model.blocks[-1].last_rows(resid, n_last)).float()

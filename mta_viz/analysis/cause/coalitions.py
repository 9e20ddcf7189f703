"""A model with some kernels kept, others taken out: what samples say of a set, and of an order of kernels.

It can be handed to workers (`run.jobs`), of which each makes its own.
"""

from collections.abc import Sequence
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor
from torch.nn import Parameter

from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.cause.sweeps import Outcome, outcome
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.labs.task_samples import GoldBatch
from mta_viz.config import PARAMETERS
from mta_viz.model.editing import edited
from mta_viz.model.plans import Edit
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.jobs import OfModel
from mta_viz.run.scoring import Below, after_layer, embedded

Kept = Bool[Array, " kernel"]


class Alone(NamedTuple):
    """One kernel unlike all `others`, which are kept or out."""

    at: int
    others: bool


Step = Alone | Kept | tuple[Sequence[int] | Array, int]  # kernels kept in all samples; an order, on one batch


class Coalitions(OfModel):
    """A model of which some kernels are kept, the others taken out; kernels by their place in `kernels`.

    What runs has its own weights for every kernel and shares all others with `model`, which stays as it is.
    """

    def __init__(
        self, model: HookedMTA, kernels: tuple[KernelId, ...], edit: Edit, batches: Sequence[GoldBatch] = ()
    ) -> None:
        self.model, self.kernels, self.edit, self.batches = model, kernels, edit, batches

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made of it, which each worker makes for itself."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @cached_property
    def _edited(self) -> tuple[HookedMTA, list[tuple[Parameter, Tensor, Tensor]]]:
        """The model without any, and of each kind in a layer its weight, with all kernels and with none."""
        made = edited(self.model, tuple(without(kernel, self.edit) for kernel in self.kernels))
        names = {f"blocks.{kernel.layer}.attn.{PARAMETERS[kernel.where]}": None for kernel in self.kernels}
        weights, originals = dict(made.named_parameters()), dict(self.model.named_parameters())
        parts = [(weights[name], originals[name].detach(), weights[name].detach()) for name in names]
        return made, parts

    @cached_property
    def _below(self) -> dict[bool, Below]:
        """Layers run once for all sets that differ above them: with all kernels, and with none."""
        ids = [batch.ids for batch in self.batches]
        none = edited(self.model, tuple(without(kernel, self.edit) for kernel in self.kernels))
        return {True: Below(self.model, ids), False: Below(none, ids)}

    def keep(self, kept: Kept) -> HookedMTA:
        """The model with the kernels where `kept` is True."""
        (model, parts), heads = self._edited, self.model.config.n_heads
        for part, (weight, whole, none) in enumerate(parts):
            rows = torch.from_numpy(kept[part * heads : (part + 1) * heads].copy()).to(whole.device)
            chosen = torch.where(rows[:, None], whole.reshape(heads, -1), none.reshape(heads, -1))
            weight.data = chosen.view_as(whole)
        return model

    def __call__(self, step: Step) -> "Outcome | Float[Array, ' kernel']":
        """All samples with some kernels kept; of an order, what each kernel adds on a batch."""
        if isinstance(step, Alone):
            kept = (np.arange(len(self.kernels)) == step.at) != step.others
            layer = self.kernels[step.at].layer
            residuals = self._below[step.others].entering(layer)
            return outcome(self.keep(kept), residuals, layer, self.batches)
        if isinstance(step, tuple):
            return _walk(self, self.batches[step[1]], step[0])
        model = self.keep(step)
        return outcome(model, [embedded(model, batch.ids) for batch in self.batches], 0, self.batches)


def _walk(coalitions: Coalitions, batch: GoldBatch, order: Sequence[int] | Array) -> Float[Array, " kernel"]:
    """What each kernel adds when they come back one by one in `order`, from none to all."""
    added = np.empty(len(order))
    kept = np.zeros(len(order), bool)
    model = coalitions.keep(kept)
    entering = [embedded(model, batch.ids)]  # the residual stream entering each layer
    value = _climb(model, entering, 0, batch)
    for at in order:
        kept[at] = True
        model, layer = coalitions.keep(kept), coalitions.kernels[at].layer
        before, value = value, _climb(model, entering, layer, batch)
        added[at] = value - before
    return added


def _climb(model: HookedMTA, entering: list[Tensor], layer: int, batch: GoldBatch) -> float:
    """The batch's mean log-probability; `entering` is brought up to date from `layer` on."""
    del entering[layer + 1 :]
    for above in range(layer, model.config.n_layers - 1):
        entering.append(after_layer(model, entering[above], above))
    result: Outcome = outcome(model, [entering[-1]], model.config.n_layers - 1, [batch])
    return fmean(result.log_probability)

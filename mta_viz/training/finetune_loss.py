"""The loss of finetuning: a task's answers, and what holds the model to where the base was on running text.

Layers below the first that is trained run without gradients, and logits are made where they count alone.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from mta_viz.model.ops import Resid
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import set_threads
from mta_viz.training.finetune_data import FinetuneBatch
from mta_viz.training.finetune_settings import FinetuneConfig
from mta_viz.training.trainer import Batch


@dataclass(frozen=True)
class FinetuneLoss:
    """Of a model and a batch: mean loss of the answers' tokens + `keep_weight` * that on the text, nats."""

    config: FinetuneConfig
    base: HookedMTA

    def __call__(self, model: HookedMTA, batch: FinetuneBatch) -> Float[Tensor, ""]:
        """Of the task "text" the text's own loss takes the place of the answers'."""
        config, losses = self.config, list[Tensor]()
        if batch.answers is not None:
            losses.append(answer_loss(model, batch.answers))
        if batch.text is not None:
            read = batch.text[:, :-1]
            resid = below(model, read)
            logits = above(model, resid)
            if config.task == "text" or config.keep == "text":
                weight = 1.0 if config.task == "text" else config.keep_weight
                losses.append(weight * cross_entropy(logits, batch.text[:, 1:].flatten()))
            if config.keep == "base":
                losses.append(config.keep_weight * self._divergence(model, read, resid, logits))
        return torch.stack(losses).sum()

    def _divergence(
        self,
        model: HookedMTA,
        read: Int[Tensor, "batch position"],
        resid: Resid,
        logits: Float[Tensor, "token vocab"],
    ) -> Float[Tensor, ""]:
        """Kullback-Leibler divergence from the base's next-token distribution, mean over the tokens.

        What enters the first trained layer is the base's own, so that only the layers above run again.
        """
        first = first_trained(model)
        with torch.no_grad():
            start = self.base.embed(read) if first is None else resid.detach()
            for block in list(self.base.blocks)[first or 0 :]:
                start = block(start)
            wanted = self.base.logits(start).flatten(0, 1).float().log_softmax(-1)
        return kl_div(logits.log_softmax(-1), wanted, log_target=True, reduction="batchmean")


def answer_loss(model: HookedMTA, batch: Batch) -> Float[Tensor, ""]:
    """Weighted mean cross-entropy of the next tokens that count."""
    weights = batch.weights[:, 1:]
    logits = above(model, below(model, batch.tokens[:, :-1]), weights > 0)
    losses = cross_entropy(logits, batch.tokens[:, 1:][weights > 0], reduction="none")
    counted = weights[weights > 0]
    return (losses * counted).sum() / counted.sum()


def first_trained(model: HookedMTA) -> int | None:
    """The first layer with a trained parameter; None where the embedding is trained."""
    if model.embed.weight.requires_grad:
        return None
    trained = (
        layer
        for layer, block in enumerate(model.blocks)
        if any(value.requires_grad for value in block.parameters())
    )
    return next(trained, len(model.blocks))


def below(model: HookedMTA, tokens: Int[Tensor, "batch position"]) -> Resid:
    """What enters the first trained layer."""
    set_threads(model.config, tokens.shape[1], batch=tokens.shape[0])
    first = first_trained(model)
    if first is None:
        return model.embed(tokens)
    with torch.no_grad():
        resid = model.embed(tokens)
        for block in list(model.blocks)[:first]:
            resid = block(resid)
    return resid


def above(model: HookedMTA, resid: Resid, at: Tensor | None = None) -> Float[Tensor, "token vocab"]:
    """Float32 logits from what enters the first trained layer, of all positions or those that `at` marks."""
    for block in list(model.blocks)[first_trained(model) or 0 :]:
        resid = block(resid)
    wanted = resid.flatten(0, 1) if at is None else resid[at]
    return model.logits(wanted).float()

"""An answer's log-probability as a function of what went in: token ids, embeddings, or one layer's maps.

The callables that attribution methods call, with gradients, again and again. Like everything that runs a
model they hold its lock while they run; none leaves anything on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.cost import set_threads
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.tracing import Trace

OfIds = Callable[[Int[Tensor, "batch position"]], Float[Tensor, " batch"]]
OfEmbeddings = Callable[[Float[Tensor, "batch position d_model"]], Float[Tensor, " batch"]]
OfMaps = Callable[[Float[Tensor, "batch head query key"]], Float[Tensor, " batch"]]


@dataclass(frozen=True)
class Question:
    """How probable is `answer` after `prompt`, both ids? log p sums over its tokens, each after the last."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def before(self) -> tuple[int, ...]:
        """The answer's tokens that are read; the last one is only predicted."""
        return self.answer[:-1]


def of_ids(model: HookedMTA, question: Question) -> OfIds:
    """log p(answer) as a function of the prompt's ids."""
    of = of_embeddings(model, question)
    return lambda ids: of(model.embed(ids.to(model.device)))


def of_embeddings(model: HookedMTA, question: Question) -> OfEmbeddings:
    """log p(answer), nats, as a function of the prompt's embeddings."""

    def score(embeddings: Float[Tensor, "batch position d_model"]) -> Float[Tensor, " batch"]:
        with model.lock:
            read = _ids(model, question.before).expand(len(embeddings), -1)
            resid = torch.cat([embeddings.to(model.dtype), model.embed(read)], dim=1)
            return _finish(model, resid, 0, question)

    return score


def of_maps(trace: Trace, layer: int, stage: Stage, question: Question) -> OfMaps:
    """log p(answer) as a function of one layer's maps at one stage, which take the place of its own.

    `trace` is of the prompt with `question.before` after it: what enters the layer is kept as it was.
    """
    model, name = trace.model, f"blocks.{layer}.attn.{stage.value.hook}"

    def score(maps: Float[Tensor, "batch head query key"]) -> Float[Tensor, " batch"]:
        with model.lock, model.hooks(fwd_hooks=[(name, lambda own, hook: maps.to(own.dtype))]):
            resid = trace.residuals[layer].to(model.dtype).expand(len(maps), -1, -1)
            return _finish(model, resid, layer, question)

    return score


def _finish(model: HookedMTA, resid: Tensor, layer: int, question: Question) -> Float[Tensor, " batch"]:
    set_threads(model.config, resid.shape[1], batch=len(resid))
    *below, last = list(model.blocks)[layer:]
    for block in below:
        resid = block(resid)
    logits = model.logits(last.last_rows(resid, len(question.answer))).float().log_softmax(-1)
    wanted = _ids(model, question.answer)[..., None].expand(len(resid), -1, 1)
    return logits.gather(-1, wanted).sum((-2, -1))


def _ids(model: HookedMTA, ids: Sequence[int]) -> Int[Tensor, "batch position"]:
    return torch.tensor([list(ids)], dtype=torch.long, device=model.device)

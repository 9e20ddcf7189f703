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
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.tokenizers.base import Tokens
from mta_viz.tracing import Trace, tokenize

OfIds = Callable[[Int[Tensor, "batch position"]], Float[Tensor, " batch"]]
OfEmbeddings = Callable[[Float[Tensor, "batch position d_model"]], Float[Tensor, " batch"]]
OfMaps = Callable[[Float[Tensor, "batch head query key"]], Float[Tensor, " batch"]]


@dataclass(frozen=True)
class Answer:
    """Tokens that may follow a prompt; log p sums over `ids`, each after the ones before."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]

    @property
    def before(self) -> tuple[int, ...]:
        """The answer's tokens that are read; the last one is only predicted."""
        return self.ids[:-1]


def answer_after(
    model: HookedMTA, prompt: str | Tokens | Sequence[int], answer: str | Sequence[int]
) -> Answer:
    """Check and encode both. Raises PromptError for an answer without tokens, and what `tokenize` raises.

    A text answer is encoded on its own, without a BOS.
    """
    before = tokenize(model, prompt)
    ids = tokenize(model, answer).ids
    tokenizer = model.tokenizer
    if isinstance(answer, str) and tokenizer is not None and ids[:1] == (tokenizer.bos_id,):
        ids = ids[1:]
    if not ids:
        raise PromptError("the answer is empty; give a text, or token ids")
    return Answer(tuple(before.ids), tuple(ids))


def of_ids(model: HookedMTA, answer: Answer) -> OfIds:
    """log p(answer) as a function of the prompt's ids."""
    of = of_embeddings(model, answer)
    return lambda ids: of(model.embed(ids.to(model.device)))


def of_embeddings(model: HookedMTA, answer: Answer) -> OfEmbeddings:
    """log p(answer), nats, as a function of the prompt's embeddings."""

    def score(embeddings: Float[Tensor, "batch position d_model"]) -> Float[Tensor, " batch"]:
        with model.lock:
            set_threads(model.config, embeddings.shape[1], batch=len(embeddings))
            read = _ids(model, answer.before).expand(len(embeddings), -1)
            resid = torch.cat([embeddings, model.embed(read)], dim=1)
            return _finish(model, resid, 0, answer)

    return score


def of_maps(trace: Trace, layer: int, stage: Stage, answer: Answer) -> OfMaps:
    """log p(answer) as a function of one layer's maps at one stage, which take the place of its own.

    `trace` is of the prompt with `answer.before` after it: what enters the layer is kept as it was.
    """
    model, name = trace.model, f"blocks.{layer}.attn.{stage.value.hook}"

    def score(maps: Float[Tensor, "batch head query key"]) -> Float[Tensor, " batch"]:
        with model.lock, model.hooks(fwd_hooks=[(name, lambda own, hook: maps.to(own.dtype))]):
            resid = trace.residuals[layer].to(model.dtype).expand(len(maps), -1, -1)
            return _finish(model, resid, layer, answer)

    return score


def _finish(model: HookedMTA, resid: Tensor, layer: int, answer: Answer) -> Float[Tensor, " batch"]:
    for block in list(model.blocks)[layer:]:
        resid = block(resid)
    logits = model.logits(resid[:, len(answer.prompt) - 1 :]).float().log_softmax(-1)
    wanted = _ids(model, answer.ids)[..., None].expand(len(resid), -1, 1)
    return logits.gather(-1, wanted).sum((-2, -1))


def _ids(model: HookedMTA, ids: Sequence[int]) -> Int[Tensor, "batch position"]:
    return torch.tensor([list(ids)], dtype=torch.long, device=model.device)

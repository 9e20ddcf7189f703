"""What finetuning makes small, and what is measured before and after it.

The loss is that of a task's answers, and what holds the model to where the base was on running text: layers
below the first that is trained run without gradients, and logits are made where they count alone. Base and
result are measured on the same held-out prompts and texts: how many right, which perplexity, what changed.
How long a run takes is said here as well.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from mta_viz.analysis.kernels.finetuning import FEW_STEPS
from mta_viz.analysis.labs.needle import answered_right, check_vocabulary, in_batches, needle_score
from mta_viz.analysis.labs.text import text_losses
from mta_viz.model.attention import identities
from mta_viz.model.ops import Resid
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import time_text
from mta_viz.run.devices import set_threads
from mta_viz.run.tracing import Progress, ignore, progress_within
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.intervals import paired_change_interval
from mta_viz.training.finetune_data import FinetuneBatch
from mta_viz.training.finetune_settings import FinetuneConfig
from mta_viz.training.trainer import Batch, TrainingProgress

LONG_ON_CPU = 1800.0  # seconds


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


@dataclass(frozen=True)
class Measured:
    """The held-out samples answered right, in their order, the perplexity of each held-out text, its time."""

    right: tuple[bool, ...]
    perplexity: Mapping[str, float]
    seconds: float


def measure(
    model: HookedMTA,
    samples: Sequence[NeedleSample],
    texts: Mapping[str, str],
    progress: Progress = ignore,
) -> Measured:
    """A model on held-out samples and texts, of which there is one at least; perplexity as `text_losses`."""
    start, share = time.monotonic(), 0.5 if samples else 0.0
    progress(0.0)
    right = right_answers(model, samples, progress_within(progress, 0.0, share))
    perplexity, each = {}, (1 - share) / len(texts)
    for place, (name, text) in enumerate(texts.items()):
        within = progress_within(progress, share + place * each, each)
        perplexity[name] = text_losses(model, text, progress=within).perplexity
    progress(1.0)
    return Measured(tuple(right), perplexity, time.monotonic() - start)


def right_answers(
    model: HookedMTA, samples: Sequence[NeedleSample], progress: Progress = ignore
) -> list[bool]:
    """Whether the greedy answer of each sample is right."""
    tokenizer = check_vocabulary(model, model.tokenizer)
    return in_batches(answered_right, model, tokenizer, samples, progress)


def compared(before: Measured, after: Measured) -> dict[str, Any]:
    """The numbers of both and, of the samples, the paired difference with its 95 % interval."""
    numbers: dict[str, Any] = {"perplexity": {"before": before.perplexity, "after": after.perplexity}}
    if before.right:
        scores = [needle_score(each.right) for each in (before, after)]
        numbers["held_out"] = {
            "before": dataclasses.asdict(scores[0]),
            "after": dataclasses.asdict(scores[1]),
            "difference": scores[1].accuracy - scores[0].accuracy,
            "interval": paired_change_interval(before.right, after.right),
        }
    return numbers


def most_changed(model: HookedMTA) -> dict[str, Any]:
    """The kernel farthest from the identity, by the norm of what differs, as the table of kernels has it."""
    distances: list[tuple[float, int, int]] = []
    for layer, block in enumerate(model.blocks):
        identity = identities(model.config, layer)["kernel_pre"]
        if identity is not None:
            far = (block.attn.kernel_pre.detach().cpu().float() - identity).flatten(1).norm(dim=1)
            distances += [(float(distance), layer, head) for head, distance in enumerate(far)]
    distance, layer, head = max(distances, default=(0.0, 0, 0))
    return {"most_changed": {"layer": layer, "head": head, "distance": distance}} if distance else {}


def time_words(
    config: FinetuneConfig, seconds: float, measuring: float, device: str, so_far: TrainingProgress
) -> str:
    """How long the rest, `seconds` a step, and `measuring` the result take; what to do where that is long."""
    steps = config.steps - so_far.steps_done
    total = steps * seconds
    if config.max_seconds is not None and config.max_seconds - so_far.seconds < total:
        total = config.max_seconds - so_far.seconds
        steps = int(total / seconds)
        words = f"{time_text(total)} are about {steps:,} steps"
    else:
        words = f"{steps:,} steps are about {time_text(total)}"
    step = f"{seconds:.2g} s" if seconds < 10 else time_text(seconds)
    words = f"about {step} a step on this machine: {words}, and {time_text(measuring)} to measure the result"
    if device == "cuda":
        return words
    if total > LONG_ON_CPU:
        words += ". That is long: a GPU (--device cuda) takes minutes; --max-seconds ends a run by the clock"
    elif so_far.steps_done + steps < FEW_STEPS:
        words += (
            ". So few steps teach little: some hundreds are usual, which a GPU (--device cuda) takes soon"
        )
    return words


def base_words(measured: Measured) -> str:
    """What the base does."""
    texts = ", ".join(f"{value:.4g} on {name}" for name, value in measured.perplexity.items())
    n = len(measured.right)
    right = f"{sum(measured.right)} of {n} held-out samples right; " if n else ""
    return f"base: {right}perplexity {texts}"


def change_words(numbers: Mapping[str, Any]) -> str:
    """The numbers of `compared`, in sentences."""
    before, after = (numbers["perplexity"][when] for when in ("before", "after"))
    texts = ", ".join(f"{before[name]:.4g} to {value:.4g} on {name}" for name, value in after.items())
    texts = f"Perplexity {texts}."
    if far := numbers.get("most_changed"):
        name = f"layer {far['layer']}, head {far['head']}"
        texts += f" The kernel that changed most: {name}, {far['distance']:.2g} from the identity."
    if "held_out" not in numbers:
        return texts
    held_out = numbers["held_out"]
    (low, high), (worst, best) = held_out["after"]["interval"], held_out["interval"]
    return (
        f"Right in {held_out['after']['right']} of {held_out['after']['n']} held-out samples: "
        f"{held_out['after']['accuracy']:.1%}, 95 % interval {low:.1%} to {high:.1%}; the base in "
        f"{held_out['before']['right']}. Difference {100 * held_out['difference']:+.1f} points, 95 % "
        f"interval {100 * worst:+.1f} to {100 * best:+.1f}. {texts}"
    )

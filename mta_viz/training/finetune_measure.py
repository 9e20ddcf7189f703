"""Base and result on the same held-out prompts and texts: how many right, which perplexity, what changed."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mta_viz.analysis.labs.needle import answer, at_once, check_vocabulary, needle_score
from mta_viz.analysis.labs.text import text_losses
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Progress, progress_within
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.intervals import paired_change_interval


@dataclass(frozen=True)
class Measured:
    """The held-out samples answered right, in their order, and the perplexity of each held-out text."""

    right: tuple[bool, ...]
    perplexity: Mapping[str, float]


def measure(
    model: HookedMTA,
    samples: Sequence[NeedleSample],
    texts: Mapping[str, str],
    progress: Progress = lambda share: None,
) -> Measured:
    """A model on held-out samples and texts, of which there is one at least."""
    share = 0.5 if samples else 0.0
    right = right_answers(model, samples, progress_within(progress, 0.0, share))
    perplexity, each = {}, (1 - share) / len(texts)
    for place, (name, text) in enumerate(texts.items()):
        within = progress_within(progress, share + place * each, each)
        perplexity[name] = text_losses(model, text, progress=within).perplexity
    progress(1.0)
    return Measured(tuple(right), perplexity)


def right_answers(
    model: HookedMTA, samples: Sequence[NeedleSample], progress: Progress = lambda share: None
) -> list[bool]:
    """Whether the greedy answer of each sample is right, prompts of one length run together."""
    tokenizer, right = check_vocabulary(model, model.tokenizer), dict[int, bool]()
    by_length: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        by_length.setdefault(len(sample.tokens), []).append(place)
    for length, places in by_length.items():
        size = at_once(model, length)
        for start in range(0, len(places), size):
            part = places[start : start + size]
            verdicts = answer(model, tokenizer, [samples[place] for place in part])
            right |= {place: each.outcome == "right" for place, each in zip(part, verdicts, strict=True)}
            progress(len(right) / len(samples))
    return [right[place] for place in range(len(samples))]


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
    if "held_out" not in numbers:
        return f"Perplexity {texts}."
    held_out = numbers["held_out"]
    (low, high), (worst, best) = held_out["after"]["interval"], held_out["interval"]
    return (
        f"Right in {held_out['after']['right']} of {held_out['after']['n']} held-out samples: "
        f"{held_out['after']['accuracy']:.1%}, 95 % interval {low:.1%} to {high:.1%}; the base in "
        f"{held_out['before']['right']}. Difference {100 * held_out['difference']:+.1f} points, 95 % "
        f"interval {100 * worst:+.1f} to {100 * best:+.1f}. Perplexity {texts}."
    )

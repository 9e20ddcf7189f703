"""Integrated gradients along the straight path from a baseline to an input, stretch by stretch, by captum.

The gradients of a stretch of the path are captum's integrated gradients between its two ends, and those of
all stretches sum to the whole. A log-probability changes in a small part of the path, and a stretch whose
values do not sum to the change of the score over it tells so: that one is halved, so steps go where they
are needed and no other is computed twice.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model.ops import rms_normalize
from mta_viz.run.tracing import Progress, ignore

Score = Callable[[Tensor], Tensor]
STEPS = 3  # Gauss-Legendre points of a stretch: fewer bring more halving, more are wasted at each
FIRST = 4  # stretches to begin with, one where that would take too long
FIRST_COST = 20  # in scores of both ends, at most
MOST_STEPS = 1536
ROUNDING = 1e-6  # of a score: a smaller error of a stretch is not the integral's
EARLY = 0.01  # of the path: where a norm makes most of the change happen here, the integral is ill-posed
SAME = 1e-3  # nats: scores of one question, computed twice, are no further apart


@dataclass(frozen=True)
class Integral:
    """`values` [of the input]: what each of its numbers brings, from the baseline on, or sums of these.

    `error`: completeness error, |sum of values - change of the score| over |change|; the same of all
    stretches, summed so that none hides another's, where that is more. `steps`: gradients computed, those of
    halved stretches too. `score` and `baseline_score`: at the ends of the path. `stretches`: what it is the
    sum of, from which it can go on.
    """

    values: Float[Tensor, "..."]
    error: float
    steps: int
    score: float
    baseline_score: float
    stretches: tuple["Stretch", ...]

    @property
    def early(self) -> float | None:
        """The share of the score's change in the first 1 % of the path, as far as stretches end there.

        Of the change there and that over the rest, as sizes; None where no stretch is as short yet.
        """
        first = [stretch for stretch in self.stretches if stretch.stop <= EARLY]
        if not first:
            return None
        score = max(first, key=lambda stretch: stretch.stop).scores[1]
        return _part(abs(score - self.baseline_score), abs(self.score - score))


@dataclass(frozen=True)
class Stretch:
    """From `start` to `stop`, shares of the path, with the scores there."""

    start: float
    stop: float
    values: Tensor
    scores: tuple[float, float]

    @property
    def gap(self) -> float:
        """Sum of the values less the change of the score."""
        return float(self.values.double().sum()) - (self.scores[1] - self.scores[0])

    @property
    def error(self) -> float:
        """How much of it is more than rounding."""
        return max(abs(self.gap) - ROUNDING * max(map(abs, self.scores)), 0.0)


def integrate(
    score: Score,
    real: Float[Tensor, "one ..."],
    base: Float[Tensor, "one ..."],
    *,
    at_once: int = 1,
    max_error: float,
    max_seconds: float,
    progress: Progress = ignore,
    keep: Callable[[Integral], None] | None = None,
    summed: Callable[[Tensor], Tensor] | None = None,
    after: Integral | None = None,
) -> Integral:
    """The integral of the gradients of `score` from `base` to `real`, both one input as a batch, float32.

    Stretches are halved, the worst first, until `error` is at most `max_error` or the next round would pass
    `max_seconds`. `score` gets up to about `at_once` points a call. `keep` is told the result so far after
    each round; `progress` the share that is done, of the time or of the way to the error. `summed`: sums over
    a batch of values that are kept in place of them. `after`: an earlier integral of the same path, to go on
    from by a round or more; raises PromptError where its ends had other scores.
    """
    from captum.attr import IntegratedGradients  # takes seconds the first time: before the watch starts

    watch = _Watch(max_error, max_seconds)

    def counted(inputs: Tensor) -> Tensor:
        scores = score(inputs)
        progress(min(max(watch.spent / max_seconds, watch.nearer), 1.0))
        return scores

    path = _Path(counted, IntegratedGradients(counted), real, base, at_once, summed)
    ends = path.scores((0.0, 1.0))
    if after is None:
        stretches = path.cut(ends, FIRST if watch.spent * FIRST_COST <= max_seconds else 1)
    else:
        stretches = path.taken_up(after, ends)
    while True:
        integral = path.total(stretches)
        if keep is not None:
            keep(integral)
        if integral.error <= max_error or path.steps >= MOST_STEPS:
            return integral
        begun = after is None or path.steps > after.steps  # to go on is to do one round at least
        if not watch.has_time(integral.error) and begun:
            return integral
        stretches = path.halved(stretches)


@dataclass
class _Path:
    """Points between two inputs, and the gradients of the stretches between them."""

    score: Score
    method: Any
    real: Tensor
    base: Tensor
    at_once: int
    summed: Callable[[Tensor], Tensor] | None
    steps: int = 0

    def cut(self, ends: Sequence[float], count: int) -> list[Stretch]:
        """The whole path, with the scores at its ends, in equal stretches."""
        shares = [place / count for place in range(count + 1)]
        scores = [ends[0], *self.scores(shares[1:-1]), ends[1]]
        return self.stretches(list(zip(shares, shares[1:], scores, scores[1:], strict=False)))

    def taken_up(self, after: Integral, ends: Sequence[float]) -> list[Stretch]:
        """The stretches of an earlier integral between the same `ends`."""
        there = (after.baseline_score, after.score)
        if max(abs(before - now) for before, now in zip(there, ends, strict=True)) > SAME:
            raise PromptError(
                "the integral to go on from is of another question: its scores at the baseline and the "
                f"prompt are {there[0]:.4g} and {there[1]:.4g} nats, here {ends[0]:.4g} and {ends[1]:.4g}. "
                "Go on with the same model, prompt, answer and baseline, or begin anew"
            )
        self.steps = after.steps
        return list(after.stretches)

    def scores(self, shares: Sequence[float]) -> list[float]:
        """The score at points of the path."""
        with torch.no_grad():
            parts = [self.score(self._points(part)) for part in _parts(shares, self.at_once)]
        return [float(value) for part in parts for value in part]

    def stretches(self, wanted: Sequence[tuple[float, float, float, float]]) -> list[Stretch]:
        """Of each (start, stop, score at start, at stop); as many in one call of captum as fit."""
        made = []
        for part in _parts(wanted, self.at_once // STEPS):
            gradients = self._gradients([ends[0] for ends in part], [ends[1] for ends in part])
            for (start, stop, *scores), values in zip(part, gradients, strict=True):
                made.append(Stretch(start, stop, values[None].cpu(), (scores[0], scores[1])))
        return made

    def halved(self, stretches: Sequence[Stretch]) -> list[Stretch]:
        """The worst one in two; where many points fit in a call, all that are as bad as the mean."""
        most = max(self.at_once // (2 * STEPS), 1)
        worst = sorted(stretches, key=lambda stretch: stretch.error, reverse=True)
        bad = sum(stretch.error >= sum(stretch.error for stretch in worst) / len(worst) for stretch in worst)
        chosen, rest = worst[: min(bad, most)], worst[min(bad, most) :]
        middles = [(stretch.start + stretch.stop) / 2 for stretch in chosen]
        halves = []
        for stretch, middle, score in zip(chosen, middles, self.scores(middles), strict=True):
            halves.append((stretch.start, middle, stretch.scores[0], score))
            halves.append((middle, stretch.stop, score, stretch.scores[1]))
        return [*rest, *self.stretches(halves)]

    def total(self, stretches: Sequence[Stretch]) -> Integral:
        """All stretches together."""
        values = torch.stack([stretch.values for stretch in stretches]).sum(0)
        first = min(stretches, key=lambda stretch: stretch.start).scores[0]
        last = max(stretches, key=lambda stretch: stretch.stop).scores[1]
        gap, error = (sum(getattr(stretch, of) for stretch in stretches) for of in ("gap", "error"))
        share = max(abs(gap), error) / max(abs(last - first), 1e-12)
        return Integral(values, share, self.steps, last, first, tuple(stretches))

    def _points(self, shares: Sequence[float]) -> Tensor:
        weights = torch.tensor(shares, dtype=self.real.dtype, device=self.real.device)
        return torch.lerp(self.base, self.real, weights.view(-1, *[1] * (self.real.dim() - 1)))

    def _gradients(self, starts: Sequence[float], stops: Sequence[float]) -> Tensor:
        self.steps += STEPS * len(starts)
        ends = {"inputs": self._points(stops), "baselines": self._points(starts)}
        rule = {"n_steps": STEPS, "method": "gausslegendre"}
        batch = max(self.at_once, len(starts))
        gradients = self.method.attribute(**ends, **rule, internal_batch_size=batch).detach()
        return gradients if self.summed is None else self.summed(gradients)


def _parts(items: Sequence, size: int) -> list[Sequence]:
    size = max(size, 1)
    return [items[start : start + size] for start in range(0, len(items), size)]


def _part(early: float, rest: float) -> float:
    return early / (early + rest) if early + rest > 0 else 0.0


def normed_jump(
    base: Float[Tensor, "*places width"], real: Float[Tensor, "*places width"], eps: float
) -> float:
    """The share of the change of an RMSNorm's output that comes in the first 1 % of the straight path.

    A norm divides by the size of what it gets: from a `base` far smaller than `real` its output is there
    after a step of that size, and stays. Computed without a run.
    """
    start, early, stop = (rms_normalize(torch.lerp(base, real, share), eps) for share in (0.0, EARLY, 1.0))
    return _part(float((early - start).norm(dim=-1).sum()), float((stop - early).norm(dim=-1).sum()))


class _Watch:
    """The time limit, and how far the work is."""

    def __init__(self, max_error: float, max_seconds: float) -> None:
        self.max_error, self.max_seconds, self.nearer = max_error, max_seconds, 0.0
        self.begun = self.round = time.monotonic()
        self.first_error: float | None = None

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.begun

    def has_time(self, error: float) -> bool:
        """Whether another round as long as the last halving fits; notes how near the error is."""
        now = time.monotonic()
        last, self.round = now - self.round, now
        if self.first_error is None:
            self.first_error = error
            return now - self.begun < self.max_seconds
        if error > 0 and self.first_error > self.max_error > 0:
            way = log(self.first_error / error) / log(self.first_error / self.max_error)
            self.nearer = max(self.nearer, way)
        return now - self.begun + last <= self.max_seconds

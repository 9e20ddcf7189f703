"""Which heads find the needle over many samples: the mean of every finder score, with its interval."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.labs.answers import check_vocabulary
from mta_viz.analysis.labs.finder import find, needle_parts
from mta_viz.errors import ConfigError
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.intervals import RESAMPLES
from mta_viz.tasks.needles import NeedleTask, make_needle_sample
from mta_viz.tracing import capture


@dataclass(frozen=True)
class MeanScore:
    """One score of every head over samples: its mean and the ends of a 95 % bootstrap interval over samples.

    NaN where a layer lacks the stage.
    """

    mean: Float[Tensor, "layer head"]
    low: Float[Tensor, "layer head"]
    high: Float[Tensor, "layer head"]


@dataclass(frozen=True)
class FinderMeans:
    """The finder's scores of the asked needle over `n` samples, by the keys of `HeadScores`."""

    n: int
    scores: Mapping[str, MeanScore]


def finder_means(
    model: HookedMTA,
    task: NeedleTask,
    seed: int,
    n: int,
    *,
    keep: Callable[[FinderMeans], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> FinderMeans:
    """The samples `seed` to `seed + n - 1` of a task.

    After every sample `keep(result so far)`, then `progress(share done)`; raise in either to stop.
    Raises ConfigError for n below 1, PromptError and TokenizerError as `make_needle_sample` does.
    """
    if n < 1:
        raise ConfigError([f"n is {n}; expected at least 1"], subject="The repetition")
    tokenizer = check_vocabulary(model, model.tokenizer)
    found: list[Mapping[str, Tensor]] = []
    for at in range(n):
        sample = make_needle_sample(tokenizer, task, seed + at)
        found.append(find(capture(model, sample.tokens), needle_parts(sample)).asked.values)
        if keep is not None:
            keep(_means(found))
        if progress is not None:
            progress((at + 1) / n)
    return _means(found)


def _means(found: list[Mapping[str, Tensor]]) -> FinderMeans:
    values = {key: torch.stack([one[key] for one in found]) for key in found[0]}
    return FinderMeans(len(found), {key: mean_score(each) for key, each in values.items()})


def mean_score(values: Float[Tensor, "sample layer head"]) -> MeanScore:
    """The mean over samples with its bootstrap interval: the same 2,000 resamples for every head."""
    n = values.shape[0]
    drawn = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    counts = torch.from_numpy(np.stack([np.bincount(row, minlength=n) for row in drawn])).double() / n
    means = torch.einsum("rs,slh->rlh", counts, values.double())
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.quantile(means, ends, dim=0).float()
    return MeanScore(values.mean(0), low, high)

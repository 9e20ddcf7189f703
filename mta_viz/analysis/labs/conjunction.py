"""The conjunction test: do two words together give a span more than each gives it alone?

The paper says that a convolution finds where "Alice" and "rabbit" both stand. Per head and stage, with
f the span's log-odds or share in the last token's row of the four prompts: the effect of A is
f(A only) - f(neither), of B f(B only) - f(neither), and the interaction
I = f(both) - f(A only) - f(B only) + f(neither). So f(both) = f(neither) + A + B + I. Owns the numbers;
the prompts are `four_prompts`'.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.labs.finder import Parts, find
from mta_viz.analysis.labs.four_prompts import FourPrompts
from mta_viz.analysis.labs.needle import MeanScore, mean_score
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.model.editing import edited
from mta_viz.model.plans import everything_to_identity
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Progress, capture, progress_within
from mta_viz.tables import Row, Table

Measure = tuple[str, Stage]
MEASURES: tuple[Measure, ...] = (
    *(("odds", stage) for stage in Stage if stage.value.unit == "score"),
    *(("share", stage) for stage in Stage),
)
DEFINITIONS = {
    "odds": "log-odds: logsumexp of the last token's scores over the span less that over its other keys.",
    "share": "share: sum of |P| over the span / sum over the last token's row; of scores, the share if the "
    "softmax came there.",
}
_NUMBERS = (
    *("both", "a_only", "b_only", "neither", "a", "a_low", "a_high", "b", "b_low", "b_high"),
    *("interaction", "interaction_low", "interaction_high"),
    *(f"{part}_median{end}" for part in ("a", "b", "interaction") for end in ("", "_low", "_high")),
)
_BOUNDS = {"share": ((-1.0, 1.0), (-1.0, 1.0), (-2.0, 2.0)), "odds": (None,) * 3}  # of A, of B, of I


@dataclass(frozen=True)
class Effects:
    """One measure at one stage: f of the four prompts, its `means` over samples, and effects with intervals.

    With one sample the ends of intervals are NaN, of log-odds those of means always, and everything is where
    a layer lacks the stage.
    """

    means: Float[Tensor, "prompt layer head"]
    a: MeanScore
    b: MeanScore
    interaction: MeanScore


@dataclass(frozen=True, eq=False)
class Conjunction:
    """f of every head over the samples, by measure: ("odds", stage) of scores, ("share", stage) of all.

    Measures that no layer has are absent. The prompts are in the order of `four_prompts.PROMPTS`.
    """

    values: Mapping[Measure, Float[Tensor, "sample prompt layer head"]]

    @property
    def n(self) -> int:
        """How many samples."""
        return next(iter(self.values.values())).shape[0]

    def effects(self, measure: Measure) -> Effects:
        """Both effects and the interaction of one measure. Raises PromptError for one that is absent."""
        if measure not in self.values:
            there = ", ".join(f"{name} at {stage.value.short}" for name, stage in self.values)
            raise PromptError(f"there is no {measure[0]} at {measure[1].value.short} here; there are {there}")
        return _effects(self, measure)

    def table(self) -> Table:
        """A row a measure, stage, layer and head: f of the four prompts, both effects, I, with intervals."""
        rows: list[Row] = []
        for name, stage in self.values:
            effects = self.effects((name, stage))
            parts = (effects.a, effects.b, effects.interaction)
            numbers = torch.cat([effects.means, *map(_ends, parts), *map(_median_ends, parts)])
            rows += [
                (name, stage.value.hook, *place, self.n, *numbers[:, *place].tolist(), effects.a.level)
                for place in np.ndindex(*numbers.shape[1:])
            ]
        return Table.of(("measure", "stage", "layer", "head", "samples", *_NUMBERS, "median_level"), rows)


@dataclass(frozen=True)
class Strongest:
    """A head at a stage: the mean of its interaction over samples and the median, ends as of `MeanScore`."""

    measure: Measure
    layer: int
    head: int
    interaction: float
    low: float
    high: float
    median: float
    median_low: float
    median_high: float
    level: float


def conjunction(
    model: HookedMTA,
    samples: Sequence[FourPrompts],
    *,
    keep: Callable[[Conjunction], None] = lambda result: None,
    progress: Progress = lambda share: None,
) -> Conjunction:
    """Every head of a model on the samples, four runs each.

    After every sample `keep(result so far)`; `progress(share done)` within it too; raise in either to
    stop. Raises PromptError without samples and for tokens the model does not have.
    """
    if not samples:
        raise PromptError("there are no samples; give at least one")
    measured, n = list[dict[Measure, Tensor]](), len(samples)
    for at, sample in enumerate(samples):
        measured.append(_measured(model, sample, progress_within(progress, at / n, 1 / n)))
        result = Conjunction({key: torch.stack([each[key] for each in measured]) for key in measured[0]})
        keep(result)
    return result


def tested(
    models: Mapping[str, HookedMTA],
    samples: Sequence[FourPrompts],
    *,
    begin: Callable[[str], None] = lambda words: None,
    keep: Callable[[dict[str, Conjunction]], None] = lambda result: None,
    progress: Progress = lambda share: None,
) -> dict[str, Conjunction]:
    """Several models on the same samples, by their names.

    `begin(name)` comes before each; `keep(results so far)` and `progress(share of this one)` as of
    `conjunction`. Raises PromptError for a model that reads the samples in other tokens than the first.
    """
    results: dict[str, Conjunction] = {}
    for name, model in models.items():
        begin(name)
        if results:
            check_reads_alike(model, name, samples)

        def keep_with_others(so_far: Conjunction, name: str = name) -> None:
            keep({**results, name: so_far})

        results[name] = conjunction(model, samples, keep=keep_with_others, progress=progress)
    return results


def ranked(test: Conjunction, measure: Measure) -> tuple[Strongest, ...]:
    """All heads that have the stage, by the lower end of I's median, largest first; of one sample by I."""
    score = test.effects(measure).interaction
    numbers = torch.cat([_ends(score), _median_ends(score)])
    places = (~numbers[0].isnan()).nonzero().tolist()
    heads = [Strongest(measure, *place, *numbers[:, *place].tolist(), score.level) for place in places]
    return tuple(sorted(heads, key=lambda head: -_rank(test, head)))


def _rank(test: Conjunction, head: Strongest) -> float:
    """The lower end of the median's interval; with one sample, which has none, the interaction itself."""
    return head.interaction if test.n < 2 else head.median_low


def strongest(test: Conjunction, name: str) -> Strongest | None:
    """The first in rank over all stages of a measure, "odds" or "share"; None where no head has a value.

    Of stages that are alike (weights nothing changes after the softmax) it is the last.
    """
    firsts = [heads[0] for measure in test.values if measure[0] == name and (heads := ranked(test, measure))]
    return max(reversed(firsts), key=lambda head: round(_rank(test, head), 6), default=None)


def score_of(measure: Measure) -> Score:
    """The name, unit and definition of a measure's interaction."""
    name, stage = measure
    words, unit = ("log-odds", "nats") if name == "odds" else ("share", "share")
    definition = f"f(both) - f(A only) - f(B only) + f(neither), f the span's {DEFINITIONS[name]}"
    return Score(f"conjunction.{name}", f"I of {words}, {stage.value.short}", unit, definition, stage)


def measure_there(test: Conjunction, measure: Measure) -> Measure:
    """The same measure at that stage, or at the last stage before it that the model has.

    A plain Transformer has no convolution: what its scores hold after one is what they held before.
    """
    name, stage = measure
    stages = list(Stage)[: list(Stage).index(stage) + 1]
    return next((name, there) for there in reversed(stages) if (name, there) in test.values)


def heads_table(results: Mapping[str, Conjunction]) -> Table:
    """The tables of several models, by their names."""
    tables = {name: result.table() for name, result in results.items()}
    rows = ((name, *row) for name, table in tables.items() for row in table.rows)
    return Table.of(("model", *next(iter(tables.values())).columns), rows)


def rows_of(result: Conjunction) -> list[dict[str, Any]]:
    """The rows of its table by column."""
    table = result.table()
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def check_reads_alike(twin: HookedMTA, name: str, samples: Sequence[FourPrompts]) -> None:
    """Raises PromptError, calling the other model `name`, unless it has the same tokens for the samples."""
    tokenizer, prompts = twin.tokenizer, [sample.prompts[0] for sample in samples]
    try:
        alike = tokenizer is not None and all(tokenizer.encode(p.text or "").ids == p.ids for p in prompts)
    except TokenizerError:
        alike = False
    if not alike:
        raise PromptError(f"{name} has other tokens for these prompts, so it cannot run on the same samples")


def at_identity(model: HookedMTA) -> HookedMTA | None:
    """The same model with every kernel and all head mixing at identity; None if it has none."""
    plan = everything_to_identity(model.config)
    return edited(model, plan) if plan else None


def _ends(score: MeanScore) -> Float[Tensor, "number layer head"]:
    return torch.stack([score.mean, score.low, score.high])


def _median_ends(score: MeanScore) -> Float[Tensor, "number layer head"]:
    return torch.stack([score.median, score.median_low, score.median_high])


def _measured(
    model: HookedMTA, sample: FourPrompts, progress: Progress
) -> dict[Measure, Float[Tensor, "prompt layer head"]]:
    finders = []
    for at, tokens in enumerate(sample.prompts):
        finders.append(find(capture(model, tokens), Parts(sample.span, (sample.span,), sample.query)))
        progress((at + 1) / len(sample.prompts))
    measured = {}
    for name, stage in MEASURES:
        key = f"span.{stage.value.key}"
        if key in finders[0].asked.values:
            values = [each.asked.values[key] if name == "odds" else each.share(stage) for each in finders]
            measured[name, stage] = torch.stack(values)
    return measured


@lru_cache(maxsize=64)
def _effects(test: Conjunction, measure: Measure) -> Effects:
    """Kept: intervals of every head take a while, and map, table and verdict all ask for them."""
    values = test.values[measure].double()
    both, a, b, neither = values.unbind(1)
    parts = (a - neither, b - neither, both - a - b + neither)
    scores = (
        mean_score(part.float(), bounds) for part, bounds in zip(parts, _BOUNDS[measure[0]], strict=True)
    )
    return Effects(values.mean(0).float(), *scores)

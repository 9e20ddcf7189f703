"""The conjunction test: do two words together give a span more than each gives it alone?

The paper says that a convolution finds where "Alice" and "rabbit" both stand. Per head and stage, with
f the span's log-odds or share in the last token's row of the four prompts: the effect of A is
f(A only) - f(neither), of B f(B only) - f(neither), and the interaction
I = f(both) - f(A only) - f(B only) + f(neither). So f(both) = f(neither) + A + B + I. Whether a conjunction
is shown is judged on log-odds, corrected for all heads and stages; on shares adding up bends, so they are
pictures. Owns the numbers; the prompts are `four_prompts`'.
"""

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.spans import log_odds
from mta_viz.analysis.labs.finder import Parts, find
from mta_viz.analysis.labs.four_prompts import FourPrompts
from mta_viz.analysis.labs.needle import MeanScore, mean_score
from mta_viz.analysis.labs.sign_flips import corrected_p, least_p, standardized
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.model.editing import edited
from mta_viz.model.plans import every_kernel
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.jobs import OfModel, gathered
from mta_viz.run.tracing import Progress, Trace, capture, ignore
from mta_viz.tables import Row, Table

Measure = tuple[str, Stage]
Values = Mapping[Measure, Float[Tensor, "prompt layer head"]]  # f of one sample
MEASURES: tuple[Measure, ...] = (
    *(("odds", stage) for stage in Stage if stage.value.unit == "score"),
    *(("share", stage) for stage in Stage),
    *(
        ("odds", stage) for stage in (Stage.SOFTMAX_KQ, Stage.PATTERN)
    ),  # after a softmax they are as before it
)
DEFINITIONS = {
    "odds": "log-odds: logsumexp of the last token's scores over the span less that over its other keys; of "
    "weights, log of the sum of |P| over the span less that over the others.",
    "share": "share: sum of |P| over the span / sum over the last token's row; of scores, the share if the "
    "softmax came there.",
}
_NUMBERS = (
    *("both", "a_only", "b_only", "neither", "a", "a_low", "a_high", "b", "b_low", "b_high"),
    *("interaction", "interaction_low", "interaction_high"),
    *(f"{part}_median{end}" for part in ("a", "b", "interaction") for end in ("", "_low", "_high")),
)
ALPHA = 0.025  # one-sided, all heads and stages together: half of 5 %, as a 95 % interval leaves on that side
LEAST_SHARE = 0.01  # of the row, mean of samples and prompts: log-odds of less say little and are not tested
ROUNDING = 1e-4  # nats: a smaller I of one sample is taken for 0, so that rounding is no effect
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
    """f of every head over the samples, by measure: ("odds", stage) and ("share", stage).

    Log-odds of weights are of the stages after the softmax that a layer has, NaN where the span or the rest
    gets exactly nothing. Measures that no layer has are absent. The prompts are in the order of
    `four_prompts.PROMPTS`.
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
        """A row a measure, stage, layer and head: f of the four prompts, both effects, I, with intervals.

        `p_corrected` of log-odds, as in `Verdict`; None of shares, which are not tested. A number that a head
        or measure does not have is None.
        """
        rows: list[Row] = []
        tested = p_values(self)
        for name, stage in self.values:
            effects, p = self.effects((name, stage)), tested.get((name, stage))
            parts = (effects.a, effects.b, effects.interaction)
            numbers = torch.cat([effects.means, *map(_ends, parts), *map(_median_ends, parts)])
            for at in np.ndindex(*numbers.shape[1:]):
                values = (*numbers[:, *at].tolist(), effects.a.level, math.nan if p is None else float(p[at]))
                known = (None if math.isnan(value) else value for value in values)
                rows.append((name, stage.value.hook, *at, self.n, *known))
        columns = ("measure", "stage", "layer", "head", "samples", *_NUMBERS, "median_level", "p_corrected")
        return Table.of(columns, rows)


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
    keep: Callable[[Conjunction], None] = ignore,
    progress: Progress = ignore,
    on: str | None = None,
    kept: MutableMapping[int, Values] | None = None,
) -> Conjunction:
    """Every head of a model on the samples, four runs each.

    After every sample `keep(result so far)`; `progress(share done)` within it too; raise in either to
    stop. `on`, `kept`: as of `gathered`. Raises PromptError without samples and for tokens the model does
    not have.
    """
    if not samples:
        raise PromptError("there are no samples; give at least one")
    for measured in gathered(_Measuring(model), samples, on, kept=kept, progress=progress):
        result = Conjunction({key: torch.stack([each[key] for each in measured]) for key in measured[0]})
        keep(result)
    return result


def tested(
    models: Mapping[str, HookedMTA],
    samples: Sequence[FourPrompts],
    *,
    begin: Callable[[str], None] = ignore,
    keep: Callable[[dict[str, Conjunction]], None] = ignore,
    progress: Progress = ignore,
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
    places = (~score.mean.isnan()).nonzero().tolist()
    heads = [_head(measure, layer, head, score) for layer, head in places]
    return tuple(sorted(heads, key=lambda head: -_rank(test, head)))


def _head(measure: Measure, layer: int, head: int, score: MeanScore) -> Strongest:
    numbers = torch.cat([_ends(score), _median_ends(score)])
    mean, low, high, median, median_low, median_high = numbers[:, layer, head].tolist()
    return Strongest(measure, layer, head, mean, low, high, median, median_low, median_high, score.level)


def _rank(test: Conjunction, head: Strongest) -> float:
    """The lower end of the median's interval; with one sample, which has none, the interaction itself."""
    return head.interaction if test.n < 2 else head.median_low


def strongest(test: Conjunction, name: str) -> Strongest | None:
    """The first in rank over all stages of a measure, "odds" or "share"; None where no head has a value.

    Of stages that are alike (weights nothing changes after the softmax) it is the last.
    """
    firsts = [heads[0] for measure in test.values if measure[0] == name and (heads := ranked(test, measure))]
    return max(reversed(firsts), key=lambda head: round(_rank(test, head), 6), default=None)


@dataclass(frozen=True)
class Verdict:
    """Whether the samples show a conjunction anywhere, on log-odds.

    `tested`: heads and stages that give the span `LEAST_SHARE` of the row or more, as a mean of all prompts;
    `faint`: those that give less, `untested`: those without a number in some sample.
    `best`: the one of smallest `p`; where there is none, None and NaN. `p`: how often the best of all tested
    would have as large a t if no sample's I had a preferred sign (`sign_flips`). `passing`: how many have
    p <= `ALPHA`. `least_p`: the smallest p that so many samples can give.
    """

    best: Strongest | None
    p: float
    tested: int
    faint: int
    untested: int
    passing: int
    samples: int
    least_p: float

    @property
    def shown(self) -> bool:
        """Whether one is shown. If not, that is no evidence that there is none."""
        return self.passing > 0


def verdict(test: Conjunction) -> Verdict:
    """Whether a conjunction is shown, with P(shown where there is none) at most `ALPHA`."""
    measures, values = _interactions(test)
    p = torch.stack([*p_values(test).values()]) if measures else torch.empty(0)
    best, least = None, float("nan")
    if not p.isnan().all():
        t = standardized(values).masked_fill(p.isnan(), -torch.inf)
        at, layer, head = (int(index) for index in np.unravel_index(int(t.argmax()), t.shape))
        best = _head(measures[at], layer, head, test.effects(measures[at]).interaction)
        least = float(p[at, layer, head])
    whole, partly = values.isfinite().all(0), values.isfinite().any(0)
    tested, faint = int((~p.isnan()).sum()), int((whole & p.isnan()).sum())
    passing, untested = int((p <= ALPHA).sum()), int((partly & ~whole).sum())
    return Verdict(best, least, tested, faint, untested, passing, test.n, least_p(test.n))


@lru_cache(maxsize=64)
def p_values(test: Conjunction) -> Mapping[Measure, Float[Tensor, "layer head"]]:
    """Corrected p of I > 0 on log-odds, all heads and stages together; NaN where none is tested."""
    measures, values = _interactions(test)
    if not measures:
        return {}
    shares = torch.stack([test.values[measure].sigmoid().mean((0, 1)) for measure in measures])
    flat = values.flatten(1)
    there = flat.isfinite().all(0) & (shares.flatten() >= LEAST_SHARE)
    p = torch.full(flat.shape[1:], torch.nan, dtype=torch.float64)
    if there.any():
        p[there] = corrected_p(flat[:, there])
    return dict(zip(measures, p.unflatten(0, values.shape[1:]), strict=True))


def _interactions(test: Conjunction) -> tuple[list[Measure], Float[Tensor, "sample stage layer head"]]:
    """I of the log-odds of each sample, what is only rounding as 0, at all stages that have them."""
    measures = [measure for measure in test.values if measure[0] == "odds"]
    if not measures:
        return [], torch.empty(test.n, 0, 0, 0)
    both, a, b, neither = torch.stack([test.values[at] for at in measures], 2).double().unbind(1)
    values = both - a - b + neither
    return measures, values.masked_fill(values.abs() <= ROUNDING, 0.0)


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
    before = [there for there in list(Stage)[: list(Stage).index(stage)] if not there.is_second]
    return next((name, there) for there in (stage, *reversed(before)) if (name, there) in test.values)


def usual_stage(test: Conjunction, name: str) -> Stage:
    """The last stage that a measure has; of log-odds the last of scores."""
    stages = [stage for measure, stage in test.values if measure == name and not stage.is_second]
    scores = [stage for stage in stages if stage.value.unit == "score"]
    return scores[-1] if name == "odds" and scores else stages[-1]


def heads_table(results: Mapping[str, Conjunction]) -> Table:
    """The tables of several models, by their names."""
    tables = {name: result.table() for name, result in results.items()}
    rows = ((name, *row) for name, table in tables.items() for row in table.rows)
    return Table.of(("model", *next(iter(tables.values())).columns), rows)


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
    plan = every_kernel(model.config)
    return edited(model, plan) if plan else None


def _ends(score: MeanScore) -> Float[Tensor, "number layer head"]:
    return torch.stack([score.mean, score.low, score.high])


def _median_ends(score: MeanScore) -> Float[Tensor, "number layer head"]:
    return torch.stack([score.median, score.median_low, score.median_high])


@dataclass(frozen=True)
class _Measuring(OfModel):
    """What is done with a sample."""

    model: HookedMTA

    def __call__(self, sample: FourPrompts, progress: Progress = ignore, /) -> Values:
        return _measured(self.model, sample, progress)


def _measured(model: HookedMTA, sample: FourPrompts, progress: Progress) -> Values:
    parts, prompts = Parts(sample.span, (sample.span,), sample.query), list[dict[Measure, Tensor]]()
    for at, tokens in enumerate(sample.prompts):
        trace = capture(model, tokens)
        needle, weights = find(trace, parts), _weight_odds(trace, parts)
        values = {
            ("share", stage): needle.share(stage) for stage in Stage if _span(stage) in needle.asked.values
        }
        scores = [stage for name, stage in values if stage.value.unit == "score"]
        prompts.append(
            values | {("odds", stage): needle.asked.values[_span(stage)] for stage in scores} | weights
        )
        progress((at + 1) / len(sample.prompts))
    there = [measure for measure in MEASURES if measure in prompts[0]]
    return {measure: torch.stack([values[measure] for values in prompts]) for measure in there}


def _span(stage: Stage) -> str:
    return f"span.{stage.value.key}"


def _weight_odds(trace: Trace, parts: Parts) -> dict[Measure, Float[Tensor, "layer head"]]:
    """Log-odds of the last token's weights at the stages after the softmax that a layer of the model has.

    From the sums of both sides, so a share next to 1 loses no digits; NaN where one side is exactly 0.
    """
    config, row = trace.model.config, slice(parts.query, parts.query + 1)
    kernels = [config.kernels(layer) for layer in range(config.n_layers)]
    has = {
        Stage.SOFTMAX_KQ: [bool(layer.post) for layer in kernels],
        Stage.PATTERN: [bool(layer.head_post) or layer.differential for layer in kernels],
    }
    odds = {}
    for stage, layers in has.items():
        if any(layers):
            values = torch.full((config.n_layers, config.n_heads), torch.nan)
            for layer in (layer for layer, there in enumerate(layers) if there):
                weights = trace.maps(layer, stage, row, slice(0, parts.query + 1))[:, 0].abs().double()
                values[layer] = log_odds(weights.log(), parts.asked).float()
            odds["odds", stage] = values.masked_fill(values.isinf(), torch.nan)
    return odds


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

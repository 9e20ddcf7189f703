"""Which scores a head gets on a prompt: name, unit, definition and stage of each. Owns no number.

Heads in order of one number: what `head_scores.ranking` gives.
All heads of a model scored on one prompt: what each head does, with the definition of every score.
Where to look first in a run: the head its first convolution changes most, the largest key of a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.analysis.attention.changes import difference_steps
from mta_viz.analysis.attention.patterns import TARGETS, PatternSums, effective_keys, target_sets
from mta_viz.analysis.attention.spans import Span, check_span, selectivity, span_results
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.printed import Printed, PrintedRows, Row, number
from mta_viz.run.tracing import Progress, Trace
from mta_viz.tables import Table

_W = "w = P / sum |P| is a row of final weights divided by the sum of its sizes"
_MADE = (Stage.KQ, Stage.MIX, Stage.SOFTMAX_KQ, Stage.PATTERN)  # by a convolution or head mixing
_SETS = {
    "previous": ("previous token", "the key right before the query, S = {i-1}"),
    "duplicate": ("duplicate token", "earlier keys with the query's own token, S = {j < i: x_j = x_i}"),
    "induction": (
        "induction",
        "the keys right after earlier keys with the query's own token, S = {j+1 < i: j < i, x_j = x_i}",
    ),
    "sink": ("sink share", "the first token, S = {0}, queries from 1 on"),
    "self": ("self", "the query's own key, S = {i}"),
}


@dataclass(frozen=True)
class Score:
    """One number a head gets. `definition` is a sentence or two; `stage` is where it is measured.

    `signed`: whether it may be below zero. `unit` "sd": standard deviations.
    """

    key: str
    name: str
    unit: str
    definition: str
    stage: Stage
    signed: bool = True


def _target_scores() -> list[Score]:
    chance = "the mean over the same queries of |S| times the row's mean w"
    varies = "sqrt(sum over queries of |S| (n - |S|) / (n - 1) times the variance of w in the row)"
    found = []
    for key, (name, which) in _SETS.items():
        score = (
            f"Mean over queries of the sum of w over {which}; {_W}. From -1 to 1; queries without such a key "
            "are left out."
        )
        by_chance = f"What keys in random order would give: {chance}."
        lift = f"The score {name} less what keys in random order would give, {chance}."
        z = (
            f"Sum over queries of the score less chance / {varies}, n keys in the row: exact when the keys "
            "of each row are in random order. Rows hang together, so z ranks heads and proves nothing."
        )
        part = f"The same as the score {name}, only its weights"
        for suffix, more, words, unit, signed in (
            ("", "", score, "share", True),
            ("chance", " by chance", by_chance, "share", True),
            ("lift", " lift", lift, "share", True),
            ("z", " z", z, "sd", True),
            ("positive", ", positive part", f"{part} above 0.", "share", False),
            ("negative", ", negative part", f"{part} below 0, by size.", "share", False),
        ):
            full = f"{key}.{suffix}" if suffix else key
            found.append(Score(full, f"{name}{more}", unit, words, Stage.PATTERN, signed))
    return found


def _row_scores() -> list[Score]:
    n_eff = "(sum |P|)^2 / sum P^2"
    one_row = f"{n_eff} in the row of the query: 1 when it attends to one key, n when evenly to n."
    every_row = f"Mean over queries of {n_eff} divided by i + 1, the number of keys the query sees."
    facts = (
        ("distance", "distance", "tokens", f"Mean over queries of sum_j |w_ij| (i - j); {_W}."),
        ("keys", "effective number of keys", "keys", one_row),
        ("even", "effective share of keys", "share", every_row),
        ("negative", "negative share", "share", "Sum of max(-P, 0) over sum of |P|, all cells."),
    )
    return [Score(*fact, Stage.PATTERN, signed=False) for fact in facts]


def _change_scores() -> list[Score]:
    centred = "; the mean of each row is taken out of both first, since the softmax does not see it"
    plain = "||after - before|| / ||before|| over all cells with key <= query"
    found = []
    for stage in _MADE:
        words = f"{plain}{centred if stage.value.unit == 'score' else ''}."
        name = f"change {stage.value.short}"
        found.append(Score(f"change.{stage.value.key}", name, "of norm", words, stage, signed=False))
    return found


def _span_scores() -> list[Score]:
    odds = (
        "Log-odds of the span: logsumexp of the query's scores over the span less logsumexp over the other "
        "keys it sees. The logit of the span's share if the softmax came here."
    )
    share = "Share of the span: sum of |P| over the span / sum of |P| over the query's row."
    mass = "Signed sum of P over the span in the query's row; below 0 the span is subtracted."
    found = []
    for stage in Stage:
        words, unit = (odds, "nats") if stage.value.unit == "score" else (share, "share")
        name = f"on span, {stage.value.short}"
        found.append(Score(f"span.{stage.value.key}", name, unit, words, stage, signed=words is odds))
    for stage in (Stage.SOFTMAX, Stage.SOFTMAX_KQ, Stage.PATTERN):
        name = f"mass on span, {stage.value.short}"
        found.append(Score(f"mass.{stage.value.key}", name, "weight", mass, stage))
    for stage in _MADE:
        what, unit = ("log-odds", "nats") if stage.value.unit == "score" else ("share", "share")
        words = f"The {what} of the span at this stage less the {what} one stage before."
        found.append(
            Score(f"gain.{stage.value.key}", f"gain on span, {stage.value.short}", unit, words, stage)
        )
    chosen = (
        "Share of this needle / sum of the shares of all needles the query sees, final weights: 1 when no "
        "other needle gets any, 1 / their number when all get the same."
    )
    return [*found, Score("selectivity", "selectivity", "share", chosen, Stage.PATTERN, signed=False)]


SCORES = (*_target_scores(), *_row_scores(), *_change_scores(), *_span_scores())


@dataclass(frozen=True)
class Ranked:
    """A head and its value."""

    layer: int
    head: int
    value: float


class Ranking(PrintedRows):
    """`Ranked` heads, the largest value first; `by` says by which number, with its unit."""

    by: str

    def _title(self) -> str:
        return f"{len(self)} heads by {self.by}"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        return ("head", "value"), [(f"L{one.layer} H{one.head}", number(one.value)) for one in self]


@dataclass(frozen=True, repr=False)
class HeadScores(Printed):
    """Scores of all heads. `values[key]` [layer, head] float32 on the CPU, keys of `SCORES`.

    NaN where a layer lacks the stage or step, where no row counts, or where the head's map holds
    NaN. Scores of a span are there only with a `span`, its selectivity only if it is one of several
    `needles`. `query` is the row of the scores that look
    at one row. `rows_left_out`: rows of the final weights whose sizes sum to less than 1e-8.
    `rows_counted`: how many queries have a non-empty target set.
    """

    query: int
    span: Span | None
    values: Mapping[str, Float[Tensor, "layer head"]]
    rows_left_out: Int[Tensor, "layer head"]
    rows_counted: Mapping[str, int]

    def _title(self) -> str:
        n_layers, n_heads = self.rows_left_out.shape
        return f"{len(self.values)} scores of {n_layers} layers x {n_heads} heads, and who has most"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """A row for each score: the head with most of it. All of them are ranked by `ranking`."""
        best = [(score, ranking(self, score.key)[0]) for score in self.scores]
        rows = [(one.key, f"L{at.layer} H{at.head}", number(at.value), one.unit) for one, at in best]
        return ("score", "head", "value", "unit"), rows

    def as_data(self, key: str | None = None) -> dict[str, Any]:
        """Plain values: a row a head, and the scores' definitions; with `key` that score alone, ranked.

        Raises PromptError for a score that was not measured.
        """
        shape = self.rows_left_out.shape
        heads = [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]
        if key is not None:
            heads = [(one.layer, one.head) for one in ranking(self, key)]
        told = [score for score in self.scores if key in (None, score.key)]
        return {
            "query": self.query,
            "span": self.span and asdict(self.span),
            "scores": [
                {"key": one.key, "name": one.name, "unit": one.unit, "definition": one.definition}
                for one in told
            ],
            "heads": [
                {"layer": layer, "head": head}
                | {one.key: float(self.values[one.key][layer, head]) for one in told}
                for layer, head in heads
            ],
        }

    def table(self) -> Table:
        """One row a head, one column a score; NaN where a head has none."""
        keys = [score.key for score in self.scores]
        values = torch.stack([self.values[key] for key in keys], dim=-1).tolist()
        rows = (
            (layer, head, *numbers)
            for layer, heads in enumerate(values)
            for head, numbers in enumerate(heads)
        )
        return Table.of(("layer", "head", *keys), rows)

    @property
    def scores(self) -> tuple[Score, ...]:
        """Those of `SCORES` that were measured."""
        return tuple(score for score in SCORES if score.key in self.values)


def head_scores(
    trace: Trace,
    span: Span | None = None,
    query: int | None = None,
    *,
    needles: Sequence[Span] = (),
    progress: Progress | None = None,
) -> HeadScores:
    """Every score of every head; one query's row is that of `query`, the last one by default.

    `needles`: spans of one kind; where `span` is one of several its selectivity among them is there.
    `progress(share done)` is called after every slab of rows; raise `Cancelled` in it to stop.
    Raises PromptError for a query outside the prompt and for a span `query` cannot weigh.

    >>> mta_viz.head_scores(trace).values["induction"].shape
    torch.Size([4, 2])
    """
    n_tokens, config = len(trace.tokens), trace.model.config
    query = n_tokens - 1 if query is None else query
    if not 0 <= query < n_tokens:
        raise PromptError(f"query {query} is not in the prompt; it has 0..{n_tokens - 1}")
    if span is not None:
        check_span(span, query)
    rivals = tuple(one for one in needles if one.start <= query) if span in needles else ()
    keys = [score.key for score in SCORES if _measured(score, span, rivals)]
    values = {key: torch.full((config.n_layers, config.n_heads), torch.nan) for key in keys}
    counts = []
    for layer in range(config.n_layers):
        found, sums = _layer(trace, layer, (span, rivals), query, progress)
        counts.append(sums)
        for key, per_head in found.items():
            values[key][layer] = per_head.float().cpu()
    counted = counts[0].non_empty
    left_out = torch.stack([sums.left_out for sums in counts]).long().cpu()
    return HeadScores(query, span, values, left_out, dict(zip(TARGETS, counted, strict=True)))


def ranking(scores: HeadScores, key: str) -> Ranking:
    """All heads, largest value first, those without one (NaN) last; equal ones by layer and head.

    `key` is that of one of `SCORES` (`scores.values` has those that were measured), whose `unit` the values
    have. Raises PromptError for another.

    >>> first = mta_viz.ranking(mta_viz.head_scores(trace), "previous")[0]
    >>> first.layer, first.head, round(first.value, 2)
    (1, 0, 0.7)
    """
    if key not in scores.values:
        raise PromptError(f"there is no score {key!r} here; there are {', '.join(scores.values)}")
    rows = [
        Ranked(layer, head, value)
        for layer, per_head in enumerate(scores.values[key].tolist())
        for head, value in enumerate(per_head)
    ]
    found = Ranking(sorted(rows, key=lambda row: (row.value != row.value, -row.value)))
    score = next(score for score in scores.scores if score.key == key)
    found.by = f"{score.name} ({score.unit})"
    return found


def _measured(score: Score, span: Span | None, rivals: Sequence[Span]) -> bool:
    """Whether there is what the score is about."""
    if score.key == "selectivity":
        return len(rivals) > 1
    return span is not None or not score.key.startswith(("span.", "mass.", "gain."))


def _layer(
    trace: Trace,
    layer: int,
    spans: tuple[Span | None, tuple[Span, ...]],
    query: int,
    progress: Progress | None,
) -> tuple[dict[str, Tensor], PatternSums]:
    """One pass over a layer. `spans`: the one scores are about, and all its rivals with itself."""
    span, rivals = spans
    config, n_tokens = trace.model.config, len(trace.tokens)
    steps, device = difference_steps(config.kernels(layer)), trace.residuals.device
    ids = torch.tensor(trace.tokens.ids, device=device)
    pattern, changes = PatternSums(config.n_heads, device), [_Change(*step) for step in steps]
    found: dict[str, Tensor] = {}
    for first, slabs in trace.stage_slabs(layer):
        rows = range(first, first + slabs[Stage.PATTERN].shape[1])
        pattern.add(slabs[Stage.PATTERN], target_sets(ids, rows))
        for change in changes:
            change.add(slabs)
        if query in rows:
            row = {stage: slab[:, query - first, : query + 1] for stage, slab in slabs.items()}
            found["keys"] = effective_keys(row[Stage.PATTERN])
            found |= span_results(row, span, steps) if span else {}
            if span and len(rivals) > 1:
                found["selectivity"] = selectivity(row[Stage.PATTERN], span, rivals)
        if progress:
            progress((layer + (rows.stop / n_tokens) ** 2) / config.n_layers)
    found |= {f"change.{change.after.value.key}": change.result() for change in changes}
    return found | pattern.results(), pattern


class _Change:
    """||after - before|| / ||before|| of a step while its slabs pass by, per head."""

    def __init__(self, before: Stage, after: Stage) -> None:
        self.before, self.after = before, after
        self._difference_energy: Tensor | float = 0.0
        self._before_energy: Tensor | float = 0.0

    def add(self, slabs: Mapping[Stage, Float[Tensor, "head query key"]]) -> None:
        before, after = slabs[self.before], slabs[self.after]
        self._difference_energy = self._difference_energy + self._energy(after - before)
        self._before_energy = self._before_energy + self._energy(before)

    def result(self) -> Float[Tensor, " head"]:
        return torch.as_tensor(self._difference_energy / self._before_energy).sqrt()

    def _energy(self, cells: Tensor) -> Tensor:
        """Sum of squares; of scores less their row's mean over the keys it sees."""
        if self.after.value.unit == "score":
            n_queries, n_keys = cells.shape[1:]
            seen = torch.arange(n_keys - n_queries, n_keys, device=cells.device)[:, None] + 1
            future = torch.arange(n_keys, device=cells.device) >= seen
            cells = (cells - cells.sum(-1, keepdim=True) / seen).masked_fill(future, 0.0)
        return cells.square().sum(-1).double().sum(-1)


def largest_key(trace: Trace, layer: int, head: int, stage: Stage, query: int) -> int:
    """The key of the largest size in the row of `query`; 0 in a row of NaN."""
    row = trace.map(layer, stage, head, queries=slice(query, query + 1))[0, : query + 1]
    return int(row.abs().nan_to_num(nan=-1.0).argmax())


def most_changed_head(trace: Trace) -> tuple[int, int] | None:
    """(layer, head) where the key-query convolution before the softmax changes the last row most.

    Change: norm of (after - before) over norm of before, each row less its mean, since the softmax
    does not see a constant. None where no such kernel changes anything.
    """
    last = len(trace.tokens) - 1
    rows = slice(last, last + 1)
    best, found = 0.0, None
    for layer in range(trace.model.config.n_layers):
        if not trace.model.config.kernels(layer).pre:
            continue
        before = trace.maps(layer, Stage.RAW, queries=rows)[:, 0]
        after = trace.maps(layer, Stage.KQ, queries=rows)[:, 0]
        before, after = (row - row.mean(dim=1, keepdim=True) for row in (before, after))
        change = (after - before).norm(dim=1) / before.norm(dim=1).clamp_min(1e-9)
        size, head = torch.where(change.isfinite(), change, 0.0).max(dim=0)
        if float(size) > best:
            best, found = float(size), (layer, int(head))
    return found

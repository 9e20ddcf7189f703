"""What each head of a model does on one prompt, by the scores of `scores.toml`; and where to look first."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from string import Template
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.analysis.attention.changes import centred, difference_steps
from mta_viz.analysis.attention.patterns import TARGETS, PatternSums, effective_keys, target_sets
from mta_viz.analysis.attention.spans import Span, check_span, selectivity, span_results
from mta_viz.errors import PromptError, check_index
from mta_viz.model.ops import future_cells
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Progress, Trace, ignore
from mta_viz.tables import Printed, PrintedRows, Row, Table, number


@dataclass(frozen=True)
class Score:
    """One number a head gets. `definition` is a sentence or two; `stage` is where it is measured.

    `signed`: whether it may be below zero. `unit` "sd": standard deviations. `bounds`: the ends of what it
    can be, where it has some.
    """

    key: str
    name: str
    unit: str
    definition: str
    stage: Stage
    signed: bool = True
    bounds: tuple[float, float] | None = None


def _read_scores() -> Iterator[Score]:
    """What `scores.toml` lists: each group's scores for each of its entries."""
    data = tomllib.loads(files(__package__).joinpath("scores.toml").read_text("utf-8"))
    for group in data["group"]:
        for entry in group.get("each", [{}]):
            words = data["words"] | entry
            stage = Stage.from_key(entry.get("stage", "final"))
            for score in group["scores"]:
                key, name, unit, definition = (Template(score[part]).substitute(words) for part in _TEXTS)
                bounds = tuple(entry.get("bounds", score.get("bounds", ()))) or None
                yield Score(key, name, unit, definition, stage, score.get("signed", True), bounds)


_TEXTS = ("key", "name", "unit", "definition")
SCORES = tuple(_read_scores())


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
        return ("head", "value"), [(f"L{head.layer} H{head.head}", number(head.value)) for head in self]


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
        most = ((score, ranking(self, score.key)[0]) for score in self.scores)
        rows = [(score.key, f"L{at.layer} H{at.head}", number(at.value), score.unit) for score, at in most]
        return ("score", "head", "value", "unit"), rows

    def as_data(self, key: str | None = None) -> dict[str, Any]:
        """Plain values: a row a head, and the scores' definitions; with `key` that score alone, ranked.

        Raises PromptError for a score that was not measured.
        """
        keys = [score.key for score in self.scores if key in (None, score.key)]
        heads = {(row["layer"], row["head"]): row for row in self.table().records()}
        order = list(heads) if key is None else [(head.layer, head.head) for head in ranking(self, key)]
        return {
            "query": self.query,
            "span": self.span and asdict(self.span),
            "scores": [
                {name: getattr(score, name) for name in _TEXTS} for score in self.scores if score.key in keys
            ],
            "heads": [{name: heads[place][name] for name in ("layer", "head", *keys)} for place in order],
        }

    def table(self) -> Table:
        """One row a head, one column a score; NaN where a head has none."""
        keys = [score.key for score in self.scores]
        values = torch.stack([self.values[key] for key in keys], dim=-1).tolist()
        rows = ((layer, head, *row) for layer, heads in enumerate(values) for head, row in enumerate(heads))
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
    progress: Progress = ignore,
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
    check_index("query", query, n_tokens)
    if span is not None:
        check_span(span, query)
    rivals = tuple(needle for needle in needles if needle.start <= query) if span in needles else ()
    keys = [score.key for score in SCORES if span or not score.key.startswith(("span.", "mass.", "gain."))]
    if len(rivals) < 2:
        keys.remove("selectivity")
    values = {key: torch.full((config.n_layers, config.n_heads), torch.nan) for key in keys}
    counts = []
    for layer in range(config.n_layers):
        results, sums = _layer(trace, layer, (span, rivals), query, progress)
        counts.append(sums)
        for key, per_head in results.items():
            values[key][layer] = per_head.float().cpu()
    counted = counts[0].non_empty
    left_out = torch.stack([sums.totals["left_out"] for sums in counts]).long().cpu()
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
    ranked = Ranking(sorted(rows, key=lambda row: (row.value != row.value, -row.value)))
    score = next(score for score in scores.scores if score.key == key)
    ranked.by = f"{score.name} ({score.unit})"
    return ranked


def _layer(
    trace: Trace, layer: int, spans: tuple[Span | None, tuple[Span, ...]], query: int, progress: Progress
) -> tuple[dict[str, Tensor], PatternSums]:
    """One pass over a layer. `spans`: the one scores are about, and all its rivals with itself."""
    span, rivals = spans
    config, n_tokens = trace.model.config, len(trace.tokens)
    steps, device = difference_steps(config.kernels(layer)), trace.residuals.device
    ids = torch.tensor(trace.tokens.ids, device=device)
    pattern, energies = PatternSums(), dict[Stage, Tensor]()
    results: dict[str, Tensor] = {}
    for first, slabs in trace.stage_slabs(layer):
        rows = range(first, first + slabs[Stage.PATTERN].shape[1])
        pattern.add(slabs[Stage.PATTERN], target_sets(ids, rows))
        for before, after in steps:
            parts = (_energy(cells, after) for cells in (slabs[after] - slabs[before], slabs[before]))
            energies[after] = torch.stack([*parts]) + energies.get(after, 0.0)
        if query in rows:
            row = {stage: slab[:, query - first, : query + 1] for stage, slab in slabs.items()}
            results["keys"] = effective_keys(row[Stage.PATTERN])
            results |= span_results(row, span, steps) if span else {}
            if span and len(rivals) > 1:
                results["selectivity"] = selectivity(row[Stage.PATTERN], span, rivals)
        progress((layer + (rows.stop / n_tokens) ** 2) / config.n_layers)
    changes = {f"change.{after.value.key}": (of[0] / of[1]).sqrt() for after, of in energies.items()}
    return results | changes | pattern.results(), pattern


def _energy(cells: Float[Tensor, "head query key"], stage: Stage) -> Float[Tensor, " head"]:
    """Sum of squares; of scores less their row's mean over the keys it sees."""
    if stage.value.unit == "score":
        n_queries, n_keys = cells.shape[1:]
        cells = centred(cells, future_cells(range(n_keys - n_queries, n_keys), n_keys, cells.device))
    return cells.square().sum(-1).double().sum(-1)


def largest_key(trace: Trace, layer: int, head: int, stage: Stage, query: int) -> int:
    """The key of the highest score, or of the weight of largest size, in a query's row; 0 in a row of NaN."""
    row = trace.map(layer, stage, head, queries=slice(query, query + 1))[0, : query + 1]
    sizes = row if stage.value.unit == "score" else row.abs()  # the softmax takes the highest
    return int(sizes.nan_to_num(nan=-math.inf).argmax())


def most_changed_head(trace: Trace) -> tuple[int, int] | None:
    """(layer, head) where the key-query convolution before the softmax changes the last row most.

    Change: norm of (after - before) over norm of before, each row less its mean, since the softmax
    does not see a constant. None where no such kernel changes anything.
    """
    rows = slice(len(trace.tokens) - 1, len(trace.tokens))
    best, where = 0.0, None
    for layer in range(trace.model.config.n_layers):
        if not trace.model.config.kernels(layer).pre:
            continue
        last = (trace.maps(layer, stage, queries=rows)[:, 0] for stage in (Stage.RAW, Stage.KQ))
        before, after = (row - row.mean(dim=1, keepdim=True) for row in last)
        change = (after - before).norm(dim=1) / before.norm(dim=1).clamp_min(1e-9)
        size, head = torch.where(change.isfinite(), change, 0.0).max(dim=0)
        if float(size) > best:
            best, where = float(size), (layer, int(head))
    return where

"""What "why this value" is made of: one cell's value as a sum, or what it was computed from.

Owns the frozen results; `decomposition.py` makes them from a trace.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.model.stages import Stage
from mta_viz.printed import Printed, Row, number
from mta_viz.tables import Table
from mta_viz.tokenizers.base import Tokens

State = Literal["inside", "outside", "future"]


@dataclass(frozen=True)
class Term:
    """One product of a sum: `weight` (kernel tap or mixing weight) x `source` = `product`.

    The source is the cell (head, query, key) one stage earlier. `state`: "inside" the prompt's
    causal cells; "outside" the prompt and "future" (key after query) are read as 0.
    """

    head: int
    query: int
    key: int
    state: State
    weight: float
    source: float
    product: float

    def row(self, tokens: Tokens) -> dict[str, object]:
        """What it reads, by column; there is no token outside the prompt."""
        there = self.state != "outside"
        return {
            "source_head": self.head,
            "source_query": self.query,
            "source_query_token": tokens.pieces[self.query] if there else None,
            "source_key": self.key,
            "source_key_token": tokens.pieces[self.key] if there else None,
            **{"state": self.state, "weight": self.weight, "source": self.source, "product": self.product},
        }


@dataclass(frozen=True)
class Cause:
    """One step in one line: the cell `before` and `after`, and what moved it most.

    `before` is None where the stage before has another unit or there is none. `own` is the term of
    the cell itself, `largest` that of largest |product| among the others; None when there is no
    such term or all others are 0.
    """

    before: float | None
    after: float
    own: Term | None
    largest: Term | None


@dataclass(frozen=True, repr=False)
class Decomposition(Printed):
    """Why the cell (layer, stage, head, query, key) has its `value`.

    `terms`: largest |product| first; empty where the value is no sum of cells. `residual`:
    |value - what the parts give| over the sum of |terms|, rounding alone: below 1e-5 in float32.
    A half-precision model rounds every stage to its own format, and the residual shows that.
    """

    layer: int
    stage: Stage
    head: int
    query: int
    key: int
    value: float
    stage_before: Stage | None
    terms: tuple[Term, ...]
    residual: float

    def _title(self) -> str:
        where = f"L{self.layer} H{self.head} {self.stage.value.long}, query {self.query}, key {self.key}"
        return f"{where}: {number(self.value)} = {self._sum_words()}"

    def as_data(self) -> dict[str, Any]:
        """Plain values; stages by their hooks' names, terms largest first."""
        left_out = {"stage", "stage_before", "terms", "window"}
        return {
            "stage": self.stage.value.hook,
            "stage_before": self.stage_before and self.stage_before.value.hook,
            **{name: value for name, value in vars(self).items() if name not in left_out},
            "terms": [asdict(term) for term in self.terms],
        }

    def _sum_words(self) -> str:
        return f"sum of {len(self.terms)} products"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        rows = [
            (f"H{term.head}", term.query, term.key, *map(number, (term.weight, term.source, term.product)))
            for term in self.terms
        ]
        return ("head", "query", "key", "weight", "source", "product"), rows

    def table(self, tokens: Tokens) -> Table:
        """One row a term, largest |product| first, with the cell itself in each.

        A value that is no sum of cells (softmax, raw score) is one row with what it was computed from.
        """
        pieces = tokens.pieces
        cell = {
            **{"layer": self.layer, "head": self.head, "stage": self.stage.value.hook},
            **{"query": self.query, "query_token": pieces[self.query], "key": self.key},
            **{"key_token": pieces[self.key], "value": self.value, "residual": self.residual},
        }
        before = self.stage_before and self.stage_before.value.hook
        terms = [{"source_stage": before} | term.row(tokens) for term in self.terms]
        rows: list[dict[str, object]] = [cell | made for made in terms or [self._made_of()]]
        return Table.of(rows[0], (tuple(row.values()) for row in rows))

    def _made_of(self) -> dict[str, object]:
        """What a value that is no sum was computed from."""
        return {}

    @property
    def cause(self) -> Cause:
        """The same as one line."""
        here = (self.head, self.query, self.key)
        own = next((term for term in self.terms if (term.head, term.query, term.key) == here), None)
        others = [term for term in self.terms if term is not own and term.product != 0]
        return Cause(own.source if own else None, self.value, own, others[0] if others else None)


@dataclass(frozen=True)
class Window:
    """The taps of a kernel over the cell, as they lie in the map: rows by query, columns by key.

    `sources` are the values the convolution reads (0 where `outside` or `future`),
    `products` = `kernel` x `sources`.
    """

    offsets: Offsets
    kernel: Float[Tensor, "c_q c_k"]
    sources: Float[Tensor, "c_q c_k"]
    products: Float[Tensor, "c_q c_k"]
    outside: Bool[Tensor, "c_q c_k"]
    future: Bool[Tensor, "c_q c_k"]


@dataclass(frozen=True, repr=False)
class Convolved(Decomposition):
    """A cell after a key-query convolution: one term for every tap of the kernel."""

    window: Window


@dataclass(frozen=True, repr=False)
class Mixed(Decomposition):
    """A cell after head mixing: one term for every source head of the target's group."""


@dataclass(frozen=True, repr=False)
class Softmaxed(Decomposition):
    """A cell of the softmax: value = exp(score - log_normaliser), both in nats.

    `rival` is the key of the largest other score in the row and `margin` = score - its score
    (negative when the rival leads); None in a row of one key.
    """

    score: float
    log_normaliser: float
    rival: int | None
    margin: float | None

    def _sum_words(self) -> str:
        rival = (
            "" if self.rival is None else f"; the next key, {self.rival}, is {self.margin:.3g} nats behind"
        )
        return f"exp({number(self.score)} - {number(self.log_normaliser)}){rival}"

    def _made_of(self) -> dict[str, object]:
        row: dict[str, object] = {"score": self.score, "log_normaliser": self.log_normaliser}
        return row | {"runner_up_key": self.rival, "margin_nats": self.margin}


@dataclass(frozen=True, repr=False)
class Scored(Decomposition):
    """A raw score: value = query_norm x key_norm x cosine / sqrt(d), of the rotated vectors."""

    query_norm: float
    key_norm: float
    cosine: float
    d_head: int

    def _sum_words(self) -> str:
        return f"{self.query_norm:.3g} x {self.key_norm:.3g} x cosine {self.cosine:.3g} / sqrt({self.d_head})"

    def _made_of(self) -> dict[str, object]:
        names = ("query_norm", "key_norm", "cosine", "d_head")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, repr=False)
class Passed(Decomposition):
    """Final weights with no head mixing after them: the stage before, unchanged; one term of weight 1."""


def largest_first(terms: Iterable[Term]) -> tuple[Term, ...]:
    """By |product|, NaN before all; cells that are read as 0 come last."""
    return tuple(sorted(terms, key=lambda term: (-_size(term.product), term.state != "inside")))


def relative_error(value: float, parts: Iterable[float], scale: float | None = None) -> float:
    """|value - sum of parts| / sum of |parts| (or `scale`); where that is 0, the difference itself."""
    parts = tuple(parts)
    scale = math.fsum(map(abs, parts)) if scale is None else scale
    difference = abs(value - math.fsum(parts)) if all(map(math.isfinite, parts)) else math.nan
    return difference / scale if scale else difference


def _size(product: float) -> float:
    return math.inf if math.isnan(product) else abs(product)

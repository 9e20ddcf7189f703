"""Cells and positions of a run: cells that stand out, a query's row and a key's column, what comes next.

Cells stand out by value, by a step's change, or by what they contribute; no whole map is needed for any. The
next tokens after a position are the most probable ones, and how they come up over the layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.analysis.attention.changes import difference_steps
from mta_viz.errors import MtaVizError, PromptError, check_index
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import Trace
from mta_viz.tables import Printed, PrintedRows, Row, Table
from mta_viz.tokenizers.base import Tokens

By = Literal["value", "change", "contribution"]

MOST_FOLLOWED = 256  # of which each is compared with the whole vocabulary at every depth


@dataclass(frozen=True)
class TopCell:
    """A cell and its value; `before`: its value one stage earlier where the unit is the same.

    `contribution`: size of its part of the head's output at the query, |P| ||v||, where asked for.
    """

    query: int
    key: int
    value: float
    before: float | None = None
    contribution: float | None = None

    @property
    def change(self) -> float | None:
        """Value less the value one stage earlier."""
        return None if self.before is None else self.value - self.before


def stage_before(trace: Trace, layer: int, stage: Stage) -> Stage | None:
    """The stage that a convolution or head mixing of this layer makes `stage` from, else None."""
    steps = difference_steps(trace.model.config.kernels(layer))
    return next((before for before, after in steps if after is stage), None)


def top_cells(
    trace: Trace,
    layer: int,
    head: int,
    stage: Stage,
    k: int = 50,
    *,
    by: By = "value",
    first_token: bool = True,
) -> tuple[TopCell, ...]:
    """The `k` cells of largest |value|, of largest |change| by the step before, or of largest
    contribution |P_ij| ||v_j|| (final weights only), largest first.

    v_j is the value vector of key j in this head: P_ij v_j is what the key adds to the head's output
    at query i, before any norm, gate and output projection.
    Masked, NaN and infinite cells are left out, without `first_token` query 0 and key 0 too. Rows
    pass by in slabs: no whole map exists. Raises PromptError for what is not there.

    >>> largest = mta_viz.top_cells(trace, 2, 1, mta_viz.Stage.PATTERN, k=1)[0]
    >>> largest.query >= largest.key
    True
    """
    before = stage_before(trace, layer, stage)
    check_index("head", head, trace.model.config.n_heads)
    if by == "change" and before is None:
        raise PromptError(
            f"{stage.value.long} of layer {layer} has no stage before it in the same unit, so no change; "
            "rank its cells by value"
        )
    if by == "contribution" and stage is not Stage.PATTERN:
        raise PromptError(
            f"only the final weights multiply the values; {stage.value.long} contributes nothing by itself. "
            "Rank the final weights, or these cells by value"
        )
    norms = value_norms(trace, layer, head) if by == "contribution" else None
    best: list[tuple[float, TopCell]] = []
    for first_row, values, earlier in _rows(trace, layer, head, stage, before):
        size = (values - earlier).abs() if earlier is not None and by == "change" else values.abs()
        if norms is not None:
            size = size * norms[: size.shape[1]]
        best += _largest(size, values, earlier, first_row, k, first_token)
        best = sorted(best, key=lambda entry: (-entry[0], entry[1].query, entry[1].key))[:k]
    if norms is None:
        return tuple(cell for _, cell in best)
    return tuple(replace(cell, contribution=size) for size, cell in best)


def cells_table(cells: Sequence[TopCell], tokens: Tokens) -> Table:
    """One row a cell, in their order."""
    pieces = tokens.pieces
    rows: list[Row] = []
    for cell in cells:
        place = (cell.query, pieces[cell.query], cell.key, pieces[cell.key])
        rows.append((*place, cell.value, cell.before, cell.contribution))
    facts = ("value", "value_before", "contribution")
    return Table.of(("query", "query_token", "key", "key_token", *facts), rows)


def value_norms(trace: Trace, layer: int, head: int) -> Float[Tensor, " key"]:
    """||v_j|| of every key j in a head (in its group's values, where heads share them), float32."""
    values = trace.project(layer).v[0]
    shared = trace.model.config.n_heads // values.shape[1]
    return values[:, head // shared].float().norm(dim=-1).to(trace.model.device)


def _rows(
    trace: Trace, layer: int, head: int, stage: Stage, before: Stage | None
) -> Iterator[tuple[int, Float[Tensor, "query key"], Float[Tensor, "query key"] | None]]:
    if before is None:
        yield from ((first, slab[head], None) for first, slab in trace.slabs(layer, stage))
        return
    for first, slabs in trace.stage_slabs(layer):
        yield first, slabs[stage][head], slabs[before][head]


def _largest(
    size: Float[Tensor, "query key"],
    values: Float[Tensor, "query key"],
    before: Float[Tensor, "query key"] | None,
    first_row: int,
    k: int,
    first_token: bool,
) -> list[tuple[float, TopCell]]:
    queries = torch.arange(first_row, first_row + size.shape[0], device=size.device)[:, None]
    keys = torch.arange(size.shape[1], device=size.device)
    used = (keys <= queries) & size.isfinite()
    if not first_token:
        used &= (keys > 0) & (queries > 0)
    top, places = torch.where(used, size, -1.0).flatten().topk(min(k, size.numel()))
    cells = []
    for largest, place in zip(top.tolist(), places.tolist(), strict=True):
        if largest >= 0:
            query, key = divmod(place, size.shape[1])
            earlier = None if before is None else float(before[query, key])
            cells.append((largest, TopCell(first_row + query, key, float(values[query, key]), earlier)))
    return cells


Along = Literal["keys", "queries"]


@dataclass(frozen=True)
class CrossSection:
    """Values of a head along the keys of one query, or along the queries of one key.

    `position` is that query (key). Value c of a stage, float32 on the CPU, belongs to token
    `start + c`; the other tokens are masked: keys after the query, queries before the key.
    """

    layer: int
    head: int
    along: Along
    position: int
    start: int
    values: Mapping[Stage, Float[Tensor, " position"]]

    @property
    def stop(self) -> int:
        """One after the last token that has a value."""
        return self.start + len(next(iter(self.values.values())))

    def largest(self, stage: Stage, first_token: bool = True) -> float:
        """Largest finite |x| of a stage; without `first_token`, of later tokens if any."""
        row = self.values[stage][1 if self.start == 0 and not first_token and self.stop > 1 else 0 :]
        sizes = row[row.isfinite()].abs()
        return float(sizes.max()) if len(sizes) else 0.0

    def table(self, tokens: Tokens) -> Table:
        """One row a token and stage."""
        other = "query" if self.along == "keys" else "key"
        rows = (
            (self.layer, self.head, stage.value.hook, self.position, place, tokens.pieces[place], value)
            for stage, values in self.values.items()
            for place, value in enumerate(values.tolist(), start=self.start)
        )
        return Table.of(("layer", "head", "stage", other, "position", "token", "value"), rows)


def query_row(trace: Trace, layer: int, head: int, query: int) -> CrossSection:
    """What `query` attends to, at every stage. Raises PromptError for what is not there."""
    check_place(trace, layer, head, query=query)
    ((_, slabs),) = trace.stage_slabs(layer, range(query, query + 1))
    values = {stage: slabs[stage][head, 0].detach().cpu().clone() for stage in Stage if stage in slabs}
    return CrossSection(layer, head, "keys", query, 0, values)


def key_column(trace: Trace, layer: int, head: int, key: int) -> CrossSection:
    """How all queries from `key` on attend to it, at every stage; one pass over the layer's rows."""
    check_place(trace, layer, head, key=key)
    parts: dict[Stage, list[Tensor]] = {}
    for _, slabs in trace.stage_slabs(layer, range(key, len(trace.tokens))):
        for stage, slab in slabs.items():
            column = slab[head, :, key].detach().cpu().clone()  # a view would keep the whole slab
            parts.setdefault(stage, []).append(column)
    values = {stage: torch.cat(parts[stage]) for stage in Stage if stage in parts}
    return CrossSection(layer, head, "queries", key, key, values)


def check_place(trace: Trace, layer: int, head: int, **positions: int) -> None:
    """Raises PromptError for a layer, head or position, by its name, that is not there."""
    config = trace.model.config
    check_index("layer", layer, config.n_layers)
    check_index("head", head, config.n_heads)
    for name, position in positions.items():
        check_index(name, position, len(trace.tokens))


@dataclass(frozen=True)
class Prediction:
    """One candidate: vocabulary index, the label shown for it, probability 0..1."""

    id: int
    piece: str
    probability: float


class Predictions(PrintedRows):
    """`Prediction`s, the most probable first."""

    __slots__ = ()

    def _title(self) -> str:
        return f"The {len(self)} most probable next tokens"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        rows = [(rank, piece, f"{share:.2%}", token) for rank, token, piece, share in self.table().rows]
        return ("rank", "token", "probability", "id"), rows

    def table(self) -> Table:
        """One row a token."""
        rows = ((rank, *vars(token).values()) for rank, token in enumerate(self, start=1))
        return Table.of(("rank", "id", "token", "probability"), rows)


@dataclass(frozen=True, repr=False)
class LogitLens(Printed):
    """Next-token readings of the residual stream after `position`, over depths 0..number of layers.

    Depth d is the stream that enters layer d, the last one the model's output. For the tokens of
    `ids`: `logits`, `probabilities` (0..1) and `ranks` (1: the most probable) [depth, token],
    float32 on the CPU. `top[d]`: the most probable tokens of a depth, most probable first.
    """

    position: int
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    logits: Float[Tensor, "depth token"]
    probabilities: Float[Tensor, "depth token"]
    ranks: Int[Tensor, "depth token"]
    top: tuple[tuple[Prediction, ...], ...]

    def _title(self) -> str:
        return (
            f"Logit lens after position {self.position}: probability (rank) before each layer and at the end"
        )

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """A row a depth, a column a token."""
        cells = [
            [f"{p:.2%} ({rank})" for p, rank in zip(row, ranks, strict=True)]
            for row, ranks in zip(self.probabilities.tolist(), self.ranks.tolist(), strict=True)
        ]
        return ("depth", *self.pieces), [(depth, *row) for depth, row in enumerate(cells)]

    def table(self) -> Table:
        """One row a depth and chosen token; depth 0 is the embedding."""
        facts = (self.logits, self.probabilities, self.ranks)
        rows = (
            (depth, *token)
            for depth, parts in enumerate(zip(*facts, strict=True))
            for token in zip(self.ids, *(part.tolist() for part in parts), strict=True)
        )
        return Table.of(("depth", "token_id", "logit", "probability", "rank"), rows)

    def as_data(self) -> dict[str, Any]:
        """Plain values: what every depth would predict, and the tokens chosen at every depth."""
        return {
            "position": self.position,
            "tokens": [{"id": id, "piece": piece} for id, piece in zip(self.ids, self.pieces, strict=True)],
            "depths": [
                {"depth": depth}
                | {name: getattr(self, name)[depth].tolist() for name in ("logits", "probabilities", "ranks")}
                | {"top": [asdict(token) for token in top]}
                for depth, top in enumerate(self.top)
            ],
        }


def top_tokens(trace: Trace, position: int, k: int = 10) -> Predictions:
    """The `k` most probable tokens after `position` (0..T-1, or from the end: -1), most probable first.

    Raises PromptError for a position outside the prompt, MtaVizError for logits that are NaN or
    infinite, of which no probability can be told.

    >>> mta_viz.top_tokens(trace, -1, k=1)[0].piece
    'q'
    """
    position += len(trace.tokens) if position < 0 else 0
    return _top(trace, _logits(trace, trace.model.config.n_layers, position), k)


def lens_over_layers(
    trace: Trace, position: int, token_ids: tuple[int, ...] = (), *, k: int = 5
) -> LogitLens:
    """Logit lens after `position` for chosen tokens, with the `k` most probable ones of every depth.

    Without `token_ids`, of the model's own `k` most probable tokens. Raises as `top_tokens` does,
    and PromptError for ids outside the vocabulary, or more than `MOST_FOLLOWED`.

    >>> lens = mta_viz.lens_over_layers(trace, len(trace.tokens) - 1, k=1)
    >>> lens.pieces, lens.ranks[-1].tolist()
    (('q',), [1])
    """
    vocab, depths = trace.model.config.vocab_size, range(trace.model.config.n_layers + 1)
    wrong = [index for index in token_ids if not 0 <= index < vocab]
    if wrong:
        raise PromptError(f"token ids are 0 to {vocab - 1}; given: {', '.join(map(str, wrong))}")
    if len(token_ids) > MOST_FOLLOWED:
        raise PromptError(f"{len(token_ids):,} tokens are to be followed; expected at most {MOST_FOLLOWED}")
    every = torch.stack([_logits(trace, depth, position) for depth in depths])
    top = tuple(_top(trace, logits, k) for logits in every)
    ids = token_ids or tuple(token.id for token in top[-1])
    chosen = every[:, list(ids)]
    probabilities, ranks = every.softmax(-1)[:, list(ids)], 1 + (every[:, None] > chosen[:, :, None]).sum(-1)
    return LogitLens(position, ids, _pieces(trace, ids), chosen, probabilities, ranks, top)


def _logits(trace: Trace, depth: int, position: int) -> Float[Tensor, " vocab"]:
    check_index("position", position, len(trace.tokens))
    logits = trace.lens(depth, slice(position, position + 1))[0].float().cpu()
    if not logits.isfinite().all():
        raise MtaVizError(
            f"the logits after position {position} hold NaN or inf, so there is no next token; "
            "look at the health card for the weights that are NaN or infinite"
        )
    return logits


def _top(trace: Trace, logits: Float[Tensor, " vocab"], k: int) -> Predictions:
    probabilities, ids = logits.softmax(0).topk(min(k, len(logits)))
    tokens = tuple(int(index) for index in ids)
    return Predictions(
        Prediction(index, piece, float(probability))
        for index, piece, probability in zip(tokens, _pieces(trace, tokens), probabilities, strict=True)
    )


def _pieces(trace: Trace, ids: tuple[int, ...]) -> tuple[str, ...]:
    tokenizer = trace.model.tokenizer
    return tokenizer.pieces(ids) if tokenizer else tuple(f"<{index}>" for index in ids)

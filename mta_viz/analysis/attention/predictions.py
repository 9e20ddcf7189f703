"""The next tokens after a position: the most probable ones, and how they come up over the layers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mta_viz.errors import MtaVizError, PromptError
from mta_viz.printed import Printed, PrintedRows, Row
from mta_viz.run.tracing import Trace
from mta_viz.tables import Table


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
    and PromptError for ids outside the vocabulary.

    >>> lens = mta_viz.lens_over_layers(trace, len(trace.tokens) - 1, k=1)
    >>> lens.pieces, lens.ranks[-1].tolist()
    (('q',), [1])
    """
    vocab, depths = trace.model.config.vocab_size, range(trace.model.config.n_layers + 1)
    wrong = [index for index in token_ids if not 0 <= index < vocab]
    if wrong:
        raise PromptError(f"token ids are 0 to {vocab - 1}; given: {', '.join(map(str, wrong))}")
    every = torch.stack([_logits(trace, depth, position) for depth in depths])
    top = tuple(_top(trace, logits, k) for logits in every)
    ids = token_ids or tuple(token.id for token in top[-1])
    chosen = every[:, list(ids)]
    probabilities, ranks = every.softmax(-1)[:, list(ids)], 1 + (every[:, None] > chosen[:, :, None]).sum(-1)
    return LogitLens(position, ids, _pieces(trace, ids), chosen, probabilities, ranks, top)


def _logits(trace: Trace, depth: int, position: int) -> Float[Tensor, " vocab"]:
    if not 0 <= position < len(trace.tokens):
        raise PromptError(f"position {position} is not in the prompt; it has 0..{len(trace.tokens) - 1}")
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

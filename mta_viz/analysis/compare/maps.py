"""What two prompts have in common: positions, spans; and a head's map in run A less its partner's in B."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mta_viz.analysis.attention.changes import DifferenceMap
from mta_viz.analysis.attention.maps import WholeMap
from mta_viz.analysis.attention.spans import Span, asked_span, check_span, needle_spans
from mta_viz.analysis.attention.spans import find as search
from mta_viz.config import Head, ModelConfig
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace
from mta_viz.tokenizers.base import Tokens

Spans = tuple[Span, Span]
NAMED = 3  # differing positions that are named


@dataclass(frozen=True)
class Agreement:
    """The first `n` positions are compared, without the rows and columns of `unlike`; `why` says it."""

    n: int
    unlike: tuple[int, ...]
    why: str

    @property
    def whole(self) -> bool:
        """Whether both prompts are the same."""
        return not self.why


def agreement(a: Tokens, b: Tokens, *, same_ids: bool) -> Agreement:
    """Equally long prompts that differ in under half of their tokens are compared position by position.

    Others up to the first token that differs, since from there on positions mean other things.
    `same_ids`: whether an id means the same in both, see `same_vocabulary`; else labels are compared.
    """
    left, right = (a.ids, b.ids) if same_ids else (a.pieces, b.pieces)
    unlike = tuple(at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
    pieces = {at: f'("{a.pieces[at]}" / "{b.pieces[at]}")' for at in unlike[:NAMED]}
    if len(a) == len(b) and 2 * len(unlike) < len(a):
        return Agreement(len(a), unlike, _some_differ(unlike, len(a), pieces) if unlike else "")
    lengths = "" if len(a) == len(b) else f"A has {len(a)} tokens, B {len(b)}"
    if not unlike:
        n = min(len(a), len(b))
        why = f"{lengths}, and they agree while both last: compared up to position {n - 1}."
        return Agreement(n, (), why)
    n = unlike[0]
    end = "compared up to there." if n > 0 else "there is nothing to subtract."
    lengths = lengths and f"; {lengths}"
    return Agreement(n, (), f"Tokens differ from position {n} on {pieces[n]}{lengths}: {end}")


def same_vocabulary(a: HookedMTA, b: HookedMTA) -> bool:
    """Whether every id stands for the same token in both models; without tokenizers, their number."""
    size = a.config.vocab_size
    if size != b.config.vocab_size:
        return False
    if a.tokenizer is b.tokenizer or a.tokenizer is None or b.tokenizer is None:
        return True
    ids = tuple(range(size))
    return a.tokenizer.pieces(ids) == b.tokenizer.pieces(ids)


def _some_differ(unlike: tuple[int, ...], n_tokens: int, pieces: Mapping[int, str]) -> str:
    named = ", ".join(f"{at} {both}" for at, both in pieces.items())
    more = f" and {len(unlike) - NAMED} more" if len(unlike) > NAMED else ""
    places = "1 position" if len(unlike) == 1 else f"{len(unlike)} positions"
    return (
        f"Tokens differ at {places} of {n_tokens}: {named}{more}. Rows and columns of these positions are "
        "hatched; the others are compared position by position."
    )


def asked_spans(a: Trace, b: Trace) -> Spans | None:
    """The needle each prompt asks for; None where one asks for none."""
    first, second = (asked_span(needle_spans(run.tokens)) for run in (a, b))
    return None if first is None or second is None else (first, second)


def spans_beside(a: Trace, b: Trace, span: Span) -> Spans | None:
    """A span of A's prompt and what it is in B's: the asked needle there, the same tokens, or the same text.

    None where B's prompt has no such text, or nothing is left beside it to compare it with.
    """
    asked = asked_spans(a, b)
    if asked is not None and span.name == asked[0].name:
        return asked
    there = _place_in(b.tokens, a.tokens, span)
    if there is None:
        return None
    spans = span, replace(span, start=there.start, stop=there.stop)
    for run, placed in zip((a, b), spans, strict=True):
        try:
            check_span(placed, len(run.tokens) - 1)
        except PromptError:
            return None
    return spans


def _place_in(other: Tokens, own: Tokens, span: Span) -> range | None:
    """Where another prompt has a span's tokens: at the same positions, else the first such text."""
    pieces = own.pieces[span.start : span.stop]
    if other.pieces[span.start : span.stop] == pieces:
        return span.positions
    text, characters = own.text, own.spans[span.start : span.stop]
    words = "".join(pieces) if text is None else text[characters[0][0] : characters[-1][1]]
    return next(iter(search(other, words)), None)


ROWS = 256  # queries subtracted at a time


@dataclass(frozen=True, kw_only=True)
class ComparedMap(DifferenceMap):
    """`values` = A's head less B's head `other` at its stage `before`; the rest as of A's map.

    Rows and columns of `unlike` positions, whose tokens differ, hold 0 and are masked.
    """

    other: Head
    unlike: tuple[int, ...] = ()

    @property
    def masked(self) -> Bool[Tensor, "row column"]:
        """Cells of the future, and those of tokens that differ (of pooled maps only the former)."""
        if self.block > 1 or not self.unlike:
            return self.future
        return self.future | _unlike_cells(self.unlike, range(len(self.values)), self.values.shape[1])


def stage_beside(config: ModelConfig, layer: int, stage: Stage) -> Stage:
    """The stage of a layer that stands for `stage`: itself, or the last before it of the same unit.

    Where a layer has no convolution or mixing, what would enter it comes out as it is.
    """
    there, order = layer_stages(config.kernels(layer)), list(Stage)
    before = [other for other in there if order.index(other) <= order.index(stage)]
    fits = [other for other in before if other.value.unit == stage.value.unit]
    return stage if stage in there else [other for other in fits if not other.is_second][-1]


def compared_map(
    a: Trace, b: Trace, first: Head, second: Head, stage: Stage, shared: Agreement, max_cells: int = 512
) -> ComparedMap:
    """A's head `first` at `stage` less B's head `second`; exact when it fits `max_cells`, else pooled.

    Raises PromptError where nothing can be subtracted; the message is `shared.why`.
    """
    if shared.n == 0:
        raise PromptError(shared.why)
    beside = stage_beside(b.model.config, second[0], stage)
    facts: dict[str, Any] = {"before": beside, "other": second, "unlike": shared.unlike}
    whole = WholeMap(ComparedMap(*first, stage, torch.zeros(0, 0), 0, 0, **facts), shared.n, max_cells)
    for start, values in _differences(a, b, (*first, stage), (*second, beside), shared):
        whole.add(values, start)
    return whole.result(row_sums=False)


def _differences(
    a: Trace, b: Trace, first: tuple[int, int, Stage], second: tuple[int, int, Stage], shared: Agreement
) -> Iterator[tuple[int, Float[Tensor, "query key"]]]:
    """Some rows at a time: first row, and A less B over the keys compared."""
    keys = slice(0, shared.n)
    for start in range(0, shared.n, ROWS):
        queries = slice(start, min(start + ROWS, shared.n))
        left, right = (
            run.map(layer, stage, head, queries, keys).detach().float().cpu()
            for run, (layer, head, stage) in ((a, first), (b, second))
        )
        unlike = _unlike_cells(shared.unlike, range(queries.start, queries.stop), shared.n)
        yield start, (left - right).masked_fill(unlike, 0.0)


def _unlike_cells(unlike: tuple[int, ...], queries: range, n_keys: int) -> Bool[Tensor, "query key"]:
    """Cells whose query or key is one of `unlike`."""
    differ = torch.zeros(max(queries.stop, n_keys), dtype=torch.bool)
    differ[list(unlike)] = True
    return differ[queries.start : queries.stop, None] | differ[None, :n_keys]

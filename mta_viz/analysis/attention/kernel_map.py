"""A kernel beside its map, as the paper shows the needle: queries of the question, the needle's keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.attention.maps import AttentionMap, exact_map
from mta_viz.analysis.attention.spans import QUESTION, Span, share_and_mass
from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.kernels import KernelId, Offsets, Place
from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, check_runs
from mta_viz.tables import Row, Table
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.needles import NeedleTask, make_needle_sample
from mta_viz.tokenizers.base import Tokens

NEEDLES, MOST_TOKENS = 4, 512


@dataclass(frozen=True)
class KernelBesideMap:
    """A kernel, and the map it makes cut to the queries of `rows` and the keys of `keys`.

    `attention` is exact, at the stage right after the kernel; `tokens` are the whole prompt's.
    """

    kernel: KernelId
    taps: Float[np.ndarray, "c_q c_k"]
    offsets: Offsets
    attention: AttentionMap
    tokens: Tokens
    rows: Span
    keys: Span

    def table(self) -> Table:
        """The kernel's taps, then the map's cells; a masked cell has no value."""
        columns = (
            *("part", "layer", "head", "where", "query_offset", "key_offset"),
            *("query", "query_token", "key", "key_token", "value", "masked"),
        )
        kernel, pieces = (self.kernel.layer, self.kernel.head, self.kernel.where), self.tokens.pieces
        taps = self.offsets.rows(self.taps)
        rows: list[Row] = [("kernel", *kernel, *offsets, *[None] * 4, tap, 0) for *offsets, tap in taps]
        for query, row in zip(self.rows.positions, self.attention.values.tolist(), strict=True):
            for key, value in zip(self.keys.positions, row, strict=True):
                cell = (query, pieces[query], key, pieces[key], None if key > query else value)
                rows.append(("map", *kernel, None, None, *cell, int(key > query)))
        return Table(columns, tuple(rows))


def needle_sample(model: HookedMTA) -> NeedleSample:
    """A prompt of the needle task, half the trained length and at most 512 tokens, the asked needle amid it.

    Raises TokenizerError and PromptError for a model that cannot be given one.
    """
    check_runs(model)
    if model.tokenizer is None:
        raise TokenizerError("the needle prompt needs the checkpoint's tokenizer, which is not here")
    task = NeedleTask(NEEDLES, min(model.config.n_ctx // 2, MOST_TOKENS), 50)
    return make_needle_sample(model.tokenizer, task, 0)


def question_span(named: Sequence[Span], n_tokens: int, n_queries: int) -> Span:
    """The question among a prompt's named spans, else its last tokens, as many as a kernel has queries."""
    question = next((span for span in named if span.letter == QUESTION), None)
    return question or Span("last tokens", QUESTION, max(n_tokens - n_queries, 0), n_tokens)


def asked_span(named: Sequence[Span]) -> Span | None:
    """The asked needle among a prompt's named spans."""
    return next((span for span in named if span.name.endswith("(asked)")), None)


def strongest_head(trace: Trace, rows: Span, keys: Span, where: Place) -> tuple[int, int]:
    """(layer, head), among layers with a kernel at `where`, whose last row attends most to `keys`.

    Measured on the final weights of the last query of `rows`: sum over the keys of |P| over sum of |P|.
    """
    query = rows.stop - 1
    best, strongest = -1.0, None
    for layer in kernels.layers_having(trace.model.config, where):
        row = trace.maps(layer, Stage.PATTERN, slice(query, query + 1))[:, 0, : query + 1]
        share, head = share_and_mass(row, keys)[0].nan_to_num(nan=-1.0).max(0)
        if strongest is None or float(share) > best:
            best, strongest = float(share), (layer, int(head))
    if strongest is None:
        raise MtaVizError(kernels.lacking(trace.model.config, where))
    return strongest


def kernel_beside_map(trace: Trace, kernel: KernelId, rows: Span, keys: Span) -> KernelBesideMap:
    """A key-query kernel and its map, cut to queries x keys. Raises PromptError where all is masked."""
    where: Place = "pre" if kernel.where == "pre" else "post"
    kernels.check_layer(trace.model.config, kernel.layer, kernel.where)
    if max(rows.stop, keys.stop) > len(trace.tokens):
        raise PromptError(f"the prompt has {len(trace.tokens)} tokens; choose spans inside it")
    if keys.start >= rows.stop:
        raise PromptError(
            f"every key of {keys.name!r} comes after every query of {rows.name!r}: nothing is attended to. "
            "Choose keys before the queries"
        )
    picture = kernels.layer_picture(trace.model.state_dict(), trace.model.config, kernel.layer, where)
    part = (slice(side.start, side.stop) for side in (rows, keys))
    attention = exact_map(trace, kernel.layer, kernels.MADE_BY[where], kernel.head, *part)
    taps = picture.taps[kernel.head]
    return KernelBesideMap(kernel, taps, picture.offsets, attention, trace.tokens, rows, keys)

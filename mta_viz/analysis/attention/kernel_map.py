"""A kernel beside a map: as the paper shows the needle, or painted, on scores by hand or a head's.

Owns the kernels and maps one may begin to paint with. The convolution and its mask are the model's; what a
kernel is called is `kernels.naming`'s business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.attention.maps import AttentionMap, centred, exact_map, stages_table
from mta_viz.analysis.attention.spans import QUESTION, Span, share_and_mass
from mta_viz.analysis.kernels import edges, kernels
from mta_viz.analysis.kernels.kernels import KernelId, Offsets, kernel_offsets
from mta_viz.analysis.kernels.measures import library
from mta_viz.analysis.kernels.naming import name_kernels
from mta_viz.config import KernelPlace, ModelConfig
from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.model import ops
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Trace, check_runs
from mta_viz.tables import Row, Table
from mta_viz.tasks.facts import NeedleSample
from mta_viz.tasks.needles import NeedleTask
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
    return task.sample(model.tokenizer, 0)


def question_span(named: Sequence[Span], n_tokens: int, n_queries: int) -> Span:
    """The question among a prompt's named spans, else its last tokens, as many as a kernel has queries."""
    question = next((span for span in named if span.letter == QUESTION), None)
    return question or Span("last tokens", QUESTION, max(n_tokens - n_queries, 0), n_tokens)


def strongest_head(trace: Trace, rows: Span, keys: Span, where: KernelPlace) -> tuple[int, int]:
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
    kernels.check_layer(trace.model.config, kernel.layer, kernel.where)
    if max(rows.stop, keys.stop) > len(trace.tokens):
        raise PromptError(f"the prompt has {len(trace.tokens)} tokens; choose spans inside it")
    if keys.start >= rows.stop:
        raise PromptError(
            f"every key of {keys.name!r} comes after every query of {rows.name!r}: nothing is attended to. "
            "Choose keys before the queries"
        )
    picture = kernels.layer_picture(trace.model.state_dict(), trace.model.config, kernel.layer, kernel.where)
    part = (slice(side.start, side.stop) for side in (rows, keys))
    attention = exact_map(trace, kernel.layer, kernels.MADE_BY[kernel.where], kernel.head, *part)
    taps = picture.taps[kernel.head]
    return KernelBesideMap(kernel, taps, picture.offsets, attention, trace.tokens, rows, keys)


Scores = Literal["one match", "diagonal stripe", "block edge", "this head's scores"]
HERE: Scores = "this head's scores"
SIDE = 24  # tokens of a map
PRESETS = ("diagonal", "priming", "edge", "smoothing", "identity")
_MATCHES: dict[str, list[tuple[int, int]]] = {  # (query, key) of every score of 1
    "one match": [(15, 8)],
    "diagonal stripe": [(13 + step, 5 + step) for step in range(7)],
    "block edge": [(query, key) for query in range(6, 19) for key in range(6, 13)],  # in part of the future
}
_TOKENS = Tokens(tuple(range(SIDE)), ("",) * SIDE, ((0, 0),) * SIDE, None)


@dataclass(frozen=True)
class Played:
    """`maps`: scores before and after a kernel, the same cells; `names`: what the kernel is called."""

    maps: tuple[AttentionMap, AttentionMap]
    tokens: Tokens
    taps: Float[Array, "c_q c_k"]
    offsets: Offsets
    names: str

    def table(self) -> Table:
        """A row a cell of each map."""
        return stages_table({shown.stage: shown for shown in self.maps}, self.tokens)


def preset(name: str, offsets: Offsets) -> Float[Array, "c_q c_k"]:
    """A kernel to begin with: the own tap, and the taps of the template or edge of this name.

    Smoothing is a mean. A kernel without room for the shape is the identity.
    """
    taps = np.zeros((len(offsets.query), len(offsets.key)))
    taps[offsets.own] = 1.0
    if name == "edge":
        for key, value in zip(edges.NEIGHBOURS, edges.DIFFERENCES["edge-first"], strict=True):
            if key in offsets.key:
                taps[:, offsets.key.index(key)] = value
    templates = [template.taps for template in library(offsets) if template.name == name]
    if templates:
        taps[templates[min(1, len(templates) - 1)]] = 1.0  # of the boxes that smooth the middle one
    return taps / taps.sum() if name == "smoothing" else taps


def convolved(
    scores: Float[Tensor, "query key"], taps: Float[Array, "c_q c_k"], config: ModelConfig, first: int = 0
) -> Float[Tensor, "query key"]:
    """What a layer of the model with this kernel makes of scores, the first row being query `first`."""
    kernel = torch.from_numpy(np.asarray(taps, np.float32))[None]
    future = ops.future_cells(range(first, first + len(scores)), scores.shape[1], scores.device)
    pad_left = config.key_pad_left(kernel.shape[2])
    return ops.causal_convolution(scores[None, None], kernel, pad_left, future)[0, 0]


def play(taps: Float[Array, "c_q c_k"], config: ModelConfig, scores: Scores) -> Played:
    """A kernel on one of the maps made by hand, which are of no head (-1)."""
    before = torch.zeros(SIDE, SIDE)
    for cell in _MATCHES[scores]:
        before[cell] = 1.0
    shown = AttentionMap(-1, -1, Stage.RAW, before, 0, 0)
    return _played(shown, convolved(before, taps, config), taps, config, _TOKENS)


def play_on(
    trace: Trace, layer: int, head: int, cell: tuple[int, int], taps: Float[Array, "c_q c_k"]
) -> Played:
    """A kernel on a head's own raw scores around a cell (query, key), float32.

    What the kernel reads beside the cells that are shown is the head's too. With the head's own kernel these
    are the scores after its convolution.
    """
    (top, bottom), (left, right) = (centred(place, len(trace.tokens), SIDE) for place in cell)
    first = max(top + 1 - len(taps), 0)
    raw = trace.map(layer, Stage.RAW, head, slice(first, bottom)).detach().float().cpu()
    after = convolved(raw, taps, trace.model.config, first)
    before, after = (side[top - first :, left:right] for side in (raw, after))
    shown = AttentionMap(layer, head, Stage.RAW, before, top, left)
    return _played(shown, after, taps, trace.model.config, trace.tokens)


def _played(
    before: AttentionMap, after: Tensor, taps: Float[Array, "c_q c_k"], config: ModelConfig, tokens: Tokens
) -> Played:
    offsets = kernel_offsets(config, *taps.shape)
    shape = name_kernels(taps[None], offsets)[0]
    maps = before, replace(before, stage=Stage.KQ, values=after)
    return Played(maps, tokens, taps, offsets, shape.names or shape.shape)

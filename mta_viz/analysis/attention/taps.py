"""What each tap of a kernel does on the maps it meets, whatever sign and scale those have.

A tap's effect depends on what it is applied to: a negative tap on scores that are negative where tokens
match raises them. Owns a tap's gain on a span, the gap between matching cells and the others, and a
kernel's shape with sign and scale folded out.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.kernels import KEY_QUERY, KernelId, Offsets, check_layer, kernel_offsets
from mta_viz.config import KernelPlace
from mta_viz.errors import PromptError, check_index
from mta_viz.model.stages import Stage
from mta_viz.run.trace import Trace
from mta_viz.tables import Table

# The stage that a kernel is applied to.
READS: dict[KernelPlace, Stage] = {"pre": Stage.RAW, "post": Stage.SOFTMAX}
TOP = 5


@dataclass(frozen=True)
class TapGains:
    """What each tap adds to a span's cells, relative to the row: in scores (pre) or weights (post).

    `taps`: the mean over queries and the span's keys j of k[n, d] (S[i-n, j+d] - its mean over the keys
    the query i sees), n queries back, d keys on. `match`: the part of it from cells whose key is an
    earlier token equal to the query's. `total`, the sum of `taps`, is what the convolution lifts the
    span above the mean of its rows, exactly.
    """

    kernel: KernelId
    offsets: Offsets
    taps: Float[Array, "c_q c_k"]
    match: Float[Array, "c_q c_k"]

    @property
    def total(self) -> float:
        """The convolution's linear gain on the span."""
        return float(self.taps.sum())

    @property
    def strongest(self) -> tuple[int, int, float]:
        """Query offset, key offset and gain of the tap of largest size."""
        row, column = np.unravel_index(np.abs(self.taps).argmax(), self.taps.shape)
        return self.offsets.query[row], self.offsets.key[column], float(self.taps[row, column])

    def table(self) -> Table:
        """A row a tap."""
        split = zip(self.offsets.rows(self.taps), self.match.ravel().tolist(), strict=True)
        rows = [(query, key, gain, match, gain - match) for (query, key, gain), match in split]
        return Table.of(("query_offset", "key_offset", "gain", "match", "non_match"), rows)


@dataclass(frozen=True)
class Operator:
    """A kernel's shape on this prompt's scores, unchanged when sign or scale moves between W_q and kernel.

    `weights`: s k_t sd(S_t) / sd(out), S_t the scores as tap t reads them and out what the convolution
    gives, each less its row's mean; s is the sign of `match_gap` (+1 where nothing matches), so that a
    positive weight raises where tokens match. `shares`: k_t Cov(S_t, out) / var(out), which sum to 1.
    """

    kernel: KernelId
    offsets: Offsets
    weights: Float[Array, "c_q c_k"]
    shares: Float[Array, "c_q c_k"]
    match_gap: float

    def top(self, count: int = TOP) -> list[tuple[int, int, float, float]]:
        """(query offset, key offset, weight, share) of the taps of largest share, by size."""
        rows = zip(self.offsets.rows(self.weights), self.shares.ravel().tolist(), strict=True)
        flat = [(query, key, weight, share) for (query, key, weight), share in rows]
        return sorted(flat, key=lambda row: -abs(row[3]))[:count]

    def table(self) -> Table:
        """A row a tap."""
        return Table.of(("query_offset", "key_offset", "weight", "share"), self.top(self.weights.size))


def matching_cells(ids: Sequence[int]) -> Bool[Array, "query key"]:
    """Cells whose key is an earlier position than the query and holds the same token."""
    tokens = np.asarray(ids)
    return np.tri(len(tokens), k=-1, dtype=bool) & (tokens[:, None] == tokens)


def match_gap(scores: Float[Array, "query key"], ids: Sequence[int]) -> float:
    """Mean score of matching cells less the mean of the others of each one's row; NaN without a match."""
    match = matching_cells(ids)
    other = np.tri(len(match), dtype=bool) & ~match  # at least the query's own cell
    if not match.any():
        return float("nan")
    beside = np.where(other, scores, 0).sum(1) / other.sum(1)
    return float((scores - beside[:, None])[match].mean())


def tap_gains(trace: Trace, kernel: KernelId, keys: range, queries: Sequence[int] | None = None) -> TapGains:
    """The gains of one key-query kernel's taps on cells (queries, keys); default: the last token's row.

    Raises MtaVizError for a kernel the model does not have, PromptError for a span no query sees.

    >>> from mta_viz.analysis.kernels.kernels import KernelId
    >>> gains = mta_viz.tap_gains(trace, KernelId(0, 0, "pre"), range(0, 5))
    >>> gains.taps.shape == gains.match.shape
    True
    """
    taps, offsets = _kernel(trace, kernel)
    queries = [len(trace.tokens) - 1] if queries is None else list(queries)
    if not queries or any(
        not 0 <= keys.start < keys.stop <= query + 1 <= len(trace.tokens) for query in queries
    ):
        raise PromptError(
            f"keys {keys.start} to {keys.stop - 1} are not all seen by the queries {list(queries)}; "
            f"the prompt has {len(trace.tokens)} tokens, and a query sees itself and what is before it"
        )
    ids = torch.tensor(trace.tokens.ids)
    gains, match = np.zeros(taps.shape), np.zeros(taps.shape)
    rows = _rows(trace, kernel, max(min(queries) + offsets.query[0], 0), max(queries) + 1)
    for query in queries:
        read = _windows(rows, offsets, query)
        centred = (read - read.mean(-1, keepdim=True))[..., keys.start : keys.stop]
        matching = _matching(ids, offsets, query)[..., keys.start : keys.stop]
        gains += taps * centred.mean(-1).numpy() / len(queries)
        match += taps * centred.where(matching, centred.new_zeros(())).mean(-1).numpy() / len(queries)
    return TapGains(kernel, offsets, gains, match)


def all_tap_gains(trace: Trace, keys: range, queries: Sequence[int] | None = None) -> tuple[TapGains, ...]:
    """Of every key-query kernel, before the softmax first, the largest total by size first."""
    every = kernels.kernels_at(trace.model.config, KEY_QUERY)
    gains = [tap_gains(trace, kernel, keys, queries) for kernel in every]
    return tuple(sorted(gains, key=lambda gain: (KEY_QUERY.index(gain.kernel.where), -abs(gain.total))))


def gains_table(gains: Sequence[TapGains]) -> Table:
    """A row a kernel: its whole gain, the part from matching cells, and its strongest tap."""
    columns = (
        "layer", "head", "where", "gain", "match", "non_match", "query_offset", "key_offset", "tap_gain",
    )  # fmt: skip
    rows = []
    for gain in gains:
        match = float(gain.match.sum())
        rows.append((*astuple(gain.kernel), gain.total, match, gain.total - match, *gain.strongest))
    return Table.of(columns, rows)


def operator(trace: Trace, kernel: KernelId) -> Operator:
    """The kernel's shape weighted by the covariance of the scores it reads, over all cells it writes.

    Raises MtaVizError for a kernel the model does not have, PromptError where the output is constant.

    >>> from mta_viz.analysis.kernels.kernels import KernelId
    >>> round(float(mta_viz.operator(trace, KernelId(0, 0, "pre")).shares.sum()), 3)
    1.0
    """
    taps, offsets = _kernel(trace, kernel)
    flat, n_cells = taps.ravel(), 0
    covariance = np.zeros((flat.size, flat.size))
    rows = _rows(trace, kernel, 0, len(trace.tokens))
    for query in range(1, len(trace.tokens)):
        read = _windows(rows, offsets, query).flatten(0, 1)
        centred = (read - read.mean(-1, keepdim=True)).numpy()
        covariance += centred @ centred.T
        n_cells += query + 1
    covariance /= max(n_cells, 1)
    variance = float(flat @ covariance @ flat)
    if not np.isfinite(variance):
        raise PromptError("the kernel, or the scores it reads, hold NaN or infinite values: it has no shape")
    if not variance > 0:
        raise PromptError("the kernel gives the same value everywhere on this prompt: it has no shape here")
    gap = _gap(trace, kernel)
    sign = -1.0 if gap < 0 else 1.0
    weights = sign * flat * np.sqrt(np.diag(covariance) / variance)
    shares = flat * (covariance @ flat) / variance
    return Operator(kernel, offsets, weights.reshape(taps.shape), shares.reshape(taps.shape), gap)


def _kernel(trace: Trace, kernel: KernelId) -> tuple[Float[Array, "c_q c_k"], Offsets]:
    config = trace.model.config
    if kernel.where not in KEY_QUERY:
        raise PromptError(f"{kernel.name()} is head mixing, which has no taps; name a kernel: pre or post")
    check_layer(config, kernel.layer, kernel.where)
    attention = trace.model.blocks[kernel.layer].attn
    stored = attention.kernel_pre if kernel.where == "pre" else attention.kernel_post
    assert stored is not None
    check_index("head", kernel.head, config.n_heads)
    taps = stored[kernel.head].detach().double().cpu().numpy()
    return taps, kernel_offsets(config, *taps.shape)


Rows = tuple[int, Tensor]  # position of the first row, rows of a map [row, key]


def _rows(trace: Trace, kernel: KernelId, start: int, stop: int) -> Rows:
    """Rows of the map the kernel is applied to, float64."""
    stage = READS[kernel.where]  # type: ignore[index]  # a key-query kernel
    rows = trace.map(kernel.layer, stage, kernel.head, slice(start, stop))
    return start, rows.double().cpu()


def _windows(rows: Rows, offsets: Offsets, query: int) -> Tensor:
    """[c_q, c_k, key]: S[query + n, key + d] for every tap (n, d) and key the query sees; 0 outside."""
    start, cells = rows
    first = max(query + offsets.query[0], 0)
    seen = cells[first - start : query + 1 - start, : query + 1]
    missing = len(offsets.query) - len(seen)
    padded = torch.nn.functional.pad(seen, (-offsets.key[0], offsets.key[-1], missing, 0))
    return padded.unfold(1, query + 1, 1)


def _matching(ids: Tensor, offsets: Offsets, query: int) -> Tensor:
    """[c_q, c_k, key]: whether the cell that a tap reads is a match."""
    first = max(query + offsets.query[0], 0)
    queries, keys = torch.arange(first, query + 1), torch.arange(query + 1)
    cells = (ids[first : query + 1, None] == ids[: query + 1]) & (keys < queries[:, None])
    return _windows((first, cells.to(torch.uint8)), offsets, query).bool()


def _gap(trace: Trace, kernel: KernelId) -> float:
    return match_gap(_rows(trace, kernel, 0, len(trace.tokens))[1].numpy(), trace.tokens.ids)

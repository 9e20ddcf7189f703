"""Weighted values of a layer with kernels on a CPU, when nobody looks at its maps: heads last in memory.

A convolution there is fastest where 16 channels, a vector of the processor, lie side by side. Rows are cut
into consecutive groups, which stand beside the heads as more channels, each with the earlier rows that its
convolutions reach back to. The layout is carried through all steps; single steps in it bring half as much.
The steps and, to rounding, the values are those of `attention.py`. For float32, without gradients.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mta_viz.model.ops import Kernels, Mixing

CHANNELS = 16
ROWS = 64  # of a group: fewer repeat too many earlier rows, more compute too many keys after their queries

Apart = Float[Tensor, "group head row key"]
Together = Float[Tensor, "row key channel"]  # channels: the heads of the first group, of the next, ...
Vectors = Float[Tensor, "position head d"]


def rows_at_once(heads: int) -> int:
    """Rows of all groups together."""
    return ROWS * max(CHANNELS // heads, 1)


@dataclass(frozen=True)
class Kernel:
    """A key-query convolution; `own`: the column of the query's own key."""

    taps: Kernels
    own: int

    def convolved(self, maps: Together) -> Together:
        """The rows whose earlier rows are all there; keys outside the array count as 0."""
        n_keys, channels = maps.shape[1:]
        heads, _, c_k = self.taps.shape
        padding = max(self.own, c_k - 1 - self.own)
        taps = self.taps.repeat(channels // heads, 1, 1)[:, None]
        out = F.conv2d(maps.permute(2, 0, 1)[None], taps, padding=(0, padding), groups=channels)
        return out[0].permute(1, 2, 0).narrow(1, padding - self.own, n_keys).contiguous()


@dataclass(frozen=True)
class Rows:
    """`groups` of `count` rows each, the first group's from position `start` on."""

    start: int
    count: int
    groups: int

    def firsts(self, reach: int) -> list[int]:
        """The position at which each group starts with `reach` earlier rows; below 0 there is nothing."""
        return [self.start + group * self.count - reach for group in range(self.groups)]


@dataclass(frozen=True)
class Steps:
    """What a layer does to its maps, in this order; None for a step it lacks."""

    pre: Kernel | None
    head_pre: Mixing | None
    post: Kernel | None
    head_post: Mixing | None

    def weighted(self, q: Vectors, k: Vectors, v: Vectors, start: int, stop: int) -> Vectors:
        """Weighted values of the rows `[start, stop)` of one prompt."""
        groups = rows_at_once(q.shape[1]) // ROWS
        rows = Rows(start, -(-(stop - start) // groups), groups)
        after = _reach(self.post)
        maps = _together(_scores(q, k[:stop], rows, _reach(self.pre) + after))
        maps = _mixed(self.pre.convolved(maps) if self.pre else maps, self.head_pre)
        maps = _softmax(maps, rows, after)
        maps = self.post.convolved(maps) if self.post else maps
        return _values(_apart(maps, self.head_post, rows), v[:stop])[: stop - start]


def _scores(q: Vectors, k: Vectors, rows: Rows, reach: int) -> Apart:
    """Before the softmax; 0 at later keys and in rows before position 0, as convolutions read them."""
    (n_keys, kv_heads, d), n_rows = k.shape, rows.count + reach
    scores = q.new_empty(rows.groups, q.shape[1], n_rows, n_keys)
    keys = k.permute(1, 2, 0) / d**0.5
    for maps, first in zip(scores, rows.firsts(reach), strict=True):
        # what stands in for rows outside the prompt is set to 0, or dropped in the end
        places = torch.arange(first, first + n_rows).clamp(0, len(q) - 1)
        queries = q[places].transpose(0, 1).reshape(kv_heads, -1, d)
        torch.bmm(queries, keys, out=maps.view(kv_heads, -1, n_keys))
        maps.tril_(first)
    return scores


def _together(maps: Apart) -> Together:
    *_, n_rows, n_keys = maps.shape
    return maps.view(-1, n_rows * n_keys).t().contiguous().view(n_rows, n_keys, -1)


def _mixed(maps: Together, mixing: Mixing | None) -> Together:
    return maps if mixing is None else maps @ _matrix(mixing, maps.shape[2]).t()


def _matrix(mixing: Mixing, channels: int) -> Float[Tensor, "channel channel"]:
    """Target by source, each group of rows with its own heads."""
    heads = mixing.shape[0] * mixing.shape[1]
    return torch.block_diag(*mixing.repeat(channels // heads, 1, 1))


def _softmax(maps: Together, rows: Rows, reach: int) -> Together:
    """Over each query's own and earlier keys, 0 elsewhere and in rows before position 0. Writes into `maps`."""
    n_rows, n_keys, channels = maps.shape
    heads, firsts = channels // rows.groups, torch.tensor(rows.firsts(reach))
    seen_by_all = max(int(firsts[0]) + 1, 0)
    places, keys = firsts + torch.arange(n_rows)[:, None], torch.arange(seen_by_all, n_keys)
    # no number is larger than infinity: `minimum` leaves what a query sees, and is vectorised
    most = torch.where(keys[:, None] > places[:, None], -torch.inf, torch.inf)
    band = maps[:, seen_by_all:]
    torch.minimum(band, most.repeat_interleave(heads, 2), out=band)
    weights = maps.softmax(1)
    for group, first in enumerate(firsts.tolist()):
        weights[: max(-first, 0), :, group * heads : (group + 1) * heads] = 0.0
    return weights


def _apart(maps: Together, mixing: Mixing | None, rows: Rows) -> Apart:
    """Mixed, and with the maps' cells side by side again; future cells 0."""
    n_rows, n_keys, channels = maps.shape
    columns = maps.view(-1, channels).t()
    mixed = columns.contiguous() if mixing is None else _matrix(mixing, channels) @ columns
    pattern = mixed.view(rows.groups, -1, n_rows, n_keys)
    for part, first in zip(pattern, rows.firsts(0), strict=True):
        part.tril_(first)
    return pattern


def _values(pattern: Apart, v: Vectors) -> Vectors:
    n_keys, kv_heads, d = v.shape
    values = v.transpose(0, 1)
    parts = [
        torch.bmm(maps.view(kv_heads, -1, n_keys), values).view(pattern.shape[1], -1, d) for maps in pattern
    ]
    return torch.cat(parts, dim=1).transpose(0, 1)


def _reach(kernel: Kernel | None) -> int:
    """How many earlier rows it reads."""
    return kernel.taps.shape[1] - 1 if kernel else 0

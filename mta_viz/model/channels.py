"""Weighted values of a layer with kernels on a CPU, when nobody looks at its maps: heads last in memory.

A convolution there is fastest where 16 channels, a vector of the processor, lie side by side. Rows are cut
into consecutive groups, which stand beside the heads as more channels, each with the earlier rows that its
convolutions reach back to. The layout is carried through all steps, in memory that is used again and again:
a fresh page costs as much as a step. The steps and, to rounding, the values are those of `attention.py`, as
long as all are finite. For float32, without gradients.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mta_viz.model.ops import Kernels, Mixing

CHANNELS = 16
ROWS = 64  # of a group: fewer repeat too many earlier rows, more compute too many keys after their queries

Apart = Float[Tensor, "rows head _row key"]
Together = Float[Tensor, "_row key channel"]  # channels: the heads of the first group, of the next, ...


def n_groups(heads: int) -> int:
    """How many groups of rows stand side by side."""
    return max(CHANNELS // heads, 1)


class Kernel:
    """A key-query convolution of `groups` groups of heads; `own`: the column of the query's own key."""

    def __init__(self, taps: Kernels, own: int, groups: int) -> None:
        self.own, self.reach, self.width = own, taps.shape[1] - 1, taps.shape[2]
        self.taps = taps.repeat(groups, 1, 1)[:, None]

    def convolved(self, maps: Together) -> Together:
        """The rows whose earlier rows are all there; keys outside the array count as 0."""
        n_keys, channels = maps.shape[1:]
        padding = max(self.own, self.width - 1 - self.own)
        # with a batch axis first: of a permuted tensor torch would not see that its channels are last
        out = F.conv2d(maps[None].permute(0, 3, 1, 2), self.taps, padding=(0, padding), groups=channels)
        return out.permute(0, 2, 3, 1)[0].narrow(1, padding - self.own, n_keys).contiguous()


@dataclass(frozen=True)
class Steps:
    """What a layer does to its maps, in this order; None for a step it lacks.

    `head_pre` and `head_post` are matrices of all channels, target by source; see `mixing_of_groups`.
    """

    pre: Kernel | None
    head_pre: Float[Tensor, "channel channel"] | None
    post: Kernel | None
    head_post: Float[Tensor, "channel channel"] | None


def mixing_of_groups(mixing: Mixing, groups: int) -> Float[Tensor, "channel channel"]:
    """Head mixing within each group of rows."""
    return torch.block_diag(*mixing.repeat(groups, 1, 1))


class Prompt:
    """One prompt's queries, keys and values at a layer, with memory for the maps of `ROWS` rows a group."""

    def __init__(
        self,
        q: Float[Tensor, "position head d"],
        k: Float[Tensor, "position kv_head d"],
        v: Float[Tensor, "position kv_head d"],
        steps: Steps,
    ) -> None:
        self.q, self.steps, self.groups = q, steps, n_groups(q.shape[1])
        self.keys = k.permute(1, 2, 0).contiguous()
        self.values = v.transpose(0, 1).contiguous()
        self.channels = self.groups * q.shape[1]
        self.after = steps.post.reach if steps.post else 0
        self.before = self.after + (steps.pre.reach if steps.pre else 0)
        self.memory = torch.empty(2, self.channels * (ROWS + self.before) * len(q))
        self.unmixed = torch.eye(self.channels)

    def weighted(self, start: int, stop: int) -> Float[Tensor, "row head d"]:
        """Weighted values of the rows `[start, stop)`, at most `ROWS` for each group."""
        count, steps = -(-(stop - start) // self.groups), self.steps
        firsts = [start + group * count for group in range(self.groups)]
        maps = self._scores(firsts, count + self.before, stop)
        maps = steps.pre.convolved(maps) if steps.pre else maps
        maps = maps if steps.head_pre is None else self._mixed(maps, steps.head_pre)
        maps = self._softmax(maps, firsts)
        maps = steps.post.convolved(maps) if steps.post else maps
        return self._values(maps, firsts)[: stop - start]

    def _scores(self, firsts: list[int], n_rows: int, n_keys: int) -> Together:
        """0 at later keys and in rows before position 0, as convolutions read them."""
        (n_tokens, heads, d), (kv_heads, *_) = self.q.shape, self.keys.shape
        scores = self._memory(0, self.groups, heads, n_rows, n_keys)
        for maps, first in zip(scores, firsts, strict=True):
            # what stands in for rows outside the prompt is set to 0, or dropped in the end
            places = torch.arange(first - self.before, first - self.before + n_rows).clamp(0, n_tokens - 1)
            queries = self.q[places].transpose(0, 1).reshape(kv_heads, -1, d)
            torch.bmm(queries, self.keys[:, :, :n_keys], out=maps.view(kv_heads, -1, n_keys))
            maps.tril_(first - self.before)
        together = self._memory(1, n_rows * n_keys, self.channels)
        # a product with the identity transposes in half the time of a copy, and divides on the way
        torch.mm(scores.view(self.channels, -1).t(), self.unmixed / d**0.5, out=together)
        return together.view(n_rows, n_keys, -1)

    def _mixed(self, maps: Together, mixing: Float[Tensor, "channel channel"]) -> Together:
        mixed = self._memory(1, maps.shape[0] * maps.shape[1], self.channels)
        return torch.mm(maps.flatten(0, 1), mixing.t(), out=mixed).view_as(maps)

    def _softmax(self, maps: Together, firsts: list[int]) -> Together:
        """Over each query's own and earlier keys; 0 elsewhere and in rows before position 0."""
        (n_rows, n_keys, _), heads = maps.shape, self.q.shape[1]
        before = firsts[0] - self.after
        seen_by_all = max(before + 1, 0)
        later = _later(n_rows, n_rows - self.after, self.groups, heads)[:, seen_by_all - before - 1 :]
        band = maps[:, seen_by_all:]
        torch.minimum(band, later[:, : band.shape[1]], out=band)
        weights = torch.softmax(maps, 1, out=self._memory(0, *maps.shape))
        for group, first in enumerate(firsts):
            weights[: max(self.after - first, 0), :, group * heads : (group + 1) * heads] = 0.0
        return weights

    def _values(self, maps: Together, firsts: list[int]) -> Float[Tensor, "_row head d"]:
        (n_rows, n_keys, _), (kv_heads, _, d), heads = maps.shape, self.values.shape, self.q.shape[1]
        mixing = self.unmixed if self.steps.head_post is None else self.steps.head_post
        apart = self._memory(1, self.channels, n_rows * n_keys)
        torch.mm(mixing, maps.flatten(0, 1).t(), out=apart)
        parts = []
        for pattern, first in zip(apart.view(-1, heads, n_rows, n_keys), firsts, strict=True):
            pattern.tril_(first)
            z = torch.bmm(pattern.view(kv_heads, -1, n_keys), self.values[:, :n_keys])
            parts.append(z.view(heads, n_rows, d))
        return torch.cat(parts, dim=1).transpose(0, 1)

    def _memory(self, which: int, *shape: int) -> Tensor:
        return self.memory[which, : math.prod(shape)].view(shape)


@lru_cache(maxsize=8)
def _later(n_rows: int, count: int, groups: int, heads: int) -> Together:
    """-inf where a key comes after the query, from the key of the second row on.

    Elsewhere inf: `minimum` leaves what is no larger than infinity, and is vectorised as no filling is.
    """
    places = torch.arange(n_rows)[:, None] + count * torch.arange(groups)
    keys = torch.arange(1, n_rows + count * (groups - 1))[:, None]
    later = torch.where(keys > places[:, None], -torch.inf, torch.inf)
    return later.repeat_interleave(heads, 2)

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

CHANNELS = 16
ROWS = 64  # of a group: fewer repeat too many earlier rows, more compute too many keys after their queries
LEAST = 64  # tokens

Maps = Float[Tensor, "_row _key channel"]  # channels: the groups of the first head, of the next, ...
# of later keys and of seen ones; vectorised, as filling where a mask says so is not
_FACTOR = (0.0, 1.0)
_INFINITE = (-math.inf, math.inf)  # of `minimum`


def suits(x: Float[Tensor, "batch position *vector"]) -> bool:
    """Whether it can be done, and is worth it: a short prompt gains nothing."""
    there = x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    return there and x.shape[1] >= LEAST


@dataclass(frozen=True)
class Kernel:
    """A key-query convolution of every channel; `own`: the column of the query's own key."""

    taps: Float[Tensor, "channel 1 c_q c_k"]
    own: int

    @property
    def reach(self) -> int:
        """How many earlier rows it reads."""
        return self.taps.shape[2] - 1

    def convolved(self, maps: Maps) -> Maps:
        """The rows whose earlier rows are all there; keys outside the array count as 0."""
        padding = max(self.own, self.taps.shape[3] - 1 - self.own)
        # with a batch axis first: of a permuted tensor torch would not see that its channels are last
        out = F.conv2d(maps[None].permute(0, 3, 1, 2), self.taps, padding=(0, padding), groups=len(self.taps))
        return out.permute(0, 2, 3, 1)[0].narrow(1, padding - self.own, maps.shape[1]).contiguous()


Taps = tuple[Float[Tensor, "_head _c_q _c_k"], int]  # with the column of the query's own key
Mixing = Float[Tensor, "_group _target _source"]


@dataclass(frozen=True)
class Steps:
    """What a layer does to its maps, `groups` of rows side by side; None for a step it lacks."""

    groups: int
    pre: Kernel | None
    post: Kernel | None
    head_pre: Float[Tensor, "target source"] | None
    head_post: Float[Tensor, "target source"] | None

    @classmethod
    def of(
        cls,
        heads: int,
        pre: Taps | None,
        post: Taps | None,
        head_pre: Mixing | None,
        head_post: Mixing | None,
    ) -> "Steps":
        """The same for all channels as for the heads."""
        groups = max(CHANNELS // heads, 1)
        kernels = (
            None if kernel is None else Kernel(kernel[0].repeat_interleave(groups, 0)[:, None], kernel[1])
            for kernel in (pre, post)
        )
        mixings = (
            None if mixing is None else torch.kron(torch.block_diag(*mixing), torch.eye(groups))
            for mixing in (head_pre, head_post)
        )
        return cls(groups, *kernels, *mixings)  # type: ignore[arg-type]  # mypy takes each for either

    @property
    def reach(self) -> tuple[int, int]:
        """How many rows before its own a group needs of the scores, and of the softmax."""
        after = self.post.reach if self.post else 0
        return after + (self.pre.reach if self.pre else 0), after

    def memory(self, heads: int, n_tokens: int, at_once: int) -> Float[Tensor, "2 cells"]:
        """For two maps of `at_once` rows; prompts of this length can share it, one after the other."""
        rows = -(-at_once // self.groups) + self.reach[0]
        return torch.empty(2, heads * self.groups * rows * n_tokens)


class Prompt:
    """One prompt's queries, keys and values at a layer; its maps are written into `memory`."""

    def __init__(
        self,
        q: Float[Tensor, "position head d"],
        k: Float[Tensor, "position kv_head d"],
        v: Float[Tensor, "position kv_head d"],
        steps: Steps,
        memory: Float[Tensor, "2 cells"],
    ) -> None:
        self.steps, self.groups = steps, steps.groups
        self.queries, self.values = q.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous()
        self.keys = k.permute(1, 2, 0).contiguous()
        self.channels = self.groups * q.shape[1]
        self.before, self.after = steps.reach
        self.memory = memory
        self.unmixed = torch.eye(self.channels)

    def weighted(self, start: int, stop: int) -> Float[Tensor, "row head d"]:
        """Weighted values of the rows `[start, stop)`, at most as many as `memory` is for."""
        count, steps = -(-(stop - start) // self.groups), self.steps
        maps = self._scores(start, count, stop)
        maps = steps.pre.convolved(maps) if steps.pre else maps
        maps = maps if steps.head_pre is None else self._mixed(maps, steps.head_pre)
        maps = self._softmax(maps, start, count)
        maps = self._zero_future(steps.post.convolved(maps), start, count, 0) if steps.post else maps
        return self._values(maps)[: stop - start]

    def _scores(self, start: int, count: int, n_keys: int) -> Maps:
        """0 at later keys and in rows before position 0, as convolutions read them."""
        (heads, n_tokens, d), kv_heads, n_rows = self.queries.shape, len(self.keys), count + self.before
        places = torch.arange(n_rows) + count * torch.arange(self.groups)[:, None] + start - self.before
        # what stands in for rows outside the prompt is set to 0, or dropped in the end
        queries = self.queries.index_select(1, places.flatten().clamp(0, n_tokens - 1))
        scores = self._beside(queries, heads, self.groups * n_rows, n_keys)
        torch.bmm(
            queries.view(kv_heads, -1, d), self.keys[:, :, :n_keys], out=scores.view(kv_heads, -1, n_keys)
        )
        maps = self._beside(scores, n_rows, n_keys, self.channels)
        # a product with the identity transposes in half the time of a copy, and divides on the way
        apart = scores.view(self.channels, -1).t()
        torch.mm(apart, self.unmixed / d**0.5, out=maps.view(-1, self.channels))
        return self._zero_future(maps, start, count, self.before)

    def _mixed(self, maps: Maps, mixing: Float[Tensor, "channel channel"]) -> Maps:
        mixed = self._beside(maps, *maps.shape)
        torch.mm(maps.flatten(0, 1), mixing.t(), out=mixed.view(-1, self.channels))
        return mixed

    def _softmax(self, maps: Maps, start: int, count: int) -> Maps:
        """Over each query's own and earlier keys; 0 elsewhere and in rows before position 0."""
        band, most = self._band(maps, start, count, self.after, _INFINITE)
        torch.minimum(band, most, out=band)
        weights = torch.softmax(maps, 1, out=self._beside(maps, *maps.shape))
        for group in range(self.groups):
            missing = max(self.after - start - group * count, 0)
            weights[:missing, :, group :: self.groups] = 0.0  # a softmax of nothing is NaN
        return weights

    def _values(self, maps: Maps) -> Float[Tensor, "_row head d"]:
        (n_rows, n_keys, _), (kv_heads, _, d) = maps.shape, self.values.shape
        mixing = self.unmixed if self.steps.head_post is None else self.steps.head_post
        pattern = self._beside(maps, kv_heads, self.channels // kv_heads * n_rows, n_keys)
        torch.mm(mixing, maps.flatten(0, 1).t(), out=pattern.view(self.channels, -1))
        z = torch.bmm(pattern, self.values[:, :n_keys])
        return z.view(-1, self.groups * n_rows, d).transpose(0, 1)

    def _zero_future(self, maps: Maps, start: int, count: int, reach: int) -> Maps:
        """In place; what is not finite becomes NaN."""
        band, kept = self._band(maps, start, count, reach, _FACTOR)
        torch.mul(band, kept, out=band)
        return maps

    def _band(
        self, maps: Maps, start: int, count: int, reach: int, values: tuple[float, float]
    ) -> tuple[Maps, Maps]:
        """The keys that some rows do not see, and beside them one value where it is so, else the other."""
        first = start - reach  # of all rows
        seen_by_all = max(first + 1, 0)
        band = maps[:, seen_by_all:]
        table = _table(len(maps), count, self.groups, self.channels // self.groups, values)
        return band, table[:, seen_by_all - first - 1 :][:, : band.shape[1]]

    def _beside(self, maps: Tensor, *shape: int) -> Tensor:
        """Memory that `maps` do not lie in."""
        which = int(maps.data_ptr() == self.memory.data_ptr())
        return self.memory[which, : math.prod(shape)].view(shape)


@lru_cache(maxsize=16)
def _table(n_rows: int, count: int, groups: int, heads: int, values: tuple[float, float]) -> Maps:
    """The first value where a key comes after the query, else the second; from the second row's key on."""
    places = torch.arange(n_rows)[:, None] + count * torch.arange(groups)
    keys = torch.arange(1, n_rows + count * (groups - 1))[:, None]
    return torch.where(keys > places[:, None], *values).repeat(1, 1, heads)

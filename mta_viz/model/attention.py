"""Multi-token attention of one layer, every step optional: plain softmax attention has none of them.

Owns the order of the steps and their hook points (paper section 3); ops.py owns the mathematics.
Rows of the T x T stages are computed in slabs, so memory grows with T unless a hook asks for a
whole map.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.model import backends, channels, ops
from mta_viz.model.hooking import HookPoint, listened
from mta_viz.model.ops import Heads, KeyHeads, Maps, Resid
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.turns import pause

AFTER_VALUES = ("hook_z_normed", "hook_gate")
GROUP_NORM_EPS = 1e-5  # fixed by the method, not the model's norm_eps
# cells of one stage (batch x head x query x key) held at once without hooks: small maps stay in a
# CPU's cache, a GPU needs enough of them to be busy
SLAB_CELLS = {"cpu": 2**20, "cuda": 2**25}
GRADIENT_SLABS = 4
_share = ContextVar("share", default=1)

OnRows = Callable[[int], None]
Patches = Mapping[str, Mapping[int, Float[Tensor, "position other"]]]


@dataclass(frozen=True)
class Rows:
    """Query rows wanted, [start, stop), and the earlier row `first` their convolutions reach back to."""

    first: int
    start: int
    stop: int


@dataclass(frozen=True)
class QueryKeyValue:
    """Rotated queries and keys, and values: [batch, position, head or kv_head, d].

    `q` may hold only the last positions (generation): its first row is position `q_start`.
    """

    q: Heads
    k: KeyHeads
    v: KeyHeads
    q_start: int = 0


class Attention(nn.Module):
    """One layer's attention. Parameters: see `checkpoint.types.parameter_shapes`.

    `patches`: by hook name and head, rows (from position 0) that stand in for what is computed there,
    before the hook point sees it. Empty but in models made by `model.editing`.
    """

    kernel_pre: nn.Parameter | None
    kernel_post: nn.Parameter | None
    head_pre: nn.Parameter | None
    head_post: nn.Parameter | None
    group_norm: nn.Parameter | None

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.kernels = config.kernels(layer)
        self.patches: Patches = {}
        width, kv_width = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
        self.wq = nn.Linear(config.d_model, width, bias=config.qkv_bias)
        self.wk = nn.Linear(config.d_model, kv_width, bias=config.qkv_bias)
        self.wv = nn.Linear(config.d_model, kv_width, bias=config.qkv_bias)
        self.wo = nn.Linear(width, config.d_model, bias=config.out_bias)
        for name, values in identities(config, layer).items():
            self._add(name, values)
        d, gate = config.d_head, config.mta.gate
        self.gate = nn.Linear(d, 1 if gate == "1d" else d) if gate else None
        self._add_hooks()

    def _add(self, name: str, values: Tensor | None) -> None:
        self.register_parameter(name, None if values is None else nn.Parameter(values))

    def _add_hooks(self) -> None:
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()
        self.stages = layer_stages(self.kernels)
        for stage in self.stages:
            setattr(self, stage.value.hook, HookPoint())
        self.hook_z, self.hook_z_gated = HookPoint(), HookPoint()
        if self.group_norm is not None:
            self.hook_z_normed = HookPoint()
        if self.gate is not None:
            self.hook_gate = HookPoint()

    def forward(self, x: Resid, on_rows: OnRows | None = None) -> Resid:
        """What is added to the residual stream; `on_rows(stop)` says that rows before `stop` are done."""
        return self.output(self.attend(self.project(x), on_rows))

    def project(self, x: Resid, start: int = 0) -> QueryKeyValue:
        """Queries, keys and values of positions `start` onwards, rotated."""
        d, positions = self.config.d_head, torch.arange(start, start + x.shape[1], device=x.device)
        q, k, v = (
            hook(linear(x).unflatten(-1, (-1, d)))
            for linear, hook in ((self.wq, self.hook_q), (self.wk, self.hook_k), (self.wv, self.hook_v))
        )
        width = self.config.d_rotary
        q, k = (part.reshape(*part.shape[:2], -1, width) for part in (q, k))
        rotation = width, self.config.rope_theta, self.config.rope_scaling, x.device
        if start == 0 and (vectors := backends.vector_kernels(x)):
            q, k = (vectors.rotary(part, *backends.angles(x.shape[1], *rotation)) for part in (q, k))
        else:
            turns = ops.rotary_frequencies(*rotation)
            q, k = (ops.rotary(part, positions, turns) for part in (q, k))
        q, k = (part.reshape(*part.shape[:2], -1, d) for part in (q, k))  # halves side by side again
        return QueryKeyValue(self.hook_rot_q(q), self.hook_rot_k(k), v, start)

    def attend(self, qkv: QueryKeyValue, on_rows: OnRows | None = None) -> Heads:
        """Values weighted by the final weights, for every query of a whole prompt."""
        backend = self.backend(qkv.q).name
        if backend == "channels":
            return self._in_channels(qkv, on_rows)
        if backend != "slabs":
            return self._patched(self._attend_fast(backend, qkv, on_rows), 0)
        batch, n_keys = qkv.k.shape[:2]
        hooked = self.has_stage_hooks
        step = n_keys if hooked else self.slab_rows(batch, n_keys)
        parts = []
        for start in range(0, n_keys, step):
            rows = self.rows(start, min(start + step, n_keys))
            parts.append(self.attend_rows(qkv, rows, hooked=hooked))
            if on_rows:
                on_rows(rows.stop)
            pause()
        return torch.cat(parts, dim=1)

    def attend_rows(self, qkv: QueryKeyValue, rows: Rows, *, hooked: bool = False) -> Heads:
        """Weighted values of some rows; keys after the last row are never touched."""
        with ops.denormals_flushed(qkv.q, wanted=not hooked):
            for _, maps in self.stage_rows(qkv, rows, hooked=hooked):
                pattern = maps  # the last one is the pattern; earlier ones are let go
            z = ops.weighted_values(pattern, qkv.v[:, : rows.stop])
        return self._patched(z, rows.start)

    def _attend_fast(self, backend: str, qkv: QueryKeyValue, on_rows: OnRows | None) -> Heads:
        if backend == "sdpa":
            z = backends.plain_attention(qkv.q, qkv.k, qkv.v)
            if on_rows:
                on_rows(qkv.k.shape[1])
            return z
        from mta_viz.model import fused  # Triton is only where CUDA is

        pre, post = (
            None if taps is None else fused.Kernel(taps, self.config.key_pad_left(taps.shape[2]))
            for taps in (self.kernel_pre, self.kernel_post)
        )
        steps = fused.Steps(pre, self.head_pre, post, self.head_post)
        with torch.cuda.device_of(qkv.q):  # Triton takes the current device
            return fused.weighted_values(qkv.q, qkv.k, qkv.v, steps, on_rows)

    def _patched(self, z: Heads, first: int) -> Heads:
        patches = self.patches.get("hook_z")
        return ops.with_heads(z.transpose(1, 2), patches, first).transpose(1, 2) if patches else z

    def _fits_channels(self, x: Tensor) -> bool:
        """Whether `channels.py` can compute it: kernels, float32 on a CPU, nothing to be seen or replaced."""
        kernels = self.kernel_pre is not None or self.kernel_post is not None
        looked_at = self.has_stage_hooks or self.patches or torch.is_grad_enabled()
        return kernels and not looked_at and channels.suits(x)

    def _in_channels(self, qkv: QueryKeyValue, on_rows: OnRows | None) -> Heads:
        n_keys, heads, parts = qkv.k.shape[1], self.config.n_heads, []
        pre, post = self._taps(self.kernel_pre), self._taps(self.kernel_post)
        steps = channels.Steps.of(heads, pre, post, self.head_pre, self.head_post)
        # groups repeat the rows before them: more rows than of a slab pay
        step = min(n_keys, channels.ROWS * steps.groups, 2 * self.slab_rows(1, n_keys))
        memory = steps.memory(heads, n_keys, step)
        prompts = [channels.Prompt(*each, steps, memory) for each in zip(qkv.q, qkv.k, qkv.v, strict=True)]
        for start in range(0, n_keys, step):
            rows = self.rows(start, min(start + step, n_keys))
            with ops.denormals_flushed(qkv.q):
                z = torch.stack([prompt.weighted(rows.start, rows.stop) for prompt in prompts])
            # a number that is not finite spreads to the rows beside it: there only slabs are right
            parts.append(z if z.sum().isfinite() else self.attend_rows(qkv, rows))
            if on_rows:
                on_rows(rows.stop)
            pause()
        return torch.cat(parts, dim=1)

    def _taps(self, kernel: Tensor | None) -> channels.Taps | None:
        return None if kernel is None else (kernel, self.config.key_pad_left(kernel.shape[2]))

    def stage_rows(
        self, qkv: QueryKeyValue, rows: Rows, *, hooked: bool = False
    ) -> Iterator[tuple[Stage, Maps]]:
        """Each stage of `rows` over keys 0..stop-1, in order, computed as it is asked for.

        `hooked` fires the hook points, which may replace a map. The first rows of a convolution's
        input are its halo: they are dropped from its output, where they would lack what lies
        before them. Only the rows from `rows.start` on are yielded.
        """
        for stage, maps, first in self._stages_with_halo(qkv, rows, hooked):
            yield stage, maps[:, :, rows.start - first :]

    def _stages_with_halo(
        self, qkv: QueryKeyValue, rows: Rows, hooked: bool
    ) -> Iterator[tuple[Stage, Tensor, int]]:
        """The steps in the paper's order; (stage, maps, position of the first row)."""
        first, q = rows.first, qkv.q[:, rows.first - qkv.q_start : rows.stop - qkv.q_start]
        maps = self._seen(Stage.RAW, ops.attention_scores(q, qkv.k[:, : rows.stop]), first, hooked)
        yield Stage.RAW, maps, first
        if self.kernel_pre is not None:
            keep = max(rows.start - _reach(self.kernel_post), 0)
            maps = self._convolved(maps, self.kernel_pre, first)[:, :, keep - first :]
            first, maps = keep, self._seen(Stage.KQ, maps, keep, hooked)
            yield Stage.KQ, maps, first
        if self.head_pre is not None:
            maps = self._seen(Stage.MIX, ops.mix_heads(maps, self.head_pre), first, hooked)
            yield Stage.MIX, maps, first
        future = self._future(maps, first)
        maps = self._seen(Stage.SOFTMAX, ops.masked_softmax(maps, future), first, hooked)
        yield Stage.SOFTMAX, maps, first
        if self.kernel_post is not None:
            kept, first = rows.start - first, rows.start
            maps = self._convolved(maps, self.kernel_post)[:, :, kept:].masked_fill(future[kept:], 0.0)
            maps = self._seen(Stage.SOFTMAX_KQ, maps, first, hooked)
            yield Stage.SOFTMAX_KQ, maps, first
        if self.head_post is not None:
            maps = ops.mix_heads(maps, self.head_post)
        yield Stage.PATTERN, self._seen(Stage.PATTERN, maps, first, hooked), first

    def output(self, z: Heads) -> Resid:
        """Group norm, gate and output projection of the heads' weighted values."""
        z = self.hook_z(z)
        return self.wo(self.hook_z_gated(self._normed_and_gated(z)).flatten(-2))

    def _normed_and_gated(self, z: Heads) -> Heads:
        if self.group_norm is None and self.gate is None:
            return z
        seen = listened(*(point for name, point in self.named_children() if name in AFTER_VALUES))
        if not seen and self.config.mta.gate != "dd" and (vectors := backends.vector_kernels(z)):
            factor = self.config.depth_scale(self.layer)
            return vectors.normed_and_gated(z, self.group_norm, factor, GROUP_NORM_EPS, self.gate)
        z = self.normalize(z)
        gate = self.gate_values(z)
        return z if gate is None else z * self.hook_gate(gate)

    def normalize(self, z: Heads) -> Heads:
        """Group norm with its depth scale; `z` itself where the layer has none."""
        if self.group_norm is None:
            return z
        normed = ops.rms_normalize(z, GROUP_NORM_EPS) * self.group_norm
        return self.hook_z_normed(normed * self.config.depth_scale(self.layer))

    def gate_values(self, z: Heads) -> Float[Tensor, "batch position head gate"] | None:
        """Gate of every head and position in 0..1, from the (normed) weighted values; None without."""
        return None if self.gate is None else torch.sigmoid(self.gate(z))

    def backend(self, x: Tensor) -> backends.Backend:
        """How whole prompts are computed with activations like `x`."""
        if self._fits_channels(x):
            return backends.Backend("channels")
        patched = any(stage.value.hook in self.patches for stage in self.stages)
        seen = {"hooked": self.has_stage_hooks, "patched": patched}
        return backends.choose(self.config, self.kernels, x.device, x.dtype, **seen)

    def rows(self, start: int, stop: int) -> Rows:
        """`[start, stop)` with the halo of earlier rows their convolutions read."""
        reach = _reach(self.kernel_pre) + _reach(self.kernel_post)
        return Rows(max(start - reach, 0), start, stop)

    def slab_rows(self, batch: int, n_keys: int) -> int:
        """Rows of about SLAB_CELLS cells of one stage. With gradients every slab is kept anyway: in training
        there is only one, and with fixed weights a few, which leave out most keys after their queries."""
        if torch.is_grad_enabled():
            parts = 1 if self.wq.weight.requires_grad else GRADIENT_SLABS
            return max(-(-n_keys // parts), 16)
        cells = slab_cells(self.wq.weight.device.type)
        return max(cells // (batch * self.config.n_heads * n_keys), 16)

    @property
    def has_stage_hooks(self) -> bool:
        """Whether anybody listens to a T x T hook point, which then must see the whole map."""
        return listened(*(getattr(self, stage.value.hook) for stage in self.stages))

    def _seen(self, stage: Stage, maps: Tensor, first: int, hooked: bool) -> Tensor:
        patches = self.patches.get(stage.value.hook)
        if patches:
            maps = ops.with_heads(maps, patches, first)
        return getattr(self, stage.value.hook)(maps) if hooked else maps

    def _future(self, maps: Tensor, first_row: int) -> Tensor:
        rows = range(first_row, first_row + maps.shape[2])
        return ops.future_cells(rows, maps.shape[3], maps.device)

    def _convolved(self, maps: Tensor, kernel: Tensor, first_row: int | None = None) -> Tensor:
        return backends.convolved(maps, kernel, self.config.key_pad_left(kernel.shape[2]), first_row)

    @property
    def output_by_head(self) -> Float[Tensor, "head d d_model"]:
        """The output projection's matrix of every head."""
        return self.wo.weight.T.unflatten(0, (self.config.n_heads, self.config.d_head))

    @property
    def W_O(self) -> Float[Tensor, "head d d_model"]:
        """The same for TransformerLens, which multiplies it by hook_z. MtaVizError where that is wrong."""
        if self.group_norm is None and self.gate is None:
            return self.output_by_head
        raise MtaVizError(
            f"layer {self.layer} norms or gates its heads after hook_z, so hook_z times W_O is not what they "
            "add; take the cache as run_with_cache gives it, with hook_z_gated in it"
        )

    W_Q = property(lambda self: self._by_head(self.wq))  # [head, d_model, d], as TransformerLens has them
    W_K = property(lambda self: self._by_head(self.wk))
    W_V = property(lambda self: self._by_head(self.wv))

    def _by_head(self, projection: nn.Linear) -> Float[Tensor, "head d_model d"]:
        """A projection's matrix of every head; grouped heads share theirs."""
        own = projection.weight.unflatten(0, (-1, self.config.d_head)).mT
        return own.repeat_interleave(self.config.n_heads // len(own), dim=0)


def slab_cells(device: str) -> int:
    """Cells of one stage in a slab, by the device's type; every GPU counts as CUDA's."""
    return SLAB_CELLS.get(device, SLAB_CELLS["cuda"]) // _share.get()


@contextmanager
def smaller_slabs(share: int) -> Iterator[None]:
    """In this thread, slabs of one `share`th of the cells: where memory ran out."""
    before = _share.set(share)
    try:
        yield
    finally:
        _share.reset(before)


def identities(config: ModelConfig, layer: int) -> dict[str, Tensor | None]:
    """A layer's kernels and head mixing that pass every map as it is, and a group norm's gains of 1."""
    kernels, width = config.kernels(layer), config.d_head
    return {
        "kernel_pre": _identity_kernel(config, kernels.pre),
        "kernel_post": _identity_kernel(config, kernels.post),
        "head_pre": _identity_mixing(kernels.head_pre),
        "head_post": _identity_mixing(kernels.head_post),
        "group_norm": torch.ones(width) if config.mta.group_norm else None,
    }


def _identity_kernel(config: ModelConfig, shape: tuple[int, int, int] | None) -> Tensor | None:
    if shape is None:
        return None
    kernel = torch.zeros(shape)
    kernel[:, -1, config.key_pad_left(shape[2])] = 1.0
    return kernel


def _identity_mixing(shape: tuple[int, int, int] | None) -> Tensor | None:
    return None if shape is None else torch.eye(shape[1]).expand(shape).clone()


def _reach(kernel: Tensor | None) -> int:
    return kernel.shape[1] - 1 if kernel is not None else 0

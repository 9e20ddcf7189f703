"""Which way a layer's attention is computed, and why.

Owns the choice; fused.py, channels.py and attention.py own the ways. Slabs compute everything, everywhere;
the others only what they can, and only while nobody looks at a T x T map.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mta_viz.config import LayerKernels, ModelConfig, RopeScaling
from mta_viz.model import ops
from mta_viz.model.ops import Heads, Kernels, KeyHeads, Maps

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WORDS = {
    "fused": "in fused kernels",
    "sdpa": "by torch's own attention",
    "channels": "with rows as channels",
    "slabs": "in slabs of maps",
}
MOST_HEADS, WIDEST_HEAD, WIDEST_KERNEL = 64, 256, (64, 112)  # of the fused kernels


class Backend(NamedTuple):
    """How a layer is computed, and for slabs the reason: words that complete `in slabs, since ...`."""

    name: Literal["fused", "sdpa", "channels", "slabs"]
    reason: str = ""

    @property
    def words(self) -> str:
        """As people read it."""
        return f"{WORDS[self.name]}, since {self.reason}" if self.reason else WORDS[self.name]


def described(backends: Sequence[Backend]) -> str:
    """How the layers of a run were computed: `6 layers in fused kernels; 18 layers in slabs, since ...`."""
    counts = Counter(backend.words for backend in backends)
    return "; ".join(f"{n} {'layer' if n == 1 else 'layers'} {words}" for words, n in counts.items())


def choose(
    config: ModelConfig,
    kernels: LayerKernels,
    device: torch.device,
    dtype: torch.dtype,
    *,
    hooked: bool,
    patched: bool,
) -> Backend:
    """For a layer with these kernels, with activations of that dtype there.

    `hooked`: somebody listens to one of its maps; `patched`: an intervention stands in for one.
    """
    # on a CPU kernels at the identity give a plain model's logits bit for bit, so both go one way there
    off = "" if device.type == "cuda" else f"it runs on the {device.type.upper()}"
    reason = off or _looked_at(hooked, patched)
    if not reason and kernels.any:
        gradients = "gradients are kept" if torch.is_grad_enabled() else ""
        reason = gradients or _no_kernels(dtype) or _too_large(config)
    if reason:
        return Backend("slabs", reason)
    return Backend("fused" if kernels.any else "sdpa")


def _looked_at(hooked: bool, patched: bool) -> str:
    if hooked:
        return "a hook on its maps is listened to"
    return "an intervention stands in for a map" if patched else ""


def _no_kernels(dtype: torch.dtype) -> str:
    if dtype not in DTYPES:
        return f"it computes in {str(dtype).removeprefix('torch.')}"
    return "" if has_triton() else "Triton is not installed"


def _too_large(config: ModelConfig) -> str:
    # rows that are not aligned to 16 numbers were wrong machine code with Triton 3.6: benchmarks/NOTES.md
    if config.n_heads > MOST_HEADS or config.d_head > WIDEST_HEAD or config.d_head % 16:
        return f"it has {config.n_heads} heads of width {config.d_head}"
    for kernel in (config.mta.pre_kernel, config.mta.post_kernel):
        if kernel and (kernel[0] > WIDEST_KERNEL[0] or kernel[1] > WIDEST_KERNEL[1]):
            return f"its kernels are {kernel[0]} x {kernel[1]}"
    return ""


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether it can be imported; torch brings it for CUDA."""
    return find_spec("triton") is not None


def vector_kernels(x: Tensor) -> ModuleType | None:
    """fused_vectors.py where its kernels can work on `x` and no gradients are kept, else None."""
    if not _takes_kernels(x):
        return None
    from mta_viz.model import fused_vectors

    return fused_vectors


def convolved(maps: Maps, taps: Kernels, pad_left: int, first: int | None) -> Maps:
    """The key-query convolution; of scores, whose first row is query `first`, with future cells read as 0."""
    rows, n_keys = maps.shape[2:]
    if _takes_kernels(maps) and taps.shape[1] <= WIDEST_KERNEL[0] and taps.shape[2] <= WIDEST_KERNEL[1]:
        from mta_viz.model import fused

        return fused.convolved(maps, fused.Kernel(taps, pad_left), n_keys if first is None else first)
    if first is None:
        return ops.key_query_convolution(maps, taps, pad_left)
    future = ops.future_cells(range(first, first + rows), n_keys, maps.device)
    return ops.causal_convolution(maps, taps, pad_left, future)


def _takes_kernels(x: Tensor) -> bool:
    return x.is_cuda and not torch.is_grad_enabled() and not _no_kernels(x.dtype)


def plain_attention(q: Heads, k: KeyHeads, v: KeyHeads) -> Heads:
    """Values weighted by a plain softmax, by torch's own kernels."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped).transpose(1, 2)


@lru_cache(maxsize=4)  # of every layer the same
def angles(
    n_tokens: int, d: int, theta: float, scaling: RopeScaling | None, device: torch.device
) -> tuple[Float[Tensor, "position pair"], Float[Tensor, "position pair"]]:
    """Cosine and sine of every rotary angle of positions 0 on, float32."""
    turns = ops.rotary_frequencies(d, theta, scaling, device)
    angle = torch.arange(n_tokens, dtype=torch.float64, device=device)[:, None] * turns
    return angle.cos().float(), angle.sin().float()

"""The learned kernels of a layer with their real offsets, from a state dict: no model is built.

Owns which tap reads which query and key, and how far a kernel is from the identity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mta_viz.config import ModelConfig

Place = Literal["pre", "post"]
MixPlace = Literal["head_pre", "head_post"]

NEAR_IDENTITY = 0.05
WHERE: dict[Place | MixPlace, str] = {
    "pre": "before the softmax",
    "head_pre": "before the softmax",
    "post": "after the softmax",
    "head_post": "after the softmax",
}


@dataclass(frozen=True, order=True)
class KernelId:
    """Which kernel of a model: for head mixing `head` is the target whose row is meant. Counts from 0."""

    layer: int
    head: int
    where: Place | MixPlace


@dataclass(frozen=True)
class Offsets:
    """What the taps of a [c_q, c_k] kernel read, relative to the cell they are read for.

    `query`: -(c_q-1)..0, one per row; `key`: one per column, negative = an earlier key.
    The own tap is the one at offsets (0, 0).
    """

    query: tuple[int, ...]
    key: tuple[int, ...]

    @property
    def own(self) -> tuple[int, int]:
        """Row and column of the own tap."""
        return self.query.index(0), self.key.index(0)


@dataclass(frozen=True)
class LayerKernelSet:
    """All kernels of one layer, float32; None where the layer has none.

    `pre` and `post` are the key-query kernels before and after the softmax, `head_pre` and
    `head_post` the head mixing; the two places may have different kernel sizes.
    """

    pre: Float[Tensor, "head c_q c_k"] | None
    post: Float[Tensor, "head post_c_q post_c_k"] | None
    head_pre: Float[Tensor, "group target source"] | None
    head_post: Float[Tensor, "post_group post_target post_source"] | None
    pre_offsets: Offsets | None
    post_offsets: Offsets | None

    def taps(self, where: Place) -> Float[Tensor, "head c_q c_k"] | None:
        """The key-query kernels before (`pre`) or after (`post`) the softmax."""
        return self.pre if where == "pre" else self.post

    def offsets(self, where: Place) -> Offsets | None:
        """The offsets that belong to `taps(where)`."""
        return self.pre_offsets if where == "pre" else self.post_offsets

    def mixing(self, where: MixPlace) -> Float[Tensor, "group target source"] | None:
        """The head mixing before (`head_pre`) or after (`head_post`) the softmax."""
        return self.head_pre if where == "head_pre" else self.head_post


def layer_kernels(state_dict: Mapping[str, Tensor], config: ModelConfig, layer: int) -> LayerKernelSet:
    """Read one layer's kernels; `state_dict` has the names of `parameter_shapes(config)`."""

    def read(name: str) -> Tensor | None:
        tensor = state_dict.get(f"blocks.{layer}.attn.{name}")
        return None if tensor is None else tensor.detach().float().cpu()

    pre, post = read("kernel_pre"), read("kernel_post")
    return LayerKernelSet(
        pre,
        post,
        read("head_pre"),
        read("head_post"),
        None if pre is None else kernel_offsets(config, pre.shape[-2], pre.shape[-1]),
        None if post is None else kernel_offsets(config, post.shape[-2], post.shape[-1]),
    )


def kernel_offsets(config: ModelConfig, query_size: int, key_size: int) -> Offsets:
    """Offsets of a kernel of that size, by the side the keys are padded on."""
    left = config.key_pad_left(key_size)
    return Offsets(query=tuple(range(1 - query_size, 1)), key=tuple(range(-left, key_size - left)))


def energy_off_identity(
    kernels: Float[Tensor, "head c_q c_k"], own: tuple[int, int]
) -> Float[Tensor, " head"]:
    """Share of the squared taps outside the own tap, 0..1; 1 for a kernel of zeros."""
    energy = kernels.double().square()
    total = energy.sum((-2, -1))
    share = 1 - energy[:, own[0], own[1]] / total
    return torch.where(total > 0, share.clamp(0, 1), 1.0).float()


def near_identity(kernels: Float[Tensor, "head c_q c_k"], own: tuple[int, int]) -> Bool[Tensor, " head"]:
    """Kernels with less than 5 % of their energy outside the own tap."""
    return energy_off_identity(kernels, own) < NEAR_IDENTITY

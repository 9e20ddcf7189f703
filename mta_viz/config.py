"""What a model is: every architecture option, validated once, independent of any file format.

The paper's and Lingua's symbols are mapped to the field's names here and nowhere else:

| paper / Lingua                      | here                                   |
|-------------------------------------|----------------------------------------|
| D, `dim`                            | `d_model`                              |
| M, `n_heads`                        | `n_heads` (query heads)                |
| KV, `n_kv_heads`                    | `n_kv_heads`                           |
| d, `head_dim`                       | `d_head`                               |
| `max_seqlen` (limits nothing)       | `n_ctx`                                |
| `weight_tying`                      | `tied`                                 |
| `mta_kernel` (c_q x c_k)            | `pre` kernel, `MTAOptions.pre_kernel`  |
| `mta_kernel_after_sm`               | `post` kernel                          |
| `pre_sm_linear_head`, `wpsm`        | `head_pre` mixing over all heads       |
| `head_kernel` (c_h), `wposm`        | `head_post` mixing in groups / all     |
| `group_norm`, `subln`               | `group_norm`                           |
| `layer_norm_rescale`                | `depth_scale`                          |
| `add_gating`, `gate_1d`             | `gate`: None, "1d" (per head), "dd"    |
| `curse_norm`                        | `scale_block_norms`                    |
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from mta_viz.errors import ConfigError

PadKey = Literal["both", "left", "right"]
Gate = Literal["1d", "dd"]
Variant = Literal["transformer", "talking_heads", "mta", "differential"]
Head = tuple[int, int]  # a layer, and one of its heads
KernelPlace = Literal["pre", "post"]  # of the softmax, as the fields of `LayerKernels` are named
MixingPlace = Literal["head_pre", "head_post"]
Where = KernelPlace | MixingPlace
KEY_QUERY: tuple[KernelPlace, ...] = ("pre", "post")
MIXING: tuple[MixingPlace, ...] = ("head_pre", "head_post")
# What the attention of a layer calls the kernels of each place.
PARAMETERS: dict[Where, str] = {
    "pre": "kernel_pre",
    "post": "kernel_post",
    "head_pre": "head_pre",
    "head_post": "head_post",
}
DTYPES = ("float32", "bfloat16", "float16")  # what a model can compute in, by torch's names
LARGEST_KERNEL = 63  # queries or keys, of one that is put into a model; a file's own may be larger


@dataclass(frozen=True)
class MTAOptions:
    """The multi-token attention options of a model (paper section 3; defaults change nothing).

    `pre_kernel` and `post_kernel` are (c_q, c_k) or None. `mta_layers` are the layers that have
    key-query kernels (None: all). `head_post_group` is c_h; `head_post_linear` mixes all heads.
    """

    pre_kernel: tuple[int, int] | None = None
    post_kernel: tuple[int, int] | None = None
    pad_key: PadKey = "both"
    mta_layers: tuple[int, ...] | None = None
    head_pre: bool = False
    head_post_group: int | None = None
    head_post_linear: bool = False
    group_norm: bool = False
    depth_scale: bool = False
    gate: Gate | None = None
    scale_block_norms: bool = False


@dataclass(frozen=True)
class LayerKernels:
    """Shapes of the kernels one layer has; None where it has none.

    `pre`, `post`: [head, c_q, c_k]. `head_pre`, `head_post`: [group, target, source]. `differential`: it has
    none, and subtracts two softmax maps.
    """

    pre: tuple[int, int, int] | None = None
    post: tuple[int, int, int] | None = None
    head_pre: tuple[int, int, int] | None = None
    head_post: tuple[int, int, int] | None = None
    differential: bool = False

    @property
    def any(self) -> bool:
        """Whether the layer has any of the four."""
        return any((self.pre, self.post, self.head_pre, self.head_post))


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3's rule for prompts longer than those trained on at first, `original_n_ctx` tokens.

    A pair that turns once in more than `original_n_ctx / low_freq_factor` tokens turns `factor` times slower,
    one that does in fewer than `original_n_ctx / high_freq_factor` as before, those between by interpolation.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_n_ctx: int


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer with (or without) multi-token attention. Layers count from 0.

    `qkv_bias`, `out_bias`, `mlp_bias`: whether the projections of queries, keys and values, that of heads'
    outputs, and all three of the MLP add a bias. `differential`: DIFF Transformer, whose heads have queries
    and keys in two halves, `d_head / 2` wide, and values `d_head` wide (group norm and depth scale are
    options as elsewhere; the paper's has both). Raises `ConfigError` listing every value out of range.
    """

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    vocab_size: int
    n_ctx: int = 1024
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tied: bool = False
    mta: MTAOptions = field(default_factory=MTAOptions)
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    differential: bool = False

    def __post_init__(self) -> None:
        problems = [*_size_problems(self), *_mta_problems(self), *_differential_problems(self)]
        if problems:
            raise ConfigError(problems)

    @property
    def variant(self) -> Variant:
        """`mta` with any key-query kernel, `talking_heads` with head mixing only."""
        if self.differential:
            return "differential"
        layers = [self.kernels(layer) for layer in range(self.n_layers)]
        if any(kernels.pre or kernels.post for kernels in layers):
            return "mta"
        return "talking_heads" if any(kernels.any for kernels in layers) else "transformer"

    def kernels(self, layer: int) -> LayerKernels:
        """Kernel shapes of one layer (mixing is kept outside `mta_layers`)."""
        mta, heads = self.mta, self.n_heads
        listed = mta.mta_layers is None or layer in mta.mta_layers
        pre = (heads, *mta.pre_kernel) if mta.pre_kernel and listed else None
        post = (heads, *mta.post_kernel) if mta.post_kernel and listed else None
        whole = (1, heads, heads)
        group = heads if mta.head_post_linear else mta.head_post_group
        head_post = (heads // group, group, group) if group else None
        return LayerKernels(pre, post, whole if mta.head_pre else None, head_post, self.differential)

    @property
    def d_rotary(self) -> int:
        """Width of one query vector or key vector, over which rotary angles and the scores' root go."""
        return self.d_head // 2 if self.differential else self.d_head

    def key_pad_left(self, key_size: int) -> int:
        """Column b of the own key in a kernel `key_size` wide: keys reach that far back."""
        return {"both": (key_size - 1) // 2, "left": key_size - 1, "right": 0}[self.mta.pad_key]

    def depth_scale(self, layer: int) -> float:
        """Factor after the group norm, 1 unless `depth_scale`."""
        return _depth_factor(layer) if self.mta.depth_scale else 1.0

    def block_norm_scale(self, layer: int) -> float:
        """Factor on ln1 and ln2 (not ln_final), 1 unless `scale_block_norms` (Lingua: curse_norm)."""
        return _depth_factor(layer) if self.mta.scale_block_norms else 1.0


def _depth_factor(layer: int) -> float:
    return 1.0 - (0.8 - 0.6 * math.exp(-0.3 * layer))


def _size_problems(config: ModelConfig) -> list[str]:
    sizes = ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_mlp", "vocab_size", "n_ctx")
    problems: list[str] = []
    for name in sizes:
        value = getattr(config, name)
        if not isinstance(value, int) or value < 1:
            problems.append(f"{name} is {value}; expected a whole number of at least 1")
    if problems:
        return problems
    if config.n_heads % config.n_kv_heads:
        problems.append(f"n_heads {config.n_heads} is not a multiple of n_kv_heads {config.n_kv_heads}")
    if config.d_head % 2:
        problems.append(f"d_head {config.d_head} is odd; rotary embedding needs pairs")
    for name in ("norm_eps", "rope_theta"):
        if not getattr(config, name) > 0:
            problems.append(f"{name} is {getattr(config, name)}; expected a positive number")
    return problems + (_scaling_problems(config.rope_scaling) if config.rope_scaling else [])


def _scaling_problems(scaling: RopeScaling) -> list[str]:
    problems = [
        f"rope_scaling.{name} is {value}; expected a number above 0"
        for name, value in vars(scaling).items()
        if not value > 0
    ]
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if not problems and not high > low:
        problems.append(f"rope_scaling.high_freq_factor is {high}; expected more than low_freq_factor, {low}")
    return problems


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 1


def _mta_problems(config: ModelConfig) -> list[str]:
    mta, problems = config.mta, []
    if mta.pad_key not in ("both", "left", "right"):
        problems.append(f"pad_key is {mta.pad_key!r}; expected 'both', 'left' or 'right'")
    for name in ("pre_kernel", "post_kernel"):
        problems += kernel_problems(name, getattr(mta, name), mta.pad_key)
    group = mta.head_post_group
    whole = _is_size(group) and _is_size(config.n_heads)
    if group is not None and not (whole and config.n_heads % group == 0):
        problems.append(f"head group size {group!r} does not divide n_heads {config.n_heads!r}")
    if group is not None and mta.head_post_linear:
        problems.append("head_kernel_size and post_sm_linear_head are both set; choose one")
    layers = mta.mta_layers or ()
    if not all(type(layer) is int and layer >= 0 for layer in layers):
        problems.append(f"mta_layers is {list(layers)}; expected whole numbers, counted from 0")
    if mta.gate not in (None, "1d", "dd"):
        problems.append(f"gate is {mta.gate!r}; expected None, '1d' or 'dd'")
    return problems


def _differential_problems(config: ModelConfig) -> list[str]:
    if not config.differential:
        return []
    mta, problems = config.mta, []
    if mta.pre_kernel or mta.post_kernel or mta.head_pre or mta.head_post_group or mta.head_post_linear:
        problems.append("differential attention has no kernels and no head mixing; expected use_mta false")
    if config.n_kv_heads != config.n_heads:
        problems.append(
            f"n_kv_heads is {config.n_kv_heads}; expected {config.n_heads}: differential heads share no keys"
        )
    if _is_size(config.d_head) and config.d_head % 4:
        problems.append(
            f"d_head is {config.d_head}; differential heads have two even halves, a multiple of 4"
        )
    return problems


def kernel_problems(
    name: str, size: tuple[int, ...] | None, pad_key: str, most: int | None = None
) -> list[str]:
    """What is wrong with the size of a kernel, with at most `most` queries and keys; nothing for none."""
    if size is None:
        return []
    if not isinstance(size, tuple) or len(size) != 2 or not all(map(_is_size, size)):
        return [f"{name} is {size}; expected two whole numbers of at least 1, such as (6, 11)"]
    if pad_key == "both" and size[1] % 2 == 0:
        return [f"{name} has an even key size {size[1]}; pad_key 'both' needs an odd one"]
    if most is not None and max(size) > most:
        return [f"{name} is {size[0]} x {size[1]}; expected at most {most} queries and {most} keys"]
    return []

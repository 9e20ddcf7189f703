"""What a run costs, and a step of training kernels, counted from the configuration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mta_viz.config import ModelConfig
from mta_viz.model.attention import slab_cells
from mta_viz.model.stages import Stage

FLOAT_BYTES = 4
LIVE_MAPS = 6  # maps of one slab alive at once: input, padded, output, mask, softmax, pattern
# Of training kernels into a fixed base, as measured with needle-transformer (a CPU, 16 x 320 and 6 x 384
# tokens): the way back in forwards, and what is kept for it, in widths and maps a layer and in logits.
BACKWARD = 2.0
KEPT_WIDTHS, KEPT_MLP, KEPT_MAPS, LOGITS = 12, 4, 1, 3


def multiply_adds(config: ModelConfig, n_tokens: int) -> float:
    """Multiply-adds of one forward over `n_tokens` (causal half of every map)."""
    width = config.n_heads * config.d_head
    attention = config.d_model * (2 * width + 2 * config.n_kv_heads * config.d_head)
    per_token = config.n_layers * (attention + 3 * config.d_model * config.d_mlp)
    per_token += config.d_model * config.vocab_size
    cells = config.n_heads * n_tokens * (n_tokens + 1) / 2
    per_cell = 0
    for kernels in map(config.kernels, range(config.n_layers)):
        taps = sum(shape[1] * shape[2] for shape in (kernels.pre, kernels.post) if shape)
        mixing = sum(shape[2] for shape in (kernels.head_pre, kernels.head_post) if shape)
        per_cell += 2 * config.d_head + taps + mixing + 20  # scores and values; about 20 for the softmax
    return n_tokens * per_token + cells * per_cell


def capture_bytes(config: ModelConfig, n_tokens: int, device: str = "cpu") -> int:
    """Bytes above the weights: residuals, a layer's activations, a slab (larger on a `device` like cuda)."""
    residuals = (config.n_layers + 1) * n_tokens * config.d_model
    layer = n_tokens * (4 * config.n_heads * config.d_head + 3 * config.d_mlp)
    slab = LIVE_MAPS * max(slab_cells(device), 16 * config.n_heads * n_tokens)
    return FLOAT_BYTES * (residuals + layer + min(slab, LIVE_MAPS * config.n_heads * n_tokens**2))


def hooks_bytes(config: ModelConfig, names: Sequence[str], n_tokens: int) -> int:
    """Bytes of the activations at these hook points, and of the logits; but for maps the most it can be."""
    stages = tuple(stage.value.hook for stage in Stage)
    n_maps = sum(name.endswith(stages) for name in names)
    widest = max(config.d_model, config.d_mlp, config.n_heads * config.d_head)
    others = (len(names) - n_maps) * widest + config.vocab_size
    return FLOAT_BYTES * n_tokens * (n_maps * config.n_heads * n_tokens + others)


@dataclass(frozen=True)
class TrainingCost:
    """A step of training kernels into a base, and its peak of memory above the weights."""

    multiply_adds: float
    n_bytes: int


def kernel_training(
    config: ModelConfig,
    first: int,
    prompts: tuple[int, int],
    text: tuple[int, int],
    *,
    dtype_bytes: int = FLOAT_BYTES,
) -> TrainingCost:
    """Of a model with kernels, layers below `first` fixed, on (sequences, tokens each) of both kinds.

    Below `first` a step runs forward alone; from there on forward and back, activations kept. Of prompts
    only the answers' logits are made.
    """
    rows, trained = (prompts, text), (config.n_layers - first) / config.n_layers
    work = sum(n * multiply_adds(config, length) for n, length in rows) * (1 + BACKWARD * trained)
    kept = sum(n * _kept(config, length) for n, length in rows) * (config.n_layers - first)
    logits = LOGITS * FLOAT_BYTES * math.prod(text) * config.vocab_size
    return TrainingCost(work, dtype_bytes * kept + logits)


def _kept(config: ModelConfig, length: int) -> int:
    """Numbers that a layer keeps of a sequence for the way back."""
    widths = KEPT_WIDTHS * config.d_model + KEPT_MLP * config.d_mlp
    return length * widths + KEPT_MAPS * config.n_heads * length**2

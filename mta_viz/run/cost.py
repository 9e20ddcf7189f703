"""What a run costs, counted from the configuration: multiply-adds and memory."""

from mta_viz.config import ModelConfig
from mta_viz.model.attention import slab_cells

FLOAT_BYTES = 4
LIVE_MAPS = 6  # maps of one slab alive at once: input, padded, output, mask, softmax, pattern


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

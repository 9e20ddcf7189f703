"""Metadata of a GGUF file -> `ModelConfig`: what each key means for the architectures this program computes.

A key of the architecture that is not known here is a fault: it might change the computation.
"""

import math
from collections.abc import Mapping
from functools import partial
from operator import eq
from typing import Any

import numpy as np

from mta_viz.checkpoint.params import MOST_LAYERS, FieldReader, Parsed
from mta_viz.config import ModelConfig, RopeScaling
from mta_viz.errors import ConfigError
from mta_viz.printed import short_repr
from mta_viz.tokenizers.gguf_header import Header

ROPE_FACTORS = "rope_freqs.weight"
EMBEDDING, UNEMBEDDING = "token_embd.weight", "output.weight"
INTERLEAVED, HALF_SPLIT = "llama", "qwen2"  # architectures, by the order of rotary pairs in their rows
_SUPPORTED = f"{INTERLEAVED} (Llama, Mistral, SmolLM and what else is written as such) and {HALF_SPLIT}"
_WITHOUT_EFFECT = frozenset(
    ("vocab_size", "tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned")
)
# Fields that leave the computation as it is at one value only, and what another would mean.
_ONLY = {
    "expert_count": (0, "a mixture of experts"),
    "expert_used_count": (0, "a mixture of experts"),
    "rope.scaling.type": ("none", "another rotary embedding"),
    "rope.scaling.factor": (1.0, "another rotary embedding"),
    "rope.scaling.attn_factor": (1.0, "another rotary embedding"),
    "rope.scale_linear": (1.0, "another rotary embedding"),
    "attention.causal": (True, "attention to later tokens"),
    "use_parallel_residual": (False, "attention and MLP side by side"),
}
_LLAMA_3 = (1.0, 4.0, 8192)  # low and high factor, length: of every Llama 3 that scales
_CLOSE = 1e-4  # relative: factors are written as float32


def parse_settings(header: Header, factors: np.ndarray | None) -> Parsed:
    """The configuration and every fault; `factors` are the values of `rope_freqs.weight`, if it is there."""
    metadata = header.metadata
    if problems := _kind_problems(metadata):
        return Parsed(None, tuple(problems))
    architecture = metadata["general.architecture"]
    keys = {key: value for key, value in metadata.items() if key.startswith(f"{architecture}.")}
    fields = {key.split(".", 1)[1]: _usual(value) for key, value in keys.items()}
    block = FieldReader(fields, architecture, {})
    sizes = _sizes(block, header)
    scaling = _scaling(block, sizes, factors)
    for name, (neutral, meaning) in _ONLY.items():
        expected = f"{short_repr(neutral)}: {meaning} is not supported"
        block.checked(name, neutral, partial(eq, neutral), expected)
    _check_window(block, sizes)
    block.refuse_unknown(_WITHOUT_EFFECT)
    if block.problems:
        return Parsed(None, tuple(block.problems))
    try:
        return Parsed(ModelConfig(**sizes, rope_scaling=scaling))
    except ConfigError as error:
        return Parsed(None, error.problems)


def _kind_problems(metadata: Mapping[str, Any]) -> list[str]:
    """Why the file is no whole model of an architecture that is supported."""
    kind, architecture = metadata.get("general.type", "model"), metadata.get("general.architecture")
    if kind != "model":
        return [f"it holds {short_repr(kind)}, no model"]
    if (parts := metadata.get("split.count", 1)) != 1:
        remedy = "join them into one file (llama-gguf-split --merge FIRST_PART OUT)"
        return [f"it is one of {short_repr(parts)} parts of a model; {remedy}"]
    if architecture not in (INTERLEAVED, HALF_SPLIT):
        return [f"its architecture is {short_repr(architecture)}; supported are {_SUPPORTED}"]
    return []


def _usual(value: Any) -> Any:
    """The one number of a list with one for each layer, if all are alike; float32 as it was meant (1e-5)."""
    if isinstance(value, np.ndarray):
        alike = value.size > 0 and (value == value[0]).all()
        return value[0].item() if alike else value[:8].tolist()
    if isinstance(value, float) and math.isfinite(value):
        return float(str(np.float32(value))) if float(np.float32(value)) == value else value
    return value


def _sizes(block: FieldReader, header: Header) -> dict[str, Any]:
    d_model, n_heads = _needed(block, "embedding_length"), _needed(block, "attention.head_count")
    d_head = block.whole("attention.key_length", max(d_model // n_heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        block.checked(name, d_head, lambda value: value == d_head, f"{d_head}, the width of a head")
    embedding = header.tensors.get(EMBEDDING)
    return {
        "d_model": d_model,
        "n_layers": _needed(block, "block_count", high=MOST_LAYERS),
        "n_heads": n_heads,
        "n_kv_heads": block.whole("attention.head_count_kv", n_heads),
        "d_head": d_head,
        "d_mlp": _needed(block, "feed_forward_length"),
        "vocab_size": block.whole("vocab_size", embedding.shape[0] if embedding and embedding.shape else 1),
        "n_ctx": _needed(block, "context_length"),
        "norm_eps": block.positive("attention.layer_norm_rms_epsilon", 1e-5),
        "rope_theta": block.positive("rope.freq_base", 10000.0),
        "tied": UNEMBEDDING not in header.tensors,
        "qkv_bias": _has(header, "attn_q.bias"),
        "out_bias": _has(header, "attn_output.bias"),
        "mlp_bias": _has(header, "ffn_gate.bias"),
    }


def _needed(block: FieldReader, name: str, **limits: int) -> int:
    value = block.whole(name, None, **limits)
    if value is None:
        block.problems.append(f"{block.where}.{name} is missing; expected a whole number")
    return value or 1


def _has(header: Header, ending: str) -> bool:
    return any(name.startswith("blk.") and name.endswith(f".{ending}") for name in header.tensors)


def _check_window(block: FieldReader, sizes: Mapping[str, Any]) -> None:
    n_ctx, name = sizes["n_ctx"], "attention.sliding_window"
    expected = f"none, or at least {n_ctx} (the whole context): windowed attention is not supported"
    block.checked(name, n_ctx, lambda size: type(size) is int and (size == 0 or size >= n_ctx), expected)


def _scaling(block: FieldReader, sizes: Mapping[str, Any], factors: np.ndarray | None) -> RopeScaling | None:
    """Llama 3's rule, of which the file holds what it gives for each pair: recognised or refused."""
    if factors is None or np.allclose(factors, 1.0, rtol=_CLOSE):
        return None
    low, high, length = _LLAMA_3
    length = block.whole("rope.scaling.original_context_length", length)
    rule = RopeScaling(float(str(factors.max())), low, high, length)
    wanted = slowdowns(rule, sizes["d_head"], sizes["rope_theta"])
    if factors.shape == wanted.shape and np.allclose(factors, wanted, rtol=_CLOSE):
        return rule
    differ = "they have another number"
    if factors.shape == wanted.shape:
        pair = int(np.abs(factors / wanted - 1).argmax())
        differ = f"for pair {pair} the file has {factors[pair]:g}, the rule {wanted[pair]:g}"
    block.problems.append(
        f"{ROPE_FACTORS} is not what Llama 3's rule gives with factor {rule.factor:g}, "
        f"low_freq_factor {low:g}, high_freq_factor {high:g} and {length:,} tokens: {differ}; "
        "no other scaling is supported"
    )
    return None


def slowdowns(rule: RopeScaling, d_head: int, theta: float) -> np.ndarray:
    """[pair]: by how much each pair of a head turns slower under Llama 3's rule."""
    turns = theta ** (-np.arange(0, d_head, 2) / d_head)
    rotations = rule.original_n_ctx * turns / (2 * np.pi)
    kept = np.clip((rotations - rule.low_freq_factor) / (rule.high_freq_factor - rule.low_freq_factor), 0, 1)
    return 1 / (kept + (1 - kept) / rule.factor)

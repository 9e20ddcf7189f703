"""What the model tests share: golden fixtures, random models of every option, and comparisons.

A case is a Lingua `model` block and a Lingua-named state dict, the form the float64 reference
takes; `build` turns it into the package's model.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import reference
import torch
from hypothesis import settings
from hypothesis import strategies as st

from mta_viz.checkpoint.layout import read_parameters, tensor_problems
from mta_viz.checkpoint.params import parse_params
from mta_viz.checkpoint.types import Checkpoint, Source, StoredWeights, stored_in_memory
from mta_viz.model.transformer import HookedMTA, build_model

FIXTURES = ("mta_full", "mta_headgroups2", "mta_toy", "talking_heads", "baseline")
MAPS = (
    "attn_scores",
    "scores_kq",
    "scores_mixed",
    "softmax",
    "softmax_kq",
    "pattern",
    "attn_scores_2",
    "softmax_2",
)

LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip

# the same examples in every run, and nothing written beside the tests
# `make soak` tries more configurations.
TRIED = int(os.environ.get("MTA_VIZ_EXAMPLES", "50"))
EXAMPLES = settings(max_examples=TRIED, derandomize=True, database=None)


@dataclass(frozen=True)
class Case:
    """One model as the reference takes it; `state` is float32 numpy under Lingua's names."""

    block: dict[str, Any]
    state: dict[str, np.ndarray]

    def reference(self, ids: Any) -> dict[str, np.ndarray]:
        return reference.forward(self.block, self.state, np.asarray(ids))

    def build(self, dtype: torch.dtype = torch.float32) -> HookedMTA:
        return build(self.block, self.state, dtype)


def read_case(folder: Path) -> Case:
    """A golden checkpoint folder."""
    state = torch.load(folder / "consolidated.pth", weights_only=True)["model"]
    block = json.loads((folder / "params.json").read_text())["model"]
    return Case(block, {name: value.numpy() for name, value in state.items()})


def random_case(block: dict[str, Any], seed: int = 0) -> Case:
    """Random weights for a `model` block: far enough from identity that every step matters."""
    rng = np.random.default_rng(seed)
    shapes = reference.parameter_shapes(block)
    return Case(block, {name: _random_weight(rng, name, shape, block) for name, shape in shapes.items()})


def _random_weight(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], block: Mapping[str, Any]
) -> np.ndarray:
    noise = rng.standard_normal(shape)
    if "mta_kernel" in name:
        _, _, c_q, c_k = shape
        pad_key = reference.options(block)[1]["pad_key"]
        own = {"both": (c_k - 1) // 2, "left": c_k - 1, "right": 0}[pad_key]
        noise = 0.3 * noise
        noise[:, :, c_q - 1, own] += 1.0
    elif "head_kernel" in name or "sm.weight" in name:
        noise = np.eye(shape[-1]) + 0.3 * noise
    elif "norm" in name or "subln" in name:
        noise = 1.0 + 0.3 * noise
    elif "gate" not in name and "embeddings" not in name:
        noise = noise / np.sqrt(shape[-1])
    return noise.astype(np.float32)


def build(block: Mapping[str, Any], state: Mapping[str, np.ndarray], dtype: torch.dtype) -> HookedMTA:
    """The package's model with these weights, read by the package's own field names and layouts."""
    config = parse_params({"model": dict(block)}, vocab_size=None).config
    stored = {name: stored_in_memory(torch.tensor(value)) for name, value in state.items()}
    assert tensor_problems(config, StoredWeights(stored)) == []
    source = Source(Path("made in the test"), "lingua", "float32", 0)
    return build_model(Checkpoint(config, read_parameters(config, stored, None), None, source), dtype=dtype)


def visible(value: Any, name: str) -> np.ndarray:
    """T x T stages with the cells key > query set to 0 (they are not compared); others as they are."""
    array = np.asarray(value.float() if isinstance(value, torch.Tensor) else value)
    return np.where(reference.causal(array.shape[-1]), array, 0.0) if is_map(name) else array


def is_map(hook: str) -> bool:
    """Whether a hook's tensor ends in [head, query, key]."""
    return hook.rsplit(".hook_", 1)[-1] in MAPS


def assert_hooks_close(cache: Mapping[str, Any], want: Mapping[str, np.ndarray], atol: float) -> None:
    """Same hook names, every tensor (batch axis dropped) within `atol` x max(1, largest value)."""
    assert set(cache) == set(want) - {"logits"}
    for name in cache:
        a, b = visible(cache[name], name), visible(want[name], name)
        assert a.shape == b.shape, name
        np.testing.assert_allclose(a, b, rtol=0, atol=atol * max(1.0, np.abs(b).max()), err_msg=name)


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """A random `model` block: any combination of the options that describes a model."""
    heads = draw(st.sampled_from((4, 6, 2, 3, 1)))
    head_dim = draw(st.sampled_from((None, 2, 4, 6)))
    block: dict[str, Any] = {
        "dim": draw(st.sampled_from((8, 12, 20))) if head_dim else heads * draw(st.sampled_from((2, 4))),
        "n_layers": draw(st.integers(1, 3)),
        "n_heads": heads,
        "head_dim": head_dim,
        "n_kv_heads": draw(st.sampled_from([*_divisors(heads), None])),
        "ffn_dim_multiplier": draw(st.sampled_from((None, 0.5, 1.3))),
        "multiple_of": draw(st.sampled_from((1, 4, 16))),
        "norm_eps": draw(st.sampled_from((1e-5, 1e-2))),
        "rope_theta": draw(st.sampled_from((10000.0, 100000.0, 50.0))),
        "weight_tying": draw(st.booleans()),
        "rope_scaling": draw(st.sampled_from((None, None, LLAMA3))),
        **{name: draw(st.booleans()) for name in ("qkv_bias", "out_bias", "mlp_bias")},
        "vocab_size": 13,
    }
    if draw(st.sampled_from((False, False, False, False, True))):
        return block
    return block | {"mta": draw(mta_options(heads, block["n_layers"]))}


def _divisors(heads: int) -> list[int]:
    """The uneven ones first: with 2 of 4 or 6 kv heads, which head reads which matters."""
    found = [n for n in range(1, heads + 1) if heads % n == 0]
    return sorted(found, key=lambda n: n in (1, heads))


@st.composite
def mta_options(draw: st.DrawFn, heads: int, n_layers: int) -> dict[str, Any]:
    """A random `mta` block for `heads` heads."""
    pad_key = draw(st.sampled_from(("right", "left", "both")))
    c_k = st.sampled_from((5, 3, 1) if pad_key == "both" else (4, 2, 5, 3, 1))
    sizes, absent = st.tuples(st.integers(1, 4), c_k), st.just(None)
    pre, post = draw(st.sampled_from(((sizes, absent), (absent, sizes), (sizes, sizes), (absent, absent))))
    pre, post = draw(pre), draw(post)
    mixing = draw(st.sampled_from(("groups", "linear", "none")))
    listed = draw(st.none() | st.sets(st.integers(0, n_layers), min_size=1))
    flags = ("group_norm", "layer_norm_rescale", "curse_norm", "pre_sm_linear_head", "add_gating", "gate_1d")
    return {
        "use_mta": draw(st.sampled_from((True, True, True, False))),
        "pad_key": pad_key,
        "query_kernel_size": pre and pre[0],
        "key_kernel_size": pre and pre[1],
        "after_sm_query_kernel_size": post and post[0],
        "after_sm_key_kernel_size": post and post[1],
        "mta_layers": None if listed is None else ", ".join(map(str, sorted(listed))),
        "head_kernel_size": draw(st.sampled_from(_divisors(heads))) if mixing == "groups" else None,
        "post_sm_linear_head": mixing == "linear",
        **{name: draw(st.booleans()) for name in flags},
    }


@st.composite
def prompts(draw: st.DrawFn, vocab: int = 13, max_size: int = 14) -> list[int]:
    """Token ids of a short prompt."""
    return draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=max_size))

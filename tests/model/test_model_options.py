"""Every option of the architecture changes the output, and by what the float64 reference says.

Both sides of a flip share their weights wherever a parameter keeps its name and shape, so the
difference is the option's own.
"""

from typing import Any

import numpy as np
import pytest
import torch
from model_cases import Case, random_case

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
BASE: dict[str, Any] = {
    "dim": 16,
    "n_layers": 3,
    "n_heads": 4,
    "multiple_of": 8,
    "vocab_size": 13,
    "mta": {
        "use_mta": True,
        "query_kernel_size": 3,
        "key_kernel_size": 5,
        "after_sm_query_kernel_size": 2,
        "after_sm_key_kernel_size": 3,
        "head_kernel_size": 2,
        "pre_sm_linear_head": True,
        "group_norm": True,
        "add_gating": True,
    },
}
PLAIN = {"mta": None}
# The pairs' wavelengths are 6.3 and 628 tokens: as before, and in between (250 to 1000).
RULE = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1000,
}  # fmt: skip
ABSENT = object()
MODEL_FLIPS: dict[str, dict[str, Any]] = {
    "n_kv_heads": {"n_kv_heads": 2},
    "head_dim": {"head_dim": 8},
    "ffn_dim_multiplier": {"ffn_dim_multiplier": 1.5},
    "multiple_of": {"multiple_of": 64},
    "norm_eps": {"norm_eps": 0.1},
    "rope_theta": {"rope_theta": 50.0},
    "weight_tying": {"weight_tying": True},
    "qkv_bias": {"qkv_bias": True},
    "out_bias": {"out_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "rope_scaling": {"rope_scaling": RULE},
    "baseline": PLAIN,
}
MTA_FLIPS: dict[str, dict[str, Any]] = {
    "use_mta": {"use_mta": False},
    "pad_key left": {"pad_key": "left"},
    "pad_key right": {"pad_key": "right"},
    "even kernel": {"pad_key": "left", "key_kernel_size": 4},
    "no pre kernel": {"query_kernel_size": None},
    "no post kernel": {"after_sm_query_kernel_size": None},
    "default kernel size 1": {"query_kernel_size": ABSENT, "key_kernel_size": ABSENT},
    "mta_layers": {"mta_layers": "0,2"},
    "head groups": {"head_kernel_size": 4},
    "no head groups": {"head_kernel_size": None},
    "head mixing, linear, after": {"head_kernel_size": None, "post_sm_linear_head": True},
    "no head mixing before": {"pre_sm_linear_head": False},
    "no group norm": {"group_norm": False},
    "depth scale": {"layer_norm_rescale": True},
    "no gate": {"add_gating": False},
    "gate dd": {"gate_1d": False},
    "curse_norm": {"curse_norm": True},
}


def _flipped(change: dict[str, Any]) -> dict[str, Any]:
    mta = {name: value for name, value in (BASE["mta"] | change).items() if value is not ABSENT}
    return BASE | {"mta": mta}


FLIPS = {name: BASE | change for name, change in MODEL_FLIPS.items()}
FLIPS |= {name: _flipped(change) for name, change in MTA_FLIPS.items()}
# gate, norm and both factors act without any kernel too
BARE = BASE | {"mta": {"use_mta": False, "group_norm": True}}
BARE_FLIPS = {
    "gate without kernels": BARE | {"mta": BARE["mta"] | {"add_gating": True}},
    "norm without kernels": BARE | {"mta": {"use_mta": False}},
    "depth scale without kernels": BARE | {"mta": BARE["mta"] | {"layer_norm_rescale": True}},
    "curse_norm without kernels": BARE | {"mta": BARE["mta"] | {"curse_norm": True}},
}


def _same_weights(case: Case, other: Case) -> Case:
    """`other` with the weights of `case` where name and shape agree."""
    kept = {n: v for n, v in case.state.items() if n in other.state and other.state[n].shape == v.shape}
    return Case(other.block, other.state | kept)


def _logits(case: Case) -> np.ndarray:
    return case.build()(torch.tensor([IDS]))[0].numpy()


@pytest.mark.parametrize(
    ("base", "flipped"),
    [(BASE, block) for block in FLIPS.values()] + [(BARE, block) for block in BARE_FLIPS.values()],
    ids=[*FLIPS, *BARE_FLIPS],
)
def test_option_changes_the_logits_as_in_the_reference(base: dict, flipped: dict) -> None:
    before = random_case(base, seed=1)
    after = _same_weights(before, random_case(flipped, seed=1))
    change = _logits(after) - _logits(before)
    assert np.abs(change).max() > 1e-3
    expected = after.reference(IDS)["logits"] - before.reference(IDS)["logits"]
    np.testing.assert_allclose(change, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pre_kernel": (2, 4)}, "even key size 4"),
        ({"post_kernel": (2, 4)}, "even key size 4"),
        ({"head_post_group": 2, "head_post_linear": True}, "choose one"),
    ],
)
def test_options_that_describe_no_model_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(16, 3, 4, 4, 4, 48, 13, mta=MTAOptions(**options))

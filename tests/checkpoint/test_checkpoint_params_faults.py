"""Faults of params.json: each says what came and what was expected, all of them at once."""

import copy
import subprocess
import sys
from typing import Any

import pytest
from checkpoint_samples import config_of, params_problems_of, tiny_params
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.checkpoint.params import params_from_config
from mta_viz.errors import ConfigError

LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
LLAMA3 |= {"original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sliding_window": 128}, "model.sliding_window is 128; expected null"),
        ({"attn_impl": "x"}, 'model.attn_impl ("x") is not a field'),
        ({"mta": {"kernel_shift": 1}}, "model.mta.kernel_shift (1) is not a field"),
        ({"dim": "abc"}, 'model.dim is "abc"; expected a whole number'),
        ({"dim": True}, "model.dim is true; expected a whole number"),
        ({"n_layers": 2.0}, "model.n_layers is 2.0; expected a whole number"),
        ({"n_layers": 0}, "model.n_layers is 0; expected a whole number"),
        ({"dim": None}, "model.dim is null; expected a whole number"),
        ({"weight_tying": 1}, "model.weight_tying is 1; expected true or false"),
        ({"rope_theta": float("inf")}, "model.rope_theta is Infinity; expected a number above 0"),
        ({"norm_eps": float("nan")}, "model.norm_eps is NaN; expected a number above 0"),
        ({"n_heads": None}, "model.n_heads is null; expected a whole number (or model.head_dim)"),
        ({"n_heads": 3}, "model.n_heads is 3; expected a divisor of model.dim 8"),
        ({"n_heads": 8}, "model.n_heads is 8; expected a divisor of model.dim 8 with an even quotient"),
        ({"n_kv_heads": 3}, "model.n_kv_heads is 3; expected a divisor of n_heads 4"),
        ({"head_dim": 3}, "model.head_dim is 3; expected an even number"),
        ({"ffn_dim_multiplier": 1e300}, "model.ffn_dim_multiplier is 1e+300"),
        ({"qkv_bias": "yes"}, 'model.qkv_bias is "yes"; expected true or false'),
        (
            {"rope_scaling": {"rope_type": "yarn"}},
            'model.rope_scaling.rope_type is "yarn"; expected "default" or "llama3"',
        ),
        (
            {"rope_scaling": {**LLAMA3, "factor": None}},
            "model.rope_scaling.factor is missing; expected a number",
        ),
        (
            {"rope_scaling": {**LLAMA3, "mscale": 2}},
            "model.rope_scaling.mscale (2) is not a field",
        ),
        (
            {"rope_scaling": {**LLAMA3, "high_freq_factor": 1}},
            "rope_scaling.high_freq_factor is 1.0; expected more than low_freq_factor, 1.0",
        ),
        ({"mta": [1]}, "model.mta is [1]; expected a JSON object"),
        ({"mta": False}, "model.mta is false; expected a JSON object"),
        ({"mta": {"pad_key": "middle"}}, 'model.mta.pad_key is "middle"; expected "both" or "left"'),
        ({"mta": {"use_mta": True, "mta_layers": "a"}}, 'model.mta.mta_layers is "a"; expected a comma list'),
        ({"mta": {"use_mta": True, "mta_layers": ""}}, 'model.mta.mta_layers is ""; expected a comma list'),
        ({"mta": {"use_mta": True, "key_kernel_size": 4}}, "model.mta.key_kernel_size is 4; expected an odd"),
        (
            {"mta": {"use_mta": True, "head_kernel_size": 3}},
            "model.mta.head_kernel_size is 3; expected a div",
        ),
        (
            {"mta": {"use_mta": True, "head_kernel_size": 2, "post_sm_linear_head": True}},
            "model.mta.head_kernel_size is 2 and model.mta.post_sm_linear_head is true",
        ),
    ],
)
def test_a_fault_says_what_came_and_what_was_expected(fields: dict[str, Any], words: str) -> None:
    (problem,) = params_problems_of(tiny_params(**fields))
    assert words in problem


@pytest.mark.parametrize("params", [None, 3, [], "x", {}, {"model": None}, {"model": [1]}])
def test_what_is_no_params_file_says_so(params: object) -> None:
    assert 'no "model" object' in params_problems_of(params)[0]


def test_all_faults_are_listed_together() -> None:
    params = tiny_params(n_layers=-1, rope_theta=0, foo=1, mta={"use_mta": "yes", "bar": 2})
    assert len(params_problems_of(params)) == 5


def test_thousands_of_unknown_fields_are_counted_not_listed() -> None:
    problems = params_problems_of(tiny_params(**{f"x{i}": i for i in range(5000)}, mta={"y": 1}))
    assert len(problems) == 22
    assert problems[20] == "and 4,980 more fields of model this program does not know"
    assert "model.mta.y (1)" in problems[21]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


PLACES = [
    *((name,) for name in ("model", "data", "distributed")),
    *(("data", name) for name in ("tokenizer", "seq_len")),
    *(("model", name) for name in params_from_config(config_of(tiny_params()), None, None)["model"]),
    *(
        ("model", "mta", name)
        for name in params_from_config(config_of(tiny_params()), None, None)["model"]["mta"]
    ),
]


@given(st.lists(st.tuples(st.sampled_from(PLACES), JSON | st.integers(-2, 12)), min_size=1, max_size=4))
@settings(max_examples=150)
def test_nothing_but_a_config_error_comes_out_of_broken_params(changes: list[tuple[Any, Any]]) -> None:
    params = tiny_params(mta={"use_mta": True, "key_kernel_size": 3})
    for place, value in changes:
        block: Any = params
        for name in place[:-1]:
            block = block.get(name) if isinstance(block, dict) else None
        if isinstance(block, dict):
            block[place[-1]] = copy.deepcopy(value)
    try:
        config_of(params)
    except ConfigError as error:
        assert error.problems


WRONG = """
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError
sizes = dict(d_model=8, n_layers=2, n_heads=4, n_kv_heads=4, d_head=2, d_mlp=8, vocab_size=8)
for change in (
    {"mta": MTAOptions(mta_layers=(-1,))},
    {"mta": MTAOptions(mta_layers=(0.5,))},
    {"mta": MTAOptions(mta_layers=("1",))},
    {"n_heads": "4", "mta": MTAOptions(head_post_group=2)},
    {"n_heads": 4.0, "mta": MTAOptions(head_post_group=2)},
    {"mta": MTAOptions(head_post_group="2")},
    {"mta": MTAOptions(pre_kernel=(1, "3"))},
    {"mta": MTAOptions(pre_kernel=(1,))},
):
    try:
        ModelConfig(**{**sizes, **change})
    except ConfigError as error:
        print(len(error.problems))
"""


def test_values_of_wrong_types_are_configuration_errors() -> None:
    # A program of its own: the tests' type checks would refuse these values before the code sees them.
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["1", "1", "1", "2", "2", "1", "1", "1"], "")

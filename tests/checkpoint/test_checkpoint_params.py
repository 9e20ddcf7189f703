"""params.json <-> ModelConfig: defaults, what switches what off, and every fault named at once."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import configs, tiny_params
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.checkpoint.params import config_from_params, params_from_config
from mta_viz.checkpoint.types import parameter_count, parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError


def config_of(params: object, vocab_size: int | None = None) -> ModelConfig:
    return config_from_params(params, vocab_size=vocab_size)[0]


def problems_of(params: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config_of(params)
    return caught.value.problems


def mta_of(**mta: Any) -> MTAOptions:
    return config_of(tiny_params(mta={"use_mta": True, **mta})).mta


def test_absent_fields_take_linguas_defaults() -> None:
    assert config_of({"model": {"n_heads": 8}}, vocab_size=258) == ModelConfig(
        d_model=512,
        n_layers=8,
        n_heads=8,
        n_kv_heads=8,
        d_head=64,
        d_mlp=1536,  # int(8 * 512 / 3) = 1365, rounded up to a multiple of 256
        vocab_size=258,
        n_ctx=1024,
        norm_eps=1e-5,
        rope_theta=10000.0,
        tied=False,
        mta=MTAOptions(),
    )


@pytest.mark.parametrize("mta", [None, {}, {"use_mta": False}])
def test_without_use_mta_it_is_the_baseline(mta: object) -> None:
    config = config_of(tiny_params(mta=mta))
    assert config.variant == "transformer"
    assert config.mta == MTAOptions()


def test_use_mta_false_drops_kernels_and_mixing_but_keeps_norm_gate_and_scale() -> None:
    mta = config_of(
        tiny_params(
            mta={
                "use_mta": False,
                "query_kernel_size": 6,
                "key_kernel_size": 10,  # even: no fault, there is no kernel
                "after_sm_query_kernel_size": 6,
                "after_sm_key_kernel_size": 11,
                "head_kernel_size": 3,  # does not divide 4: no fault either
                "pre_sm_linear_head": True,
                "post_sm_linear_head": True,
                "group_norm": True,
                "add_gating": True,
                "gate_1d": False,
                "curse_norm": True,
            }
        )
    ).mta
    assert mta == MTAOptions(group_norm=True, gate="dd", scale_block_norms=True)


def test_use_mta_alone_makes_a_kernel_of_one_tap() -> None:
    assert mta_of().pre_kernel == (1, 1)
    assert mta_of().post_kernel is None


@pytest.mark.parametrize("name", ["query_kernel_size", "key_kernel_size"])
def test_either_size_null_switches_the_convolution_off(name: str) -> None:
    assert mta_of(**{name: None}).pre_kernel is None
    sizes = {"after_sm_query_kernel_size": 2, "after_sm_key_kernel_size": 3}
    assert mta_of(**sizes).post_kernel == (2, 3)
    assert mta_of(**{**sizes, "after_sm_" + name: None}).post_kernel is None


def test_listed_layers_may_have_spaces_and_those_outside_are_noted() -> None:
    assert mta_of(mta_layers=" 0, 1 ").mta_layers == (0, 1)
    config, notes = config_from_params(
        tiny_params(mta={"use_mta": True, "mta_layers": "1,2,-1,1"}), vocab_size=None
    )
    assert config.mta.mta_layers == (1,)
    assert notes == ("model.mta.mta_layers names -1, 2; the model has layers 0 to 1: ignored",)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"n_heads": 4}, (4, 4, 2)),
        ({"n_heads": None, "head_dim": 2}, (4, 4, 2)),
        ({"n_heads": 4, "head_dim": 6}, (4, 4, 6)),
        ({"n_heads": 4, "n_kv_heads": 2}, (4, 2, 2)),
    ],
)
def test_heads_from_count_or_width(fields: dict[str, Any], expected: tuple[int, int, int]) -> None:
    config = config_of(tiny_params(**fields))
    assert (config.n_heads, config.n_kv_heads, config.d_head) == expected


@pytest.mark.parametrize(
    ("dim", "factor", "multiple_of", "width"),
    [
        (64, 1.0, 16, 176),  # int(170.67) = 170 -> 176
        (64, None, 256, 256),
        (64, 2.0, 1, 340),  # 2 * 170, cut before the factor; not int(2 * 170.67) = 341
        (1536, None, 256, 4096),
        (100, 0.5, 7, 133),  # int(266.67) = 266 -> 133 = 19 * 7
    ],
)
def test_feed_forward_width(dim: int, factor: float | None, multiple_of: int, width: int) -> None:
    params = tiny_params(dim=dim, n_heads=2, ffn_dim_multiplier=factor, multiple_of=multiple_of)
    assert config_of(params).d_mlp == width


def test_vocabulary_of_minus_one_is_the_tokenizers() -> None:
    assert config_of(tiny_params(vocab_size=-1), vocab_size=77).vocab_size == 77
    assert config_of(tiny_params(vocab_size=50), vocab_size=77).vocab_size == 50
    (problem,) = problems_of(tiny_params(vocab_size=-1))
    assert "model.vocab_size is -1" in problem


def test_training_only_fields_are_ignored_by_name() -> None:
    fields = {"init_base_std": 0.1, "init_std_factor": "disabled", "dropout": 0.5, "seed": 1}
    params = tiny_params(**fields, cache_attention_maps=True, mta={"init_method": "identity"})
    assert config_of({**params, "optim": {"lr": 1}, "unknown": 3}) == config_of(tiny_params())


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
        ({"n_kv_heads": 3}, "model.n_kv_heads is 3; expected a divisor of n_heads 4"),
        ({"head_dim": 3}, "model.head_dim is 3; expected an even number"),
        ({"ffn_dim_multiplier": 1e300}, "model.ffn_dim_multiplier is 1e+300"),
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
    (problem,) = problems_of(tiny_params(**fields))
    assert words in problem


@pytest.mark.parametrize("params", [None, 3, [], "x", {}, {"model": None}, {"model": [1]}])
def test_what_is_no_params_file_says_so(params: object) -> None:
    assert 'no "model" object' in problems_of(params)[0]


def test_all_faults_are_listed_together() -> None:
    params = tiny_params(n_layers=-1, rope_theta=0, foo=1, mta={"use_mta": "yes", "bar": 2})
    assert len(problems_of(params)) == 5


def test_thousands_of_unknown_fields_are_counted_not_listed() -> None:
    problems = problems_of(tiny_params(**{f"x{i}": i for i in range(5000)}, mta={"y": 1}))
    assert len(problems) == 22
    assert problems[20] == "and 4,980 more fields of model this program does not know"
    assert "model.mta.y (1)" in problems[21]


def test_the_shorter_name_of_the_trained_length() -> None:
    assert config_of({"model": {"n_heads": 8, "vocab_size": 9}, "data": {"seq_len": 77}}).n_ctx == 77
    _, notes = config_from_params(tiny_params(max_seqlen=64), vocab_size=None)
    assert "data.seq_len 16" in notes[0]


# The run-time type checks draw random numbers of their own, which hypothesis notices.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(configs())
@settings(max_examples=40, deadline=None)
def test_written_params_read_back_as_the_same_model(config: ModelConfig) -> None:
    params = json.loads(json.dumps(params_from_config(config, "char", None)))
    back = config_of(params)
    assert parameter_shapes(back) == parameter_shapes(config)
    assert back.variant == config.variant
    same = {"d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "n_ctx", "norm_eps", "rope_theta", "tied"}
    assert {name: getattr(back, name) for name in same} == {name: getattr(config, name) for name in same}
    for name in ("group_norm", "depth_scale", "gate", "scale_block_norms", "pad_key"):
        assert getattr(back.mta, name) == getattr(config.mta, name)


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
@settings(max_examples=150, deadline=None)
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


def published(**mta: Any) -> dict[str, Any]:
    sizes = {"dim": 1536, "n_layers": 24, "n_heads": 16, "vocab_size": 128_256, "weight_tying": True}
    return {"model": {**sizes, "mta": mta}}


MIXING = {"use_mta": True, "pre_sm_linear_head": True, "head_kernel_size": 16}
KERNELS = {
    "query_kernel_size": 6,
    "key_kernel_size": 11,
    "after_sm_query_kernel_size": 6,
    "after_sm_key_kernel_size": 11,
    "mta_layers": "2,6,10,14,18,22",
}


@pytest.mark.parametrize(
    ("params", "count"),
    [
        (published(), 876_553_728),
        (published(**MIXING, query_kernel_size=None), 876_566_016),
        (published(**MIXING, **KERNELS, group_norm=True, add_gating=True), 876_583_320),
    ],
    ids=["transformer", "talking heads", "mta"],
)
def test_parameter_counts_of_the_paper(params: dict[str, Any], count: int) -> None:
    assert parameter_count(config_of(params)) == count


@pytest.mark.golden
def test_params_of_a_reference_run(golden: Path) -> None:
    config = config_of(json.loads((golden / "mta_full" / "params.json").read_text()))
    assert config == ModelConfig(
        d_model=64,
        n_layers=4,
        n_heads=4,
        n_kv_heads=4,
        d_head=16,
        d_mlp=176,
        vocab_size=258,
        n_ctx=64,
        rope_theta=100000.0,
        tied=True,
        mta=MTAOptions(
            pre_kernel=(6, 11),
            post_kernel=(6, 11),
            mta_layers=(1, 3),
            head_pre=True,
            head_post_group=4,
            group_norm=True,
            gate="1d",
        ),
    )


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

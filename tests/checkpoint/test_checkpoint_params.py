"""params.json <-> ModelConfig: defaults, what switches what off, and back again."""

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import config_of, configs, params_problems_of, parsed, tiny_config, tiny_params
from hypothesis import given, settings

from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.types import parameter_count, parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions, RopeScaling


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
    found = parsed(tiny_params(mta={"use_mta": True, "mta_layers": "1,2,-1,1"}))
    assert found.config.mta.mta_layers == (1,)
    assert found.notes == ("model.mta.mta_layers names -1, 2; the model has layers 0 to 1: ignored",)


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
    (problem,) = params_problems_of(tiny_params(vocab_size=-1))
    assert "model.vocab_size is -1" in problem


def test_training_only_fields_are_ignored_by_name() -> None:
    fields = {"init_base_std": 0.1, "init_std_factor": "disabled", "dropout": 0.5, "seed": 1}
    params = tiny_params(**fields, cache_attention_maps=True, mta={"init_method": "identity"})
    assert config_of({**params, "optim": {"lr": 1}, "unknown": 3}) == config_of(tiny_params())


def test_the_shorter_name_of_the_trained_length() -> None:
    assert config_of({"model": {"n_heads": 8, "vocab_size": 9}, "data": {"seq_len": 77}}).n_ctx == 77
    assert "data.seq_len 16" in parsed(tiny_params(max_seqlen=64)).notes[0]


# The run-time type checks draw random numbers of their own, which hypothesis notices.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@given(configs())
@settings(max_examples=40)
def test_written_params_read_back_as_the_same_model(config: ModelConfig) -> None:
    params = json.loads(json.dumps(params_from_config(config, "char", None)))
    back = config_of(params)
    assert parameter_shapes(back) == parameter_shapes(config)
    assert back.variant == config.variant
    same = {"d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "n_ctx", "norm_eps", "rope_theta", "tied"}
    same |= {"rope_scaling", "qkv_bias", "out_bias", "mlp_bias"}
    assert {name: getattr(back, name) for name in same} == {name: getattr(config, name) for name in same}
    for name in ("group_norm", "depth_scale", "gate", "scale_block_norms", "pad_key"):
        assert getattr(back.mta, name) == getattr(config.mta, name)


def test_fields_that_lingua_has_not_are_written_only_where_they_say_something() -> None:
    added = {"rope_scaling", "qkv_bias", "out_bias", "mlp_bias"}
    assert not added & set(params_from_config(tiny_config(), "char", None)["model"])
    config = tiny_config(rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192), qkv_bias=True)
    model = params_from_config(config, "char", None)["model"]
    assert added & set(model) == {"rope_scaling", "qkv_bias"}
    assert model["rope_scaling"]["original_max_position_embeddings"] == 8192


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

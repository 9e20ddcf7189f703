"""Interventions as values: words, JSON there and back, and what a model does not have."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES

from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError
from mta_viz.model.interventions import (
    HOOKS,
    AblateHead,
    BypassGate,
    BypassGroupNorm,
    Intervention,
    KernelFrom,
    KernelToIdentity,
    KernelToZero,
    MirrorKernel,
    MixingToIdentity,
    PatchHead,
    ReplaceKernel,
    ScaleTowardsIdentity,
)
from mta_viz.model.plans import (
    KINDS,
    Listed,
    active,
    check_plan,
    every_kernel,
    from_address,
    plan_as_data,
    plan_from_data,
    plan_from_text,
    to_address,
)

# Layer 0 mixes heads before the softmax only, layer 1 has kernels before it as well.
CONFIG = ModelConfig(
    d_model=8, n_layers=2, n_heads=2, n_kv_heads=2, d_head=4, d_mlp=8, vocab_size=5,
    mta=MTAOptions(pre_kernel=(2, 3), mta_layers=(1,), head_pre=True),
)  # fmt: skip

index, finite = st.integers(0, 99), st.floats(allow_nan=False, allow_infinity=False, width=32)
kernel = (index, index, st.sampled_from(("pre", "post")))
table = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[finite] * width), min_size=1, max_size=3).map(tuple)
)


def made(kind: type[Intervention], *arguments: st.SearchStrategy) -> st.SearchStrategy:
    """The kind with its arguments; the test puts them together."""
    return st.tuples(st.just(kind), st.tuples(*arguments))


prompt = st.text(min_size=1, max_size=8) | st.lists(index, min_size=1, max_size=4).map(tuple)
interventions = st.one_of(
    made(KernelToIdentity, *kernel),
    made(KernelToZero, *kernel),
    made(ReplaceKernel, *kernel, table),
    made(KernelFrom, *kernel, index),
    made(MirrorKernel, *kernel),
    made(ScaleTowardsIdentity, *kernel, st.floats(0, 1)),
    made(PatchHead, index, index, st.sampled_from(list(HOOKS)), prompt),
    made(MixingToIdentity, index, st.sampled_from(("head_pre", "head_post")), st.none() | index),
    made(AblateHead, index, index),
    made(BypassGroupNorm, index),
    made(BypassGate, index),
)


@EXAMPLES
@given(st.lists(interventions, max_size=5))
def test_a_plan_survives_its_text_and_can_key_a_cache(parts: list[tuple]):
    plan = tuple(kind(*arguments) for kind, arguments in parts)
    again = plan_from_text(json.dumps(plan_as_data(plan), allow_nan=False))
    assert again == plan and hash(again) == hash(plan)
    assert {type(one) for one in plan} <= set(KINDS.values())


@EXAMPLES
@given(st.lists(st.tuples(interventions, st.booleans()), max_size=4))
def test_a_list_survives_its_address_with_what_is_switched_off(parts: list[tuple]):
    listed = tuple(Listed(kind(*arguments), on) for (kind, arguments), on in parts)
    text = to_address(listed)
    assert from_address(text) == listed
    assert all(c.isascii() and (c.isalnum() or c in "-._~") for c in text)
    assert active(listed) == tuple(one.intervention for one in listed if one.on)


def test_an_address_is_short():
    listed = (
        Listed(KernelToIdentity(2, 1, "pre")),
        Listed(ScaleTowardsIdentity(3, 0, "post", 0.5), on=False),
        Listed(MixingToIdentity(0, "head_pre")),
        Listed(PatchHead(1, 2, "z", (5, 6))),
    )
    assert to_address(listed) == "i.2.1.pre~S.3.0.post.0.5~x.0.head_pre~p.1.2.z.i5-6"
    taps = tuple(tuple(0.1 * column for column in range(11)) for _ in range(6))
    assert len(to_address((Listed(ReplaceKernel(1, 0, "pre", taps)),))) < 400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q.1", "is no intervention"),
        ("i.1", "'head' is missing"),
        ("i.1.x.pre", "no whole number"),
        ("i.1.2.pre.3", "expected 'pre' or 'post'"),
        ("s.1.2.pre.nan", "strength is nan"),
        ("t.1.2.pre.3.AA", "is no intervention"),
        ("t.1.2.pre.0.", "is no intervention"),
        ("p.1.2.z.t_w", "is no intervention"),
        ("h.1.2~h.9", "'h.9' is no intervention"),
        ("h.1.2~" * 1000, "at most 1,500"),
    ],
)
def test_an_address_that_is_no_plan_is_refused(text: str, words: str):
    with pytest.raises(ConfigError) as raised:
        from_address(text)
    assert words in str(raised.value)


def test_the_data_names_the_kind_and_what_is_set():
    plan = (MixingToIdentity(0, "head_pre"), AblateHead(1, 2))
    assert plan_as_data(plan) == [
        {"kind": "mixing_to_identity", "layer": 0, "where": "head_pre"},
        {"kind": "ablate_head", "layer": 1, "head": 2},
    ]


@pytest.mark.parametrize(
    ("intervention", "words"),
    [
        (KernelToIdentity(2, 1, "pre"), "L2 H1 pre -> identity"),
        (KernelToZero(0, 3, "post"), "L0 H3 post -> zero"),
        (ReplaceKernel(1, 0, "pre", ((0.0, 1.0, 0.5),)), "L1 H0 pre -> given 1 x 3 taps"),
        (KernelFrom(1, 0, "pre", 5), "L1 H0 pre -> kernel of H5"),
        (MirrorKernel(1, 0, "pre"), "L1 H0 pre -> mirrored"),
        (PatchHead(1, 0, "z", (1, 2)), "L1 H0 z -> as in a run of 2 token ids"),
        (PatchHead(1, 0, "kq", "a" * 24), f"L1 H0 kq -> as in “{'a' * 24}”"),
        (PatchHead(1, 0, "kq", "b" + "a" * 24), f"L1 H0 kq -> as in “…{'a' * 23}”"),
        (ScaleTowardsIdentity(1, 0, "pre", 0.25), "L1 H0 pre -> 25% towards identity"),
        (MixingToIdentity(3, "head_pre"), "L3 head_pre -> identity"),
        (MixingToIdentity(3, "head_post", 7), "L3 H7 head_post -> identity"),
        (AblateHead(4, 2), "L4 H2 -> off"),
        (BypassGroupNorm(0), "L0 -> no group norm"),
        (BypassGate(0), "L0 -> gate open"),
    ],
)
def test_each_says_itself_in_words(intervention: Intervention, words: str):
    assert intervention.text() == words


def test_words_may_count_from_one():
    assert KernelFrom(1, 0, "pre", 5).text(1) == "L2 H1 pre -> kernel of H6"


def test_a_plan_is_refused_with_everything_the_model_lacks():
    plan = (
        KernelToIdentity(0, 0, "pre"),
        KernelToZero(1, 2, "post"),
        AblateHead(2, 0),
        KernelFrom(1, 0, "pre", 9),
        ReplaceKernel(1, 0, "pre", ((1.0, 0.0),)),
        MixingToIdentity(1, "head_post"),
        BypassGroupNorm(0),
        BypassGate(1),
        KernelToIdentity(1, 1, "pre"),  # this one is all right
    )
    with pytest.raises(ConfigError) as raised:
        check_plan(plan, CONFIG)
    assert raised.value.problems == (
        "L0 H0 pre -> identity: layer 0 has no pre kernel; layers with one: 1",
        "L1 H2 post -> zero: head 2 does not exist; the model has 2, counted from 0",
        "L1 H2 post -> zero: layer 1 has no post kernel; no layer has one",
        "L2 H0 -> off: layer 2 does not exist; the model has 2, counted from 0",
        "L1 H0 pre -> kernel of H9: head 9 does not exist; the model has 2, counted from 0",
        "L1 H0 pre -> given 1 x 2 taps: 1 x 2 taps are given; layer 1's pre kernels are 2 x 3",
        "L1 head_post -> identity: layer 1 has no head_post mixing; no layer has one",
        "L0 -> no group norm: the model has no group norm to bypass",
        "L1 -> gate open: the model has no gate to bypass",
    )


def test_a_kernel_that_reaches_further_back_than_ahead_is_not_mirrored():
    with pytest.raises(ConfigError, match="2 keys back and 0 ahead; mirrored they do not fit"):
        check_plan([MirrorKernel(1, 0, "pre")], replace(CONFIG, mta=replace(CONFIG.mta, pad_key="left")))
    with pytest.raises(ConfigError, match="layer 0 has no pre kernel"):
        check_plan([MirrorKernel(0, 0, "pre")], CONFIG)
    check_plan([MirrorKernel(1, 0, "pre")], CONFIG)


def test_a_stage_the_layer_lacks_is_not_patched():
    with pytest.raises(ConfigError, match="layer 0 does not compute the stage 'kq'"):
        check_plan(
            [PatchHead(0, 0, "kq", "a"), PatchHead(1, 0, "kq", "a"), PatchHead(0, 0, "z", "a")], CONFIG
        )


KERNEL = {"layer": 0, "head": 0, "where": "pre"}
PATCH = {"kind": "patch_head", "layer": 0, "head": 0, "stage": "z", "prompt": "a"}


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"kind": "kernel_to_identity"} | KERNEL | {"layer": -1}, "layer is -1"),
        ({"kind": "kernel_to_identity"} | KERNEL | {"head": True}, "head is True"),
        ({"kind": "kernel_to_identity"} | KERNEL | {"head": None}, "head is None"),
        ({"kind": "kernel_to_identity"} | KERNEL | {"where": "head_pre"}, "expected 'pre' or 'post'"),
        ({"kind": "kernel_to_identity"} | KERNEL | {"where": ["pre"]}, "expected 'pre' or 'post'"),
        ({"kind": "mixing_to_identity"} | KERNEL, "expected 'head_pre' or 'head_post'"),
        ({"kind": "kernel_from"} | KERNEL | {"source": "1"}, "source is '1'"),
        ({"kind": "scale_towards_identity"} | KERNEL | {"strength": 1.01}, "strength is 1.01"),
        ({"kind": "scale_towards_identity"} | KERNEL | {"strength": float("nan")}, "strength is nan"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": [[1.0], [1.0, 2.0]]}, "no table"),
        (PATCH | {"stage": "hook_z"}, "stage is 'hook_z'"),
        (PATCH | {"stage": ["z"]}, "stage is"),
        (PATCH | {"prompt": ""}, "prompt is neither"),
        (PATCH | {"prompt": [1, -2]}, "prompt is neither"),
        (PATCH | {"prompt": None}, "prompt is neither"),
        (PATCH | {"prompt": "a\ud800"}, "prompt holds halves of characters"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": []}, "no table"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": [[]]}, "no table"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": [[float("inf")]]}, "finite"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": [[float("nan")]]}, "finite"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": [[3.5e38]]}, "finite"),
        ({"kind": "replace_kernel"} | KERNEL | {"taps": [[10**400]]}, "a valid number"),
        ({"kind": "scale_towards_identity"} | KERNEL | {"strength": 10**400}, "expected a valid number"),
    ],
)
def test_what_fits_no_model_is_refused_at_once(entry: dict, word: str):
    with pytest.raises(ConfigError, match=word.replace("[", ".")):
        plan_from_data([entry])


def test_values_out_of_range_are_refused_without_json_too():
    with pytest.raises(ConfigError, match="2 problems"):
        ScaleTowardsIdentity(-1, 0, "pre", 2.0)


def test_foreign_data_is_refused_with_the_number_of_each_fault():
    good = {"kind": "ablate_head", "layer": 0, "head": 0}
    data = [good, {"kind": "explode"}, 7, good | {"where": "pre"}, {"kind": "ablate_head", "layer": "x"}]
    with pytest.raises(ConfigError) as raised:
        plan_from_data(data)
    assert [problem.split(":")[0] for problem in raised.value.problems] == [
        "number 2", "number 3", "number 4", "number 5", "number 5",
    ]  # fmt: skip
    for words in ("unknown field 'where'", "layer is 'x'", "'head' is missing"):
        assert words in str(raised.value)


def test_a_plan_that_no_model_needs_is_refused_before_it_is_read():
    with pytest.raises(ConfigError, match="it has 400,000 interventions; at most 10,000 are read"):
        plan_from_data([{}] * 400_000)


@pytest.mark.parametrize("text", ["", "{", json.dumps({"kind": "ablate_head"}), "[" * 100_000])
def test_text_that_is_no_plan_is_refused(text: str):
    with pytest.raises(ConfigError):
        plan_from_text(text)


@pytest.mark.parametrize("taps", [5, [5], "ab", [["a"]], None])
def test_taps_that_are_no_table_are_refused(taps: object):
    entry = {"kind": "replace_kernel", "layer": 0, "head": 0, "where": "pre", "taps": taps}
    with pytest.raises(ConfigError, match="taps"):
        plan_from_data([entry])


def test_every_kernel_names_each_kernel_and_matrix_once():
    assert every_kernel(CONFIG) == (
        MixingToIdentity(0, "head_pre"),
        KernelToIdentity(1, 0, "pre"),
        KernelToIdentity(1, 1, "pre"),
        MixingToIdentity(1, "head_pre"),
    )
    after = replace(CONFIG, n_layers=1, mta=MTAOptions(post_kernel=(2, 3), head_post_group=2))
    kernels = KernelToIdentity(0, 0, "post"), KernelToIdentity(0, 1, "post")
    assert every_kernel(after) == (*kernels, MixingToIdentity(0, "head_post"))

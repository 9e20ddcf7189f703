"""MTA inserted into a plain model: the identity, and what one changed tap does by the float64 reference."""

import json
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from model_cases import Case, random_case
from safetensors.numpy import load_file

import mta_viz
from mta_viz.config import kernel_problems
from mta_viz.errors import ConfigError
from mta_viz.model.editing import OPEN_GATE, edited, insert_mta
from mta_viz.model.interventions import AblateHead
from mta_viz.run.scoring import logit_change

NEEDLE = Path(__file__).parents[2] / "assets" / "needle-transformer"
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
PLAIN = {"dim": 16, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": 13}
IDENTITIES = {
    "before the softmax": {},
    "after it": {"kernel": None, "post": (6, 11)},
    "both": {"post": (3, 5)},
    "keys back": {"kernel": (3, 4), "pad_key": "left"},
    "keys ahead": {"kernel": (3, 4), "pad_key": "right"},
    "mixing before": {"kernel": None, "head_pre": True},
    "mixing after": {"kernel": None, "head_post": 4},
    "mixing in pairs": {"kernel": None, "head_post": 2},
    "everything": {"post": (6, 11), "head_pre": True, "head_post": 4},
}


@pytest.fixture(scope="module")
def case() -> Case:
    return random_case(PLAIN)


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(torch.tensor([ids]))[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", IDENTITIES)
def test_logits_are_the_same_bit_for_bit_on_the_cpu(case, name, dtype):
    plain, arguments = case.build(dtype), IDENTITIES[name]
    inserted = insert_mta(plain, [0, 2] if "mixing" not in name else [], **arguments)
    assert inserted.config.variant in ("mta", "talking_heads")
    assert torch.equal(logits(plain), logits(inserted))
    assert logit_change(plain, inserted).largest == 0


def test_the_new_model_shares_every_tensor_and_leaves_the_plain_one_alone(case):
    plain = case.build()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    inserted = insert_mta(plain, (2, 0, 2), head_pre=True)
    own = inserted.state_dict()
    assert all(own[name].data_ptr() == tensor.data_ptr() for name, tensor in plain.state_dict().items())
    assert all(torch.equal(before[name], tensor) for name, tensor in plain.state_dict().items())
    assert inserted.config.mta.mta_layers == (0, 2)
    added = [name for name in own if name not in before]
    assert added == [
        "blocks.0.attn.kernel_pre", "blocks.0.attn.head_pre", "blocks.1.attn.head_pre",
        "blocks.2.attn.kernel_pre", "blocks.2.attn.head_pre",
    ]  # fmt: skip
    assert inserted.source is None  # no file holds it


@pytest.mark.parametrize("query, key", [(5, 5), (0, 10), (4, 7)])
def test_one_changed_tap_gives_what_the_reference_gives(case, query, key):
    inserted = insert_mta(case.build(), [1])
    kernel = np.zeros((4, 1, 6, 11), np.float32)
    kernel[:, 0, 5, 5] = 1
    kernel[2, 0, query, key] += 0.7
    inserted.blocks[1].attn.kernel_pre[2, query, key] += 0.7
    mta = {"use_mta": True, "query_kernel_size": 6, "key_kernel_size": 11, "mta_layers": "1"}
    state = {**case.state, "layers.1.attention.mta_kernel": kernel}
    wanted = reference.forward({**PLAIN, "mta": mta}, state, np.array(IDS))["logits"]
    np.testing.assert_allclose(logits(inserted), wanted, atol=1e-5)
    assert not np.allclose(wanted, case.reference(IDS)["logits"], atol=1e-3)


def test_and_in_the_shipped_plain_twin():
    """It has a group norm and a gate of its own, which stay."""
    inserted = insert_mta(mta_viz.load(NEEDLE), [1, 3], post=(2, 3))
    inserted.blocks[3].attn.kernel_post[5, 0, 2] = -0.4
    block = json.loads((NEEDLE / "params.json").read_text())["model"]
    sizes = {"query_kernel_size": 6, "key_kernel_size": 11}
    sizes |= {"after_sm_query_kernel_size": 2, "after_sm_key_kernel_size": 3}
    block["mta"] |= {"use_mta": True, "mta_layers": "1,3", **sizes}
    state = load_file(NEEDLE / "model.safetensors")
    for layer in (1, 3):
        state[f"layers.{layer}.attention.mta_kernel"] = identity(6, 11)
        state[f"layers.{layer}.attention.mta_kernel_after_sm"] = identity(2, 3)
    state["layers.3.attention.mta_kernel_after_sm"][5, 0, 0, 2] = -0.4
    wanted = reference.forward(block, state, np.array(IDS))["logits"]
    np.testing.assert_allclose(logits(inserted), wanted, atol=2e-4)  # of logits up to 20


def identity(c_q: int, c_k: int) -> np.ndarray:
    kernel = np.zeros((8, 1, c_q, c_k), np.float32)
    kernel[:, 0, -1, c_k // 2] = 1
    return kernel


@pytest.mark.parametrize("gate", ["1d", "dd"])
def test_a_gate_begins_just_below_one_where_it_can_still_learn(case, gate):
    plain = case.build()
    inserted = insert_mta(plain, [], kernel=None, gate=gate).requires_grad_(True)
    _, cache = inserted.run_with_cache(torch.tensor([IDS]))
    assert torch.allclose(cache["blocks.0.attn.hook_gate"], torch.tensor(0.99753), atol=1e-5)
    inserted(torch.tensor([IDS])).square().mean().backward()
    assert (inserted.blocks[0].attn.gate.bias.grad != 0).all()
    assert torch.sigmoid(torch.tensor(17.0)) == 1  # what OPEN_GATE must not reach
    assert 0 < OPEN_GATE < 17
    change = logit_change(plain, inserted.requires_grad_(False))
    assert 0 < change.largest < 0.05 * change.scale and "gate" in change.why


def test_a_group_norm_is_no_identity_and_that_is_said(case):
    plain = case.build()
    change = logit_change(plain, insert_mta(plain, [], kernel=None, group_norm=True))
    assert change.largest > 0.05 * change.scale and "group norm" in change.why


def test_kernels_can_learn_from_the_identity(case):
    inserted = insert_mta(case.build(), [1])
    kernel = inserted.blocks[1].attn.kernel_pre.requires_grad_(True)
    inserted(torch.tensor([IDS])).square().mean().backward()
    assert (kernel.grad != 0).sum() > kernel.numel() / 2


@pytest.mark.parametrize(
    "layers, arguments, words",
    [
        ([3], {}, ["no layer 3", "layers 0 to 2"]),
        ([-1, True], {}, ["no layers -1, True"]),
        ([], {}, ["no layer is named"]),
        ([0], {"kernel": (6, 10)}, ["even key size 10"]),
        ([0], {"kernel": (0, 3)}, ["two whole numbers of at least 1"]),
        ([0], {"kernel": (600, 601)}, ["600 x 601; expected at most 63 queries"]),
        ([0], {"post": (1, 10**30 + 1)}, ["expected at most 63 queries and 63 keys"]),
        ([0], {"kernel": None}, ["nothing to insert"]),
        ([0], {"head_post": 3}, ["group size 3 does not divide n_heads 4"]),
        ([7], {"kernel": (6, 10), "post": (2, 4)}, ["no layer 7", "size 10", "size 4"]),
    ],
)
def test_everything_that_cannot_be_is_told_at_once(case, layers, arguments, words):
    with pytest.raises(ConfigError, match="What to insert cannot be used") as caught:
        insert_mta(case.build(), layers, **arguments)
    assert all(word in str(caught.value) for word in words)


def test_only_a_plain_model_as_it_was_read_is_taken(case):
    inserted = insert_mta(case.build(), [1], head_pre=True)
    with pytest.raises(
        ConfigError, match="kernels before the softmax, head mixing before the softmax already"
    ):
        insert_mta(inserted, [0])
    with pytest.raises(ConfigError, match="has interventions"):
        insert_mta(edited(case.build(), [AblateHead(0, 1)]), [0])
    with pytest.raises(ConfigError, match=r"a group norm already(.|\n)*a gate already"):
        insert_mta(mta_viz.load(NEEDLE), [0], group_norm=True, gate="1d")


@pytest.mark.parametrize("size", [3, [6, 11], "6x11", (6,)])
def test_a_size_that_is_no_pair_is_told(size: object) -> None:
    """In a notebook nothing checks types before."""
    (problem,) = kernel_problems("kernel", size, "both")  # type: ignore[arg-type]
    assert problem == f"kernel is {size}; expected two whole numbers of at least 1, such as (6, 11)"

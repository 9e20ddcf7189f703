"""The float64 reference must itself be right: it equals the published implementation's outputs."""

import json
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from safetensors.numpy import load_file

FIXTURES = ("mta_full", "mta_headgroups2", "mta_toy", "talking_heads", "baseline")
STAGES = {
    "scores_raw": "attn.hook_attn_scores",
    "scores_after_kq": "attn.hook_scores_kq",
    "scores_after_head": "attn.hook_scores_mixed",
    "probs": "attn.hook_softmax",
    "probs_after_kq": "attn.hook_softmax_kq",
    "probs_final": "attn.hook_pattern",
    "attn_out_prenorm": "attn.hook_z",
    "attn_out_normed": "attn.hook_z_normed",
    "gate": "attn.hook_gate",
    "attn_out_gated": "attn.hook_z_gated",
    "resid_post": "hook_resid_post",
}
pytestmark = pytest.mark.golden


def _read(folder: Path) -> tuple[dict, dict[str, np.ndarray]]:
    state = torch.load(folder / "consolidated.pth", weights_only=True)["model"]
    params = json.loads((folder / "params.json").read_text())
    return params["model"], {name: tensor.numpy() for name, tensor in state.items()}


def _visible(values: np.ndarray, name: str) -> np.ndarray:
    """T x T stages with the cells key > query set to 0; anything else as it is."""
    square = name.startswith(("scores", "probs"))
    return np.where(reference.causal(values.shape[-1]), values, 0.0) if square else values


@pytest.mark.parametrize("fixture", FIXTURES)
def test_every_golden_tensor_is_reproduced(golden: Path, fixture: str) -> None:
    model, state = _read(golden / fixture)
    expected = load_file(golden / fixture / "golden.safetensors")
    compared = 0
    for row, ids in enumerate(expected["tokens"]):
        out = reference.forward(model, state, ids)
        np.testing.assert_allclose(out["logits"], expected["logits"][row], atol=1e-4, rtol=0)
        for name in expected:
            if name.startswith("layers."):
                _, layer, stage = name.split(".")
                got = _visible(out[f"blocks.{layer}.{STAGES[stage]}"], stage)
                np.testing.assert_allclose(
                    got, _visible(expected[name][row], stage), atol=1e-4, rtol=0, err_msg=name
                )
                compared += 1
    assert compared == 2 * (len(expected) - 2)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_parameter_names_and_shapes_are_those_of_the_file(golden: Path, fixture: str) -> None:
    model, state = _read(golden / fixture)
    found = {name: value.shape for name, value in state.items() if name != "output.tied_module.weight"}
    assert reference.parameter_shapes(model) == found


def test_the_distributed_fixture_has_the_logits_of_mta_full(golden: Path) -> None:
    model, state = _read(golden / "mta_full")
    expected = load_file(golden / "mta_dcp" / "golden.safetensors")
    out = reference.forward(model, state, expected["tokens"][0])
    np.testing.assert_allclose(out["logits"], expected["logits"][0], atol=1e-4, rtol=0)

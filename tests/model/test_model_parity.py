"""The model against the published implementation's outputs, and against the float64 reference."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import (
    EXAMPLES,
    FIXTURES,
    assert_hooks_close,
    blocks,
    prompts,
    random_case,
    read_case,
    visible,
)
from safetensors.torch import load_file
from test_reference import STAGES

from mta_viz.checkpoint.types import parameter_shapes


@pytest.mark.golden
@pytest.mark.parametrize("fixture", FIXTURES)
def test_golden_stages_and_logits(golden: Path, fixture: str) -> None:
    model = read_case(golden / fixture).build()
    expected = load_file(golden / fixture / "golden.safetensors")
    logits, cache = model.run_with_cache(expected["tokens"])
    torch.testing.assert_close(logits, expected["logits"], atol=1e-4, rtol=0)
    for name in expected:
        if name.startswith("layers."):
            _, layer, stage = name.split(".")
            hook = f"blocks.{layer}.{STAGES[stage]}"
            got, want = visible(cache[hook], hook), visible(expected[name], hook)
            np.testing.assert_allclose(got, want, atol=2e-4, rtol=0, err_msg=name)


@EXAMPLES
@given(blocks(), prompts(), st.integers(0, 2**16))
def test_random_models_equal_the_reference_at_every_hook(block: dict, ids: list[int], seed: int) -> None:
    case = random_case(block, seed)
    model = case.build()
    logits, cache = model.run_with_cache(torch.tensor([ids]))
    want = case.reference(ids)
    assert_hooks_close({name: value[0] for name, value in cache.items()}, want, atol=1e-4)
    np.testing.assert_allclose(
        logits[0], want["logits"], rtol=0, atol=1e-4 * max(1, abs(want["logits"]).max())
    )


@EXAMPLES
@given(blocks())
def test_a_new_model_has_the_parameters_the_configuration_calls_for(block: dict) -> None:
    model = random_case(block).build()
    found = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert found == parameter_shapes(model.config)


@pytest.mark.golden
def test_dropout_in_params_changes_nothing(golden: Path) -> None:
    case = read_case(golden / "mta_toy")
    assert case.block["dropout"] == 0.1
    ids = torch.arange(20)[None]
    runs = [case.build()(ids) for _ in range(3)]
    assert torch.equal(runs[0], runs[1]) and torch.equal(runs[0], runs[2])

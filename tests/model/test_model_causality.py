"""No row reads a later token: exactly 0 change in float32 on the CPU, for every stage and the logits."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import EXAMPLES, FIXTURES, blocks, is_map, prompts, random_case, read_case, visible
from torch import Tensor

from mta_viz.model.attention import Attention
from mta_viz.model.transformer import HookedMTA


def _rows_before(values: np.ndarray, name: str, t: int) -> np.ndarray:
    """Positions 0..t-1: the second axis of [head, query, key], the first of everything else."""
    return values[:, :t] if is_map(name) else values[:t]


def _run(model: HookedMTA, ids: list[int]) -> Mapping[str, Tensor]:
    logits, cache = model.run_with_cache(torch.tensor([ids]))
    return {name: value[0] for name, value in {**cache, "logits": logits}.items()}


def _assert_no_change_before(model: HookedMTA, ids: list[int], t: int, replacement: int) -> None:
    changed = [*ids[:t], replacement, *ids[t + 1 :]]
    before, after = _run(model, ids), _run(model, changed)
    for name in before:
        a, b = (_rows_before(visible(out[name], name), name, t) for out in (before, after))
        assert np.array_equal(a, b), name
    with torch.no_grad():  # the slab-wise forward, which no hook sees
        a, b = model(torch.tensor([ids])), model(torch.tensor([changed]))
    assert torch.equal(a[:, :t], b[:, :t])
    assert not torch.equal(a[:, t], b[:, t])


@pytest.mark.golden
@pytest.mark.parametrize("t", [1, 5, 6, 20, 36])
@pytest.mark.parametrize("fixture", FIXTURES)
def test_golden_models_are_causal(
    golden: Path, fixture: str, t: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 7)
    case = read_case(golden / fixture)
    ids = [(7 * i + 3) % 29 for i in range(37)]
    _assert_no_change_before(case.build(), ids, t, 30)


@EXAMPLES
@given(blocks(), prompts(), st.data())
def test_random_models_are_causal(block: dict, ids: list[int], data: st.DataObject) -> None:
    t = data.draw(st.integers(0, len(ids) - 1))
    _assert_no_change_before(random_case(block, seed=len(ids)).build(), ids, t, (ids[t] + 1) % 13)

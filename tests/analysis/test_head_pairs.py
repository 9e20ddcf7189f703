"""Which heads are compared: a permutation of heads is found, and models are related or not by the rules."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mta_viz.analysis.compare.comparing import compare
from mta_viz.analysis.compare.pairs import (
    Kinship,
    embedding_cosine,
    kinship,
    pairs_by_index,
    pairs_by_needle,
    pairs_by_similarity,
)
from mta_viz.analysis.kernels.mixing import best_match
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from mta_viz.errors import PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import AblateHead
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture, load
from tests.analysis.planted import planted
from tests.tiny_models import config, random_weights

APART = Kinship(False, "the models were trained apart (cosine of embeddings 0.10)", 0.1)
ORDER = [2, 0, 3, 1]  # head h of the permuted model is head ORDER[h] of the original
SHAPES = config(MTAOptions(pre_kernel=(3, 5), post_kernel=(2, 3)), 258)


def model(weights: dict[str, torch.Tensor]) -> HookedMTA:
    made = HookedMTA(SHAPES).requires_grad_(False).eval()
    made.load_state_dict(weights)
    return made


def permuted(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same function with the heads of every layer in another order."""
    changed = dict(weights)
    for name, tensor in weights.items():
        if name.endswith(("wq.weight", "wk.weight", "wv.weight")):
            changed[name] = tensor.unflatten(0, (4, 16))[ORDER].flatten(0, 1)
        elif name.endswith("wo.weight"):
            changed[name] = tensor.unflatten(1, (4, 16))[:, ORDER].flatten(1, 2)
        elif "kernel" in name:
            changed[name] = tensor[ORDER]
    return changed


WEIGHTS = random_weights(SHAPES)
PROMPT = "A short prompt, long enough for maps of heads."


def test_the_order_of_a_models_heads_is_found_again():
    a, b = (capture(model(weights), list(PROMPT.encode())) for weights in (WEIGHTS, permuted(WEIGHTS)))
    torch.testing.assert_close(a.residuals, b.residuals, atol=1e-4, rtol=1e-4)  # the same function
    found = pairs_by_similarity(a, b, len(a.tokens), APART)
    for layer in range(4):
        assert [found.of(layer, head) for head in range(4)] == [
            (layer, ORDER.index(head)) for head in range(4)
        ]
    assert found.r.min() == pytest.approx(1, abs=1e-4) and (found.next_r < found.r).all()
    assert "Heads paired by map similarity on this prompt (median r = 1.00)" in found.why
    assert "equal indices mean nothing" in found.why
    assert found.sure(1, 1).startswith(("clear: r = 1.00, with", "unsure: r = 1.00, with"))


def test_heads_are_not_paired_by_maps_of_a_few_tokens():
    a = capture(model(WEIGHTS), list(PROMPT.encode()))
    with pytest.raises(PromptError, match="7 tokens in common"):
        pairs_by_similarity(a, a, 7, APART)


def test_attention_to_the_first_token_makes_no_heads_alike():
    maps = torch.randn(2, 9, 9, generator=torch.Generator().manual_seed(0))
    maps[..., 0], swapped = torch.tensor([[9.0], [0.0]]), maps.flip(0)
    swapped[..., 0] = maps[..., 0]
    a, b = (planted([{Stage.PATTERN: heads}]) for heads in (maps, swapped))
    found = pairs_by_similarity(a, b, 9, APART)
    assert [found.of(0, 0), found.of(0, 1)] == [(0, 1), (0, 0)] and found.r.min() == pytest.approx(1)


def test_needle_pairs_go_by_rank():
    a, b = np.array([[0.1, 0.9], [0.5, np.nan]]), np.array([[0.3, 0.2, 0.8]])
    found = pairs_by_needle(a, b, APART)
    assert found.of(0, 1) == (0, 2) and found.of(1, 0) == (0, 0) and found.of(0, 0) == (0, 1)
    assert found.of(1, 1) is None and found.sure(1, 1) == ""
    assert "says nothing" in found.sure(0, 1)


def test_pairs_by_index_name_themselves():
    found = pairs_by_index(2, 3, Kinship(True, "both sides are one model"))
    assert found.why == "Heads paired by index: both sides are one model."
    assert found.of(1, 2) == (1, 2) and found.sure(1, 2) == ""


def turned(cosine: float) -> dict[str, torch.Tensor]:
    """The weights with an embedding at that cosine from the original one."""
    own = WEIGHTS["embed.weight"].double()
    other = torch.randn(own.shape, generator=torch.Generator().manual_seed(1)).double()
    other -= own * (own * other).sum() / own.square().sum()
    away = other / other.norm() * own.norm()
    return {**WEIGHTS, "embed.weight": (cosine * own + (1 - cosine**2) ** 0.5 * away).float()}


@pytest.mark.parametrize(("cosine", "related"), [(0.901, True), (0.899, False), (-0.95, False)])
def test_embeddings_above_nine_tenths_are_kin(cosine, related):
    a, b = model(WEIGHTS), model(turned(cosine))
    assert embedding_cosine(a, b) == pytest.approx(cosine, abs=1e-5)
    found = kinship(a, b)
    assert found.related is related
    words = "above 0.9" if related else "the models were trained apart (cosine of embeddings"
    assert words in found.why


def test_the_cosine_is_of_the_whole_tables_though_they_are_read_in_parts(monkeypatch):
    a, b = model(WEIGHTS), model(turned(0.3))
    tables = [one.embed.weight.double().flatten() for one in (a, b)]
    monkeypatch.setattr("mta_viz.analysis.compare.pairs.ROWS", 5)
    wanted = torch.nn.functional.cosine_similarity(*tables, dim=0)
    assert embedding_cosine(a, b) == pytest.approx(float(wanted), abs=1e-9)


def test_an_edited_model_is_kin_and_one_of_another_shape_is_not():
    a = model(WEIGHTS)
    assert kinship(a, edited(a, [AblateHead(0, 1)])).why == "both sides are one model"
    small = HookedMTA(config(MTAOptions(), 30))
    assert embedding_cosine(a, small) is None and not kinship(a, small).related


def test_what_is_recorded_makes_kin(tmp_path):
    """Two steps of one run; a params.json that names the checkpoint it started from."""
    places = [
        tmp_path / "run/checkpoints/0000000010",
        tmp_path / "run/checkpoints/0000000020",
        tmp_path / "tuned",
    ]
    for seed, place in enumerate(places):
        write_native(
            place, SHAPES, random_weights(SHAPES, seed), tokenizer_name="bytes", tokenizer_path=None,
            dtype=torch.float32,
        )  # fmt: skip
    early, late, tuned = map(load, places)
    assert kinship(early, late).why == "both are steps of one training run"
    assert not kinship(late, tuned).related
    for number, seed in (("0", 3), ("1", 4)):  # seeds, say: not steps of a run
        write_native(
            tmp_path / number, SHAPES, random_weights(SHAPES, seed),
            tokenizer_name="bytes", tokenizer_path=None, dtype=torch.float32,
        )  # fmt: skip
    assert not kinship(load(tmp_path / "0"), load(tmp_path / "1")).related
    file = places[2] / "params.json"
    for named in (str(places[1]), "../run/checkpoints/0000000020"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"checkpoint": {"init_ckpt_path": named}}))
        assert kinship(late, tuned).why == "B's params.json names A as the checkpoint it started from"
        assert kinship(tuned, late).why == "A's params.json names B as the checkpoint it started from"
    assert not kinship(early, tuned).related
    with pytest.raises(PromptError, match="cannot be paired by index: the models were trained apart"):
        compare(early, tuned, PROMPT, pair_by="index")


@settings(max_examples=30)
@given(rows=st.integers(1, 5), columns=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_more_rows_or_columns_match_as_many_as_there_are(rows, columns, seed):
    gain = np.random.default_rng(seed).standard_normal((rows, columns))
    match = best_match(gain)
    used = match[match >= 0]
    assert len(used) == len(set(used)) == min(rows, columns)
    ours = sum(gain[row, column] for row, column in enumerate(match) if column >= 0)
    size = max(rows, columns)
    square = np.zeros((size, size))
    square[:rows, :columns] = gain
    assert ours == pytest.approx(square[np.arange(size), best_match(square)].sum())

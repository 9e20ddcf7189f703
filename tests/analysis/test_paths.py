"""Paths between kernels: an edge is what a receiver alone reads; planted edges and closed ones."""

from math import isnan

import pytest
import torch

from mta_viz.analysis.cause.answers import Answer, AnswerMeter
from mta_viz.analysis.cause.kernel_effect import edge_count, kernel_paths
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture
from tests.tiny_models import random_weights

CONFIG = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, n_kv_heads=1, d_head=8, d_mlp=16, vocab_size=11,
    mta=MTAOptions(pre_kernel=(3, 5), mta_layers=(0,)),
)  # fmt: skip
IDS, ANSWER = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5), Answer((8, 9), "8 9", "given")
KERNEL = KernelId(0, 1, "pre")


def meter(changes: dict[str, float] | None = None) -> AnswerMeter:
    weights = random_weights(CONFIG, seed=2)
    for name, factor in (changes or {}).items():
        weights[name] = weights[name] * factor
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    model.load_state_dict(weights)
    return AnswerMeter(capture(model, IDS), ANSWER)


def test_every_receiver_has_its_edge_and_the_largest_is_first():
    paths = kernel_paths(meter(), KERNEL)
    assert sorted(edge.name() for edge in paths.edges) == sorted([
        "L0 mlp", "L1 H0 queries", "L1 H1 queries", "L1 H0 scores", "L1 H1 scores", "L1 H0 keys",
        "L1 H0 values", "L1 mlp", "logits",
    ])  # fmt: skip
    assert edge_count(CONFIG, 0) == len(paths.edges) and edge_count(CONFIG, 1) == 2
    sizes = [abs(edge.effect) for edge in paths.edges]
    assert sizes == sorted(sizes, reverse=True)
    assert abs(paths.whole) > 1e-4 and sizes[0] > 1e-4


def test_where_one_edge_is_all_there_is_it_is_the_whole_effect():
    """Nothing in layer 1 and no MLP: the head reaches the logits and nothing else."""
    closed = meter(
        {"blocks.1.attn.wo.weight": 0.0, "blocks.0.mlp.w2.weight": 0.0, "blocks.1.mlp.w2.weight": 0.0}
    )
    paths = kernel_paths(closed, KERNEL)
    assert paths.edges[0].name() == "logits"
    assert paths.edges[0].effect == pytest.approx(paths.whole, abs=1e-5)
    assert all(abs(edge.effect) < 1e-6 for edge in paths.edges[1:])
    assert paths.share == pytest.approx(1, abs=1e-3)


def test_all_edges_into_one_layer_together_are_the_whole_effect():
    """Without MLPs, layer 1's queries, keys, values and the logits carry everything."""
    paths = kernel_paths(meter({"blocks.0.mlp.w2.weight": 0.0, "blocks.1.mlp.w2.weight": 0.0}), KERNEL)
    assert paths.n_together == 7
    assert paths.together == pytest.approx(paths.whole, abs=1e-4)
    assert abs(paths.together - sum(edge.effect for edge in paths.edges if edge.part != "scores")) > 1e-6


def test_a_head_without_output_has_no_edges():
    weights = meter().trace.model.state_dict()
    wo = weights["blocks.0.attn.wo.weight"].clone()
    wo[:, 8:] = 0
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    model.load_state_dict(dict(weights) | {"blocks.0.attn.wo.weight": wo})
    paths = kernel_paths(AnswerMeter(capture(model, IDS), ANSWER), KERNEL)
    assert paths.whole == pytest.approx(0, abs=1e-6)
    assert isnan(paths.share)  # of next to nothing there is no share, in files as on the page
    assert all(edge.effect == pytest.approx(0, abs=1e-6) for edge in paths.edges)
    assert torch.isfinite(torch.tensor([edge.effect for edge in paths.edges])).all()

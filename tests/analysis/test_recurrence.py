"""Named kernels that come again: planted in two models, and over the snapshots of one training."""

from itertools import permutations

import numpy as np
import pytest
import torch

from mta_viz.analysis.kernels.kernels import KernelId, kernel_offsets
from mta_viz.analysis.kernels.naming import name_kernels
from mta_viz.analysis.kernels.recurrence import lasting_names, lasting_table, recurrence
from mta_viz.checkpoint.history import KernelHistory
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError

CONFIG = ModelConfig(
    d_model=32, n_layers=4, n_heads=4, n_kv_heads=4, d_head=8, d_mlp=16, vocab_size=11,
    mta=MTAOptions(pre_kernel=(6, 11)),
)  # fmt: skip
PAD = CONFIG.key_pad_left(11)


def diagonal(kernel: torch.Tensor, size: float = 1.0) -> None:
    for back in range(6):
        kernel[5 - back, PAD - back] += size


def kernels(seed: int, planted: dict[int, list[int]]) -> dict[str, torch.Tensor]:
    """Noise about the identity, and a diagonal in some heads of some layers."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(4):
        taps = 0.05 * torch.randn(4, 6, 11, generator=generator)
        taps[:, 5, PAD] += 1
        for head in planted.get(layer, []):
            diagonal(taps[head])
        weights[f"blocks.{layer}.attn.kernel_pre"] = taps
    return weights


def test_diagonals_in_the_same_layers_come_again_whatever_their_heads():
    first, other = kernels(0, {0: [1, 2], 2: [3], 3: [0]}), kernels(1, {0: [0, 3], 2: [0], 3: [2]})
    found = recurrence((first, CONFIG), (other, CONFIG))
    diagonals = [match for match in found.matches if "diagonal" in match.shape]
    assert [match.kernel.name() for match in diagonals] == [
        "L0 H1 pre",
        "L0 H2 pre",
        "L2 H3 pre",
        "L3 H0 pre",
    ]
    assert all(match.same and match.cosine > 0.9 for match in diagonals)
    assert {match.other.head for match in diagonals if match.kernel.layer == 0} == {0, 3}
    assert found.same >= 4 > found.expected
    assert found.p <= 0.06  # of the shuffles, one in twenty puts them at the same depth
    assert found.table().records()[0]["same"] is True


def test_kernels_that_matter_are_matched_without_a_name_and_not_counted():
    first, other = kernels(0, {0: [1]}), kernels(1, {0: [3]})
    for weights, head in ((first, 2), (other, 0)):  # a shape of no template
        weights["blocks.1.attn.kernel_pre"][head, 1, PAD + 3] += 0.8
        weights["blocks.1.attn.kernel_pre"][head, 4, PAD - 4] -= 0.8
        weights["blocks.1.attn.kernel_pre"][head, 2, PAD - 1] += 0.8
    named = recurrence((first, CONFIG), (other, CONFIG))
    also = {KernelId(1, 2, "pre"), named.matches[0].kernel}
    found = recurrence((first, CONFIG), (other, CONFIG), also)
    (more,) = set(found.matches) - set(named.matches)
    assert more.kernel == KernelId(1, 2, "pre") and more.other.head == 0 and more.cosine > 0.9
    assert more.shape == more.other_shape == "none of these" and not more.same
    assert found.n_named == named.n_named == len(named.matches)
    assert (found.same, found.expected, found.p) == (named.same, named.expected, named.p)


def test_a_name_that_stands_behind_an_edge_counts_too():
    """Own column +1, the key before -1 over all queries: first an edge, and priming as well."""
    both, alone = kernels(0, {}), kernels(1, {})
    for weights, head in ((both, 1), (alone, 2)):
        weights["blocks.2.attn.kernel_pre"][head, :, PAD] += 1
    both["blocks.2.attn.kernel_pre"][1, :, PAD - 1] -= 1
    offsets = kernel_offsets(CONFIG, 6, 11)
    shape = name_kernels(both["blocks.2.attn.kernel_pre"][[1]].double().numpy(), offsets)[0]
    assert (shape.shape, shape.template) == ("edge-first", "priming") and shape.bears("edge-first")
    for first, other in ((both, alone), (alone, both)):
        matches = recurrence((first, CONFIG), (other, CONFIG)).matches
        (primed,) = [match for match in matches if match.shape == "priming"]
        assert primed.same and primed.kernel.layer == 2
    snapshots = torch.stack([weights["blocks.2.attn.kernel_pre"] for weights in (kernels(2, {}), both)])
    rows = lasting_names(KernelHistory((0, 10), {"blocks.2.attn.kernel_pre": snapshots}), CONFIG)
    assert [(row.kernel.head, row.shape, row.since) for row in rows if row.shape == "priming"] == [
        (1, "priming", 10)
    ]


def test_diagonals_in_other_layers_do_not():
    found = recurrence((kernels(0, {0: [1, 2]}), CONFIG), (kernels(1, {3: [0, 3]}), CONFIG))
    assert not any(match.same for match in found.matches if "diagonal" in match.shape)
    assert found.p > 0.2


def test_the_p_of_random_pairs_is_not_small_too_often():
    ps = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        planted = [
            {int(layer): [int(random.integers(4))] for layer in random.choice(4, 2, False)} for _ in "ab"
        ]
        pair = [(kernels(2 * seed + at, part), CONFIG) for at, part in enumerate(planted)]
        ps.append(recurrence(*pair).p)
    assert np.mean(np.array(ps) <= 0.2) <= 0.45  # 0.2 expected at most, 20 draws


def test_kernels_of_other_shapes_are_refused():
    small = ModelConfig(**(vars(CONFIG) | {"n_layers": 3}))
    with pytest.raises(MtaVizError, match="cannot be matched"):
        recurrence((kernels(0, {}), CONFIG), (kernels(1, {}), small))


def test_a_name_lasts_since_the_step_after_its_last_break():
    snapshots = torch.stack([kernels(seed, {})["blocks.0.attn.kernel_pre"] for seed in range(4)])
    for snapshot, size in enumerate((0.0, 1.0, 0.0, 1.0)):
        diagonal(snapshots[snapshot, 2], size)
    history = KernelHistory((0, 10, 20, 30), {"blocks.0.attn.kernel_pre": snapshots})
    rows = [row for row in lasting_names(history, CONFIG) if "diagonal" in row.shape]
    assert [(row.kernel.name(), row.since, row.share) for row in rows] == [("L0 H2 pre", 30, 0.5)]
    assert lasting_table(rows).records()[0]["since_step"] == 30
    assert rows[0].bears == (False, True, False, True)


@pytest.mark.parametrize("seed", range(4))
def test_the_matching_is_the_best_of_all_assignments(seed):
    """No other way of giving each head of a layer a head of the other model has a larger total cosine."""
    pair = [kernels(2 * seed + at, {0: [0, 1, 2, 3]}) for at in (0, 1)]
    for at, weights in enumerate(pair):
        noise = torch.randn(4, 6, 11, generator=torch.Generator().manual_seed(90 + 2 * seed + at))
        weights["blocks.0.attn.kernel_pre"] += 0.15 * noise
    found = recurrence(*((weights, CONFIG) for weights in pair))
    matches = [match for match in found.matches if match.kernel.layer == 0]
    taps = [weights["blocks.0.attn.kernel_pre"].double().numpy().copy() for weights in pair]
    for part in taps:
        part[:, 5, PAD] = 0
    unit = [part.reshape(4, -1) / np.linalg.norm(part.reshape(4, -1), axis=1, keepdims=True) for part in taps]
    cosine = np.abs(unit[0] @ unit[1].T)
    totals = {order: cosine[range(4), order].sum() for order in permutations(range(4))}
    best = max(totals, key=totals.__getitem__)
    assert matches and all(match.other.head == best[match.kernel.head] for match in matches)
    assert [match.cosine for match in matches] == pytest.approx(
        [cosine[m.kernel.head, m.other.head] for m in matches]
    )


def test_a_kernel_s_name_does_not_hang_on_the_kernels_beside_it():
    """Names over steps are given to the kernels that have one at the end, without the others."""
    taps = kernels(3, {0: [1], 2: [0]})["blocks.0.attn.kernel_pre"].double().numpy()
    offsets = kernel_offsets(CONFIG, 6, 11)
    together = [(shape.shape, shape.evidence) for shape in name_kernels(taps, offsets)]
    alone = [name_kernels(taps[[head]], offsets)[0] for head in range(4)]
    assert [(shape.shape, shape.evidence) for shape in alone] == together
    assert len(set(together)) > 1

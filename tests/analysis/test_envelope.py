"""Surrogates with a model's own envelope: they have it, their p is uniform, and they do not survive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_cases import drawing, offsets, row

from mta_viz.analysis.kernels import envelope as envelopes
from mta_viz.analysis.kernels.envelope import (
    Envelope,
    envelope_of,
    envelope_p,
    judge_kernels,
    surrogates,
    with_random_signs,
)
from mta_viz.analysis.kernels.kernels import KernelId, KernelStack, kernel_stacks
from mta_viz.analysis.kernels.measures import library, norm, without_own_tap
from mta_viz.analysis.kernels.table import NamesByChance
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.errors import MtaVizError

AT = offsets(6, 11)
ASSETS = "assets"


def decaying(rate: float, *, along: float = 0.0) -> Envelope:
    """Energy that falls with the distance from the own tap."""
    distance = np.abs(np.array(AT.query))[:, None] + np.abs(np.array(AT.key))
    sizes = np.exp(-rate * distance / 2)
    sizes[AT.own] = 0
    return Envelope(AT, sizes / np.linalg.norm(sizes), along, along, np.array([2.0]))


def stack(taps: np.ndarray) -> KernelStack:
    return KernelStack(tuple(KernelId(at // 8, at % 8, "pre") for at in range(len(taps))), AT, taps)


def near_identities(count: int) -> np.ndarray:
    taps = 0.05 * np.random.default_rng(1).standard_normal((count, 6, 11))
    taps[(slice(None), *AT.own)] += 1
    return taps


@settings(max_examples=10)
@given(rate=st.floats(0, 1), along=st.floats(-0.3, 0.5), seed=st.integers(0, 1000))
def test_surrogates_have_the_envelope_they_are_drawn_from(rate, along, seed):
    drawn = decaying(rate, along=along).draw(4000, np.random.default_rng(seed))
    assert norm(without_own_tap(drawn, AT)) == pytest.approx(1)
    found = envelope_of(drawn, AT)
    # the length of each is 1, which shrinks the largest taps a little
    assert np.square(found.sizes) == pytest.approx(np.square(decaying(rate).sizes), abs=0.05)
    assert (found.along_queries, found.along_keys) == pytest.approx((along, along), abs=0.08)


def test_the_envelope_and_correlation_of_two_kernels_by_hand():
    """Energies 4/5, 1/5 and 1, 0 at two neighbouring keys: their means, and 2/5 over 2 sqrt(0.9 x 0.1)."""
    found = envelope_of(np.stack([row(AT, own=3, after=2, after2=1), row(AT, own=1, after=-1)]), AT)
    query = 5
    assert np.square(found.sizes[query, 6:8]) == pytest.approx([0.9, 0.1])
    assert found.along_keys == pytest.approx(0.4 / (2 * 0.3)) and found.along_queries == 0
    assert found.own == pytest.approx([3 / np.sqrt(5), 1])
    assert envelope_of(row(AT, own=1)[None], AT) is None


def test_random_signs_keep_sizes_and_the_own_tap():
    taps = np.random.default_rng(0).standard_normal((50, 6, 11))
    signed = with_random_signs(taps, AT, np.random.default_rng(1))
    assert (np.abs(signed) == np.abs(taps)).all() and (signed[:, 5, 5] == taps[:, 5, 5]).all()
    assert np.mean(signed == taps) == pytest.approx(0.5, abs=0.05)


@settings(max_examples=6)
@given(rate=st.floats(0, 1), along=st.floats(0, 0.4), seed=st.integers(1, 1000))
def test_the_p_of_surrogates_is_uniform(rate, along, seed):
    own = decaying(rate, along=along)
    drawn = own.draw(600, np.random.default_rng(seed))
    every = np.ones((600, len(library(AT))), bool)
    p = envelope_p(drawn, own, every, 1)
    assert 9 <= (p <= 0.05).sum() <= 53 and 250 <= (p <= 0.5).sum() <= 350


@pytest.mark.parametrize("count", [96, 300])
def test_a_single_true_kernel_survives_among_many(count):
    taps = near_identities(count)
    taps[7] = row(AT, own=1) + 0.5 * drawing("diagonal", AT)
    judged = judge_kernels([stack(taps)])
    true = judged[KernelId(0, 7, "pre")]
    assert true.shape.names == "diagonal +1.00" and true.survives is True
    assert true.shape.p <= 1e-4 and true.envelope_p <= 0.025 / count
    assert sum(bool(one.survives) for one in judged.values()) <= 3
    assert {one.envelope_p for one in judged.values() if one.survives is None} == {1.0}


def test_what_energy_near_the_own_tap_gives_does_not_survive():
    taps = decaying(0.6, along=0.3).draw(48, np.random.default_rng(3))
    judged = judge_kernels([stack(taps)]).values()
    named = [one for one in judged if one.survives is not None]
    assert len(named) >= 2 and not any(
        one.survives for one in named
    )  # by the envelope, where p is below 0.005
    assert min(one.shape.p for one in named) <= 0.005


def test_numbers_of_names_by_hand():
    half = NamesByChance.of([0.5, 0.5], 2)
    assert (half.mean, half.low, half.high, half.p) == (1, 0, 2, pytest.approx(0.25))
    assert NamesByChance.of([], 0) == NamesByChance(0.0, 0, 0, 1.0)


def test_surrogate_models_are_counted_and_summed_up():
    result = surrogates([stack(decaying(0.6).draw(16, np.random.default_rng(0)))], 3, seed=1)
    assert [(model.null, model.model) for model in result.models] == [
        (null, at) for null in ("envelope", "signs") for at in range(3)
    ]
    summary = result.summary("envelope")
    counts = [model.template_names for model in result.models[:3]]
    assert summary["template_names"]["mean"] == pytest.approx(np.mean(counts))
    assert summary["with_surviving"] == sum(model.surviving > 0 for model in result.models[:3])
    assert len(result.table().rows) == 6
    again = surrogates([stack(decaying(0.6).draw(16, np.random.default_rng(0)))], 3, seed=1)
    assert again == result
    with pytest.raises(MtaVizError, match="besides its own"):
        surrogates([stack(np.stack([row(AT, own=1)]))], 1)


def test_broken_kernels_take_no_part():
    taps = decaying(0.6).draw(16, np.random.default_rng(0))
    taps[3, 0, 0], taps[4] = np.nan, 0
    judged = judge_kernels([stack(taps)])
    assert (
        np.isnan(judged[KernelId(0, 3, "pre")].envelope_p) and judged[KernelId(0, 4, "pre")].survives is None
    )
    assert surrogates([stack(taps)], 1).own.template_names >= 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["needle-mta", "blocks-n5-mta"])
def test_at_most_one_in_twenty_surrogate_models_shows_a_surviving_name(model):
    checkpoint = read_checkpoint(f"{ASSETS}/{model}")
    stacks = kernel_stacks(checkpoint.state_dict, checkpoint.config, by_place=True)
    summary = surrogates(stacks, 200).summary("envelope")
    assert summary["share"] <= envelopes.FALSE_SHARE

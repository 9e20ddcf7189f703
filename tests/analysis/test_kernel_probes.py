"""Kernels of known shape act as they are called on synthetic maps; an identity and random ones do not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from shape_cases import SIZES, kernel, offsets, planted, row

from mta_viz.analysis.kernels import probes
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.kernels.probes import PROBES, claims_of, probe_of, probe_values, run_probe
from mta_viz.analysis.kernels.table import (
    KernelStack,
    chance_marks,
    frequency_response,
    kernel_stacks,
    kernel_table,
    nearest_kernels,
    probe_percentile,
)
from mta_viz.model.ops import key_query_convolution

AT = offsets(6, 11)
SMALL = offsets(2, 3)
IDENTITY = kernel(AT, {(0, 0): 1.0})
DRAWN = {
    "diagonal": ("diagonal", 1),
    "negative diagonal": ("diagonal", -1),
    "induction": ("induction", 1),
    "negative induction": ("induction", -1),
    "anti-diagonal": ("anti-diagonal", 1),
    "priming": ("priming", 1),
    "inhibition of return": ("priming", -1),
    "smoothing": ("smoothing 3x3", 1),
    "sharpening": ("smoothing 3x3", -1),
}
FEW_TAPS = {
    "edge-first": row(AT, before=-1, own=1),
    "edge-last": row(AT, own=1, after=-1),
    "both edges": row(AT, before=-1, own=2, after=-1),
    "key shift": row(AT, after2=1),
    "KV shift": row(AT, before=0.5, own=1),
    "single tap": kernel(AT, {(0, 0): 0.5, (1, -2): 1.0}),
}


def fits(claim: str, pad: str) -> bool:
    """Half of the lines leave a kernel whose keys all lie on one side."""
    gone = {"left": ("anti-diagonal",), "right": ("diagonal", "induction")}.get(pad, ())
    return not claim.removeprefix("negative ").startswith(gone) if gone else True


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("claim", DRAWN)
def test_a_planted_shape_passes_its_probe(claim, size):
    if not fits(claim, size[2]):
        return
    shape, sign = DRAWN[claim]
    at = offsets(*size)
    taps = planted(shape, at, sd=6, sign=sign, count=2)
    passed = [run_probe(own * one, at, claim).acts for own in (1, -1, 1e-6) for one in taps]
    assert all(passed)


@pytest.mark.parametrize("claim", FEW_TAPS)
def test_an_exact_edge_or_tap_passes_its_probe(claim):
    assert run_probe(FEW_TAPS[claim], AT, claim).acts
    assert run_probe(-FEW_TAPS[claim], AT, claim).acts


@pytest.mark.parametrize("claim", [*DRAWN, *FEW_TAPS])
def test_identity_and_random_kernels_stay_below(claim):
    assert not run_probe(IDENTITY, AT, claim).acts
    random = np.random.default_rng(7)
    noise = random.standard_normal((40, 6, 11))
    near = 0.05 * random.standard_normal((40, 6, 11)) + IDENTITY
    for kernels in (noise, near):
        passed = sum(run_probe(one, AT, claim).acts for one in kernels)
        assert passed <= 4  # 0.4 expected; 5 or more have a chance of 1 in 10,000


def test_numbers_of_a_kernel_of_two_rows_redone_by_hand():
    taps = np.array([[0.5, 0.25, 0.0], [-0.5, 1.0, 0.125]])  # rows: query before, now; keys -1, 0, +1
    found = {claim: run_probe(taps, SMALL, claim).measured for claim in ("diagonal", "induction", "priming")}
    # diagonal: now 1 and (1 before, key before) 0.5; induction: (0, -1) -0.5 and (1, -2) outside;
    # priming: now 1 and (1 before, same key) 0.25; the largest answer to one score is 1
    assert found == pytest.approx({"diagonal": 1.5, "induction": -0.5, "priming": 1.25})
    run = run_probe(taps, SMALL, "edge-first")
    # sums over queries: 0, 1.25, 0.125: first 1.375, middle 1.375, last 1.25
    assert [run.after[cell] for cell in run.read_at] == pytest.approx([1.375, 1.375, 1.25])
    assert run.measured == pytest.approx(0)
    moved = run_probe(taps, SMALL, "single tap").measured
    rest = np.array([0.5, 0.25, 0.5, 0.125])
    assert moved == pytest.approx(0.25 / np.square(rest).sum())


def test_a_single_score_comes_back_as_the_kernel_mirrored():
    taps = np.arange(1.0, 7).reshape(2, 3)
    result = run_probe(taps, SMALL, "single tap")
    row_at, column = result.read_at[0]
    answer = result.after[row_at : row_at + 2, column - 1 : column + 2]
    assert answer == pytest.approx(taps[::-1, ::-1] / 6)
    assert (
        "1 query later and 1 key later"
        in run_probe(kernel(SMALL, {(1, -1): 1.0}), SMALL, "single tap").sentence
    )


@pytest.mark.parametrize("probe", PROBES[:5])
def test_a_probe_is_a_part_of_a_causal_map(probe):
    """The same scores in a whole map, future cells 0: the same answer where the probe reads."""
    stimulus = probes.gain(probe, AT)
    rows, keys = stimulus.scores.shape
    whole = torch.zeros(1, 1, rows + keys, rows + keys)
    whole[0, 0, keys:, :keys] = torch.from_numpy(stimulus.scores)
    assert (whole.triu(1) == 0).all()
    taps = np.random.default_rng(0).standard_normal((6, 11))
    answer = key_query_convolution(whole, torch.from_numpy(taps[None]).float(), 5)[0, 0]
    cell = stimulus.read_at[0]
    found = probe_values(taps[None], AT, probe)[0] * np.abs(taps).max()
    assert abs(float(answer[keys + cell[0], cell[1]])) == pytest.approx(abs(found), rel=1e-5)


def test_every_named_shape_has_a_probe_and_a_broken_kernel_has_none():
    assert all(probe_of(claim) for claim in (*DRAWN, *FEW_TAPS))
    assert probe_of("none of these") is None and probe_of("near identity") is None
    for taps in (np.zeros((6, 11)), np.full((6, 11), np.nan)):
        with pytest.raises(ValueError, match="cannot be probed"):
            run_probe(taps, AT, "diagonal")
    assert claims_of("priming", {"priming": -0.4}) == "inhibition of return"
    assert claims_of(PROBES[5], {"first_of_run": 0.1, "last_of_run": 0.5}) == "edge-last"


def stack(*kernels: np.ndarray) -> KernelStack:
    return KernelStack(tuple(KernelId(0, head, "pre") for head in range(len(kernels))), AT, np.stack(kernels))


def test_nearest_kernels_leave_own_taps_and_broken_kernels_out():
    line = kernel(AT, {(n, -n): 1.0 for n in range(1, 6)})
    column = kernel(AT, {(n, 0): 1.0 for n in range(1, 6)})
    found = stack(
        9 * IDENTITY + line, IDENTITY + column, -line, 2 * line + 0 * IDENTITY, np.full((6, 11), np.nan)
    )
    near = nearest_kernels(found, KernelId(0, 0, "pre"))
    assert [(one.head, round(cosine, 6)) for one, cosine in near] == [(3, 1), (1, 0), (2, -1)]
    assert nearest_kernels(stack(IDENTITY, line), KernelId(0, 0, "pre")) == ()


def test_a_rank_counts_the_other_usable_kernels():
    strong = kernel(AT, {(n, -n): 1.0 for n in range(6)})
    found = stack(np.zeros((6, 11)), IDENTITY, strong, IDENTITY)
    assert probe_percentile(found, KernelId(0, 2, "pre"), "sequence") == 1
    assert probe_percentile(found, KernelId(0, 1, "pre"), "sequence") == 0.25  # one tie, one above
    assert np.isnan(probe_percentile(found, KernelId(0, 0, "pre"), "sequence"))


def test_frequency_response_of_an_identity_is_even_and_of_a_difference_is_not():
    frequencies, response = frequency_response(IDENTITY)
    assert response == pytest.approx(np.ones((64, 64)))
    _, edge = frequency_response(row(AT, before=-1, own=1))
    middle, end = int(np.flatnonzero(frequencies == 0)[0]), 0
    assert edge[middle, middle] == pytest.approx(0, abs=1e-12) and edge[middle, end] == pytest.approx(2)


def test_chance_marks_agree_with_the_known_distribution_of_one_template():
    assert chance_marks(AT)["diagonal"] == pytest.approx(0.315, abs=0.01)  # sqrt of Beta(1/2, 63.5/2) at 99 %


def test_the_shipped_needle_models_most_diagonal_kernel_lies_above_the_95th_percentile():
    from mta_viz.checkpoint.reading import read_checkpoint

    found = read_checkpoint(Path(__file__).parents[2] / "assets" / "needle-mta")
    rows = [one for one in kernel_table(found.state_dict, found.config) if one["diagonal"] is not None]
    best = max(rows, key=lambda one: one["diagonal"])
    kernel_id = KernelId(best["layer"], best["head"], best["where"])
    (all_kernels,) = kernel_stacks(found.state_dict, found.config)
    assert probe_percentile(all_kernels, kernel_id, "sequence") > 0.95


@pytest.mark.parametrize("claim", [*DRAWN, *FEW_TAPS])
@pytest.mark.parametrize("level", [-1.5, 4.0])
def test_maps_take_the_measured_level_and_the_test_of_the_taps_stays(claim, level):
    taps = 2 * FEW_TAPS[claim] if claim in FEW_TAPS else planted_as(claim)
    assumed, measured = run_probe(taps, AT, claim), run_probe(taps, AT, claim, level)
    assert (measured.measured, measured.threshold, measured.acts) == (
        assumed.measured, assumed.threshold, assumed.acts,
    )  # fmt: skip
    assert np.abs(measured.before).max() == pytest.approx(abs(level))
    assert measured.before == pytest.approx(level * assumed.before)
    assert measured.after == pytest.approx(level * np.abs(taps).max() * assumed.after)
    assert "not measured on this model's scores" in assumed.sentence and assumed.level is None
    assert f"for a match of {level:+.3g}, the measured level".replace("-", "−") in measured.sentence


def planted_as(claim: str) -> np.ndarray:
    shape, sign = DRAWN[claim]
    return planted(shape, AT, sd=6, sign=sign, count=1)[0]


def test_a_negative_tap_raises_where_matches_are_negative():
    taps = kernel(AT, {(0, 0): 1.0, **{(n, -1 - n): -1.0 for n in range(5)}})
    raised, lowered = (run_probe(taps, AT, "negative induction", level) for level in (-1.5, 1.5))
    assert raised.after[raised.read_at[0]] == pytest.approx(7.5)
    assert "gets +7.5 (0" in raised.sentence.replace("+0", "0")
    assert lowered.after[lowered.read_at[0]] == pytest.approx(-7.5) and "gets −7.5" in lowered.sentence

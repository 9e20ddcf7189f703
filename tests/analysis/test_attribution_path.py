"""Stretches of a path sum to the one integral, steps go where the score bends, and time is kept."""

import math

import pytest
import torch

from mta_viz.analysis.cause import attribution_path
from mta_viz.analysis.cause.attribution_path import FIRST, STEPS, integrate, normed_jump
from mta_viz.errors import PromptError

REAL, BASE = torch.tensor([[1.0, 2.0, -1.0]]), torch.tensor([[0.0, 0.0, 1.0]])


def product(inputs):
    """x * y^2 + z: along the path x = t, y = 2 t, z = 1 - 2 t."""
    return inputs[:, 0] * inputs[:, 1] ** 2 + inputs[:, 2]


def step(inputs):
    """A rise from 0 to 10 in a hundredth of the path, at 0.3 of it."""
    return 10 * torch.sigmoid(1000 * (inputs[:, 0] - 0.3))


def test_the_values_of_a_product_are_those_of_its_integral():
    """By hand: dx * integral of y^2 = 4/3, dy * integral of 2 x y = 2 * 4/3, dz * 1 = -2."""
    found = integrate(product, REAL, BASE, max_error=0.01, max_seconds=1e9)
    assert found.values.tolist()[0] == pytest.approx([4 / 3, 8 / 3, -2], abs=1e-5)
    assert (found.score, found.baseline_score) == pytest.approx((3, 1))
    assert found.error < 1e-4 and found.steps == FIRST * STEPS


def test_stretches_sum_to_the_integral_in_one():
    """Gauss-Legendre over the whole path, with so many points that it must be right."""
    from captum.attr import IntegratedGradients

    def bent(inputs):
        return torch.tanh(6 * inputs[:, 0] - 3) * inputs[:, 1] + inputs[:, 2] ** 3

    whole = IntegratedGradients(bent).attribute(REAL, baselines=BASE, n_steps=200, method="gausslegendre")
    found = integrate(bent, REAL, BASE, max_error=1e-4, max_seconds=1e9)
    assert torch.allclose(found.values, whole, atol=1e-3)
    assert found.error <= 1e-4


@pytest.mark.parametrize("at_once", [1, 3, 500])
def test_steps_go_where_the_score_rises(at_once):
    points = []

    def seen(inputs):
        if inputs.requires_grad:
            points.extend(inputs[:, 0].tolist())
        return step(inputs)

    found = integrate(seen, REAL, BASE, at_once=at_once, max_error=0.01, max_seconds=1e9)
    assert found.error <= 0.01 and found.values[0, 0] == pytest.approx(10, rel=0.01)
    assert found.steps == len(points)
    near = sum(0.25 <= point <= 0.35 for point in points)
    assert near > 0.6 * found.steps and found.steps < 100  # equal steps would need hundreds


def test_errors_of_opposite_sign_do_not_make_up_for_each_other():
    """x raises the score at 0.3 of the path, y lowers it at 0.7, and the first points see neither."""

    def bumps(inputs):
        x, y, z = inputs.unbind(1)
        return 5 * torch.sigmoid(300 * (x - 0.3)) - 5 * torch.sigmoid(300 * (y / 2 - 0.7)) + z

    found = integrate(bumps, REAL, BASE, max_error=0.01, max_seconds=1e9)
    assert found.error <= 0.01 and found.values.tolist()[0] == pytest.approx([5, -5, -2], abs=0.02)


def test_no_more_begins_when_the_time_is_over_and_what_is_there_is_kept(monkeypatch):
    """A second a point: both ends 2, three ends between 3, 12 points; each halving 1 + 6."""
    now = 0.0
    monkeypatch.setattr(attribution_path.time, "monotonic", lambda: now)

    def slow(inputs):
        nonlocal now
        now += len(inputs)
        return step(inputs)

    kept = []
    found = integrate(slow, REAL, BASE, max_error=1e-9, max_seconds=47.0, keep=kept.append)
    assert kept[-1] is found and kept[0].steps == FIRST * STEPS
    assert len(kept) == 5 and found.steps == 12 + 4 * 6 and now == 17 + 4 * 7
    quick = integrate(slow, REAL, BASE, max_error=1e-9, max_seconds=30.0)
    assert quick.steps == STEPS + 3 * 6  # from one stretch: 2 + 3, then three halvings


def test_an_integral_goes_on_from_an_earlier_one():
    """In two runs the same points are asked as in one, so the values are equal."""
    whole = integrate(step, REAL, BASE, max_error=1e-4, max_seconds=1e9)
    first = integrate(step, REAL, BASE, max_error=0.1, max_seconds=1e9)
    assert FIRST * STEPS < first.steps < whole.steps and first.error > 1e-3
    again = []

    def seen(inputs):
        again.extend([0] * (len(inputs) if inputs.requires_grad else 0))
        return step(inputs)

    found = integrate(seen, REAL, BASE, max_error=1e-4, max_seconds=1e9, after=first)
    assert torch.equal(found.values, whole.values)
    assert (found.error, found.steps) == (whole.error, whole.steps)
    assert len(again) == whole.steps - first.steps


def test_an_integral_of_something_else_is_not_gone_on_with():
    first = integrate(step, REAL, BASE, max_error=0.1, max_seconds=1e9)
    with pytest.raises(PromptError, match=r"another question: its scores .* 0 and 10 nats, here 1 and 3"):
        integrate(product, REAL, BASE, max_error=0.1, max_seconds=1e9, after=first)


def test_sums_are_kept_in_place_of_values():
    def add(values):
        return values.double().sum(-1)

    sums = integrate(step, REAL, BASE, max_error=1e-3, max_seconds=1e9, summed=add)
    whole = integrate(step, REAL, BASE, max_error=1e-3, max_seconds=1e9)
    assert sums.values.shape == (1,) and sums.steps == whole.steps
    assert torch.allclose(sums.values, add(whole.values), atol=1e-6)


def test_progress_rises_to_the_end_and_can_stop_the_work():
    told = []
    integrate(step, REAL, BASE, max_error=0.01, max_seconds=1e9, progress=told.append)
    assert told == sorted(told) and told[0] >= 0 and 0.2 < told[-1] <= 1

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        integrate(step, REAL, BASE, max_error=0.01, max_seconds=1e9, progress=stop)


def test_a_jump_at_the_baseline_is_seen_once_a_stretch_is_short_enough():
    """What the score changes in the first 1 % of the path, from the points that are known there."""

    def jump(inputs):
        return torch.tanh(1e5 * inputs[:, 0]) + 0.5 * inputs[:, 0]

    found = integrate(jump, REAL, BASE, max_error=1e-3, max_seconds=1e9)
    assert found.early == pytest.approx(2 / 3, abs=0.01)
    even = integrate(lambda inputs: inputs[:, 0] ** 2, REAL, BASE, max_error=1e-3, max_seconds=1e9)
    assert even.early is None and even.error < 1e-3


def test_a_norm_jumps_by_the_size_of_its_epsilon():
    """From zeros: a / sqrt(a^2 + eps / size^2) of the way at the share a of the path."""
    real = torch.full((3, 8), 2.0)
    for eps in (1e-6, 1e-2, 4.0):
        at = [share / math.sqrt(share**2 + eps / 4) for share in (0.01, 1.0)]
        assert normed_jump(torch.zeros(3, 8), real, eps) == pytest.approx(at[0] / at[1], rel=1e-4)
    assert normed_jump(real, real, 1e-5) == 0
    assert normed_jump(-real, real, 1e-5) < 0.01

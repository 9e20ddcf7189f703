"""The verdict of a conjunction test: seldom false where nothing is planted, right where it is."""

import itertools
import math

import pytest
import torch

from mta_viz.analysis.labs.conjunction import ALPHA, Conjunction, p_values, strongest, verdict
from mta_viz.analysis.labs.sign_flips import EXHAUSTIVE, corrected_p, least_p, standardized
from mta_viz.model.stages import Stage

ODDS = [("odds", stage) for stage in (Stage.RAW, Stage.KQ, Stage.MIX)]


def planted(
    seed: int, n: int, tests: int, *, effect: float = 0.0, noise: str = "normal", base: float = 0.0
) -> Conjunction:
    """Log-odds that add up, with noise alike in the four prompts; I of the first head is `effect` sd of I.

    `tests` heads and stages: all of the first stages have as many heads. `base`: added to all log-odds.
    """
    random = torch.Generator().manual_seed(seed)
    stages = ODDS if tests % 3 == 0 else ODDS[:1]
    heads = tests // len(stages)
    shape = (n, 4, len(stages), heads)
    drawn = torch.randn(shape, generator=random, dtype=torch.float64)
    if noise == "lognormal":
        drawn = drawn.exp()
    if noise == "shared":  # heads that hang together
        drawn = 0.3 * drawn + torch.randn((n, 4, 1, 1), generator=random, dtype=torch.float64)
    a, b, neither = (torch.rand((n, 1, heads), generator=random) * 4 - 2 for _ in range(3))
    f = drawn + torch.stack([a + b + neither, a + neither, b + neither, neither], 1)
    f[:, 0, 0, 0] += effect * 2  # noise of I is that of four
    return Conjunction({at: (base + f[:, :, place, None]).float() for place, at in enumerate(stages)})


def least(test: Conjunction) -> float:
    """The smallest corrected p, which the verdict goes by."""
    return min(float(p.nan_to_num(1.0).min()) for p in p_values(test).values())


def shown(runs: int, *setting, **options) -> float:
    return sum(least(planted(seed, *setting, **options)) <= ALPHA for seed in range(runs)) / runs


def within_chance(runs: int) -> float:
    """What a share of `ALPHA` stays below in all but one of 1,000 repetitions: at most 5 % of 400."""
    return ALPHA + 3.1 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


@pytest.mark.parametrize(("n", "noise"), [(6, "normal"), (8, "lognormal"), (20, "normal"), (20, "shared")])
def test_nothing_is_shown_where_nothing_is_planted(n, noise):
    assert shown(100, n, 48, noise=noise) <= within_chance(100)


def test_what_gives_the_span_next_to_nothing_is_not_tested():
    """An effect of 4 nats at shares of e^-30 is none that matters; most heads at the edge are left out."""
    found = verdict(planted(0, 20, 48, effect=2.0, base=-30.0))
    assert (found.tested, found.faint, found.best) == (0, 48, None) and not found.shown
    edge = verdict(planted(0, 20, 48, base=-6.5))
    assert 5 < edge.tested < 43 and edge.tested + edge.faint == 48
    assert shown(100, 8, 48, base=-6.5) <= within_chance(100)  # who is left out does not make the rest pass


@pytest.mark.slow
@pytest.mark.parametrize("tests", [48, 432])
@pytest.mark.parametrize("n", [6, 8, 20, 50, 120])
@pytest.mark.parametrize("noise", ["normal", "lognormal", "shared", "edge"])
def test_nothing_is_shown_where_nothing_is_planted_at_all_sizes(n, tests, noise):
    rate = shown(400, n, tests, noise=noise, base=-6.5 if noise == "edge" else 0.0)
    print(f"{tests} heads and stages, {n} samples, {noise}: {rate:.4f} of 400 shown")
    assert rate <= within_chance(400)


@pytest.mark.parametrize("tests", [48, 432])
def test_what_is_planted_is_shown_and_where(tests):
    found = [verdict(planted(seed, 20, tests, effect=2.0)) for seed in range(10)]
    assert all(each.p == least(planted(seed, 20, tests, effect=2.0)) for seed, each in enumerate(found[:2]))
    assert sum(each.shown for each in found) >= 9
    places = [(each.best.layer, each.best.head, each.best.measure) for each in found if each.shown]
    assert places.count((0, 0, ODDS[0])) == len(places)
    assert all(
        each.tested == tests and each.samples == 20 and each.passing >= 1 for each in found if each.shown
    )


def test_log_odds_that_add_up_show_nothing_though_shares_do():
    """Each word adds 3 to -4: I of shares is .36 in every sample."""
    f = torch.tensor([2.0, -1.0, -1.0, -4.0])[:, None, None].expand(20, 4, 1, 1)
    test = Conjunction({("odds", Stage.KQ): f, ("share", Stage.PATTERN): f.sigmoid()})
    shares = strongest(test, "share")
    assert shares.interaction == pytest.approx(0.36, abs=0.01) and shares.median_low > 0.3
    assert not verdict(test).shown and verdict(test).p == 1
    below = Conjunction({("odds", Stage.KQ): -f - 3 * (f == 2)})  # I below 0: one word is enough
    assert not verdict(below).shown


def test_rounding_is_no_effect():
    f = torch.zeros(20, 4, 1, 2)
    f[:, 0] = 2e-5
    assert verdict(Conjunction({ODDS[0]: f})).p == 1
    f[:, 0, 0, 1] = 0.01  # small, but in every sample
    found = verdict(Conjunction({ODDS[0]: f}))
    assert found.shown and found.best.head == 1


def test_heads_without_a_number_in_a_sample_are_left_out_and_counted():
    test = planted(0, 8, 3, effect=9.0)
    values = {at: f.clone() for at, f in test.values.items()}
    values[ODDS[0]][3, 2, 0, 0] = torch.nan  # the planted one: a weight of exactly 0 in one prompt
    values[ODDS[1]][:] = torch.nan  # a layer without the stage
    found = verdict(Conjunction(values))
    assert (found.tested, found.untested, found.shown) == (1, 1, False)
    assert p_values(Conjunction(values))[ODDS[0]].isnan().all()
    nothing = verdict(Conjunction({("share", Stage.RAW): torch.zeros(3, 4, 1, 1)}))
    assert nothing.best is None and math.isnan(nothing.p) and not nothing.shown and nothing.tested == 0


def test_five_samples_can_show_nothing_and_six_can():
    for n, expected in ((1, False), (5, False), (6, True)):
        found = verdict(planted(1, n, 1, effect=50.0))
        assert found.shown is expected and found.p == pytest.approx(found.least_p) == 2.0**-n


def test_p_is_that_of_all_signs_tried_by_hand():
    values = torch.tensor([[1.0, -0.5, 0.0], [2.0, 0.3, 0.0], [0.5, 0.4, 0.0], [1.5, 3.0, 0.0]]).double()
    observed = standardized(values)
    largest = []
    for signs in itertools.product((1.0, -1.0), repeat=4):
        largest.append(float(standardized(values * torch.tensor(signs).double()[:, None]).max()))
    by_hand = [sum(each >= float(t) - 1e-9 for each in largest) / 16 for t in observed]
    assert corrected_p(values).tolist() == pytest.approx(by_hand)
    assert by_hand[2] == 1 and by_hand[0] == 1 / 16
    alone = corrected_p(values[:, 1:2])
    assert float(alone) <= by_hand[1]


def test_random_signs_come_near_all_of_them(monkeypatch):
    values = torch.randn((EXHAUSTIVE, 6), generator=torch.Generator().manual_seed(2)).double()
    values[:, 0] += 0.7
    exact = corrected_p(values)
    monkeypatch.setattr("mta_viz.analysis.labs.sign_flips.EXHAUSTIVE", 0)
    assert corrected_p(values).tolist() == pytest.approx(exact.tolist(), abs=0.02)
    assert least_p(20) == 1e-4

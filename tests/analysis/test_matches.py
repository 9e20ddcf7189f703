"""Signs at matches: on maps redone by hand, and in models whose queries make matches negative or positive."""

import math

import numpy as np
import pytest
import torch
from planted import FULL, heads, planted

import mta_viz
from mta_viz.analysis.attention import matches
from mta_viz.analysis.attention.matches import (
    AtMatches,
    OverPrompts,
    Target,
    measure_matches,
    target_of,
    with_matches,
)
from mta_viz.analysis.attention.taps import match_gap, matching_cells
from mta_viz.analysis.kernels.kernels import MADE_BY, KernelId, kernel_offsets
from mta_viz.analysis.kernels.naming import UNNAMED
from mta_viz.analysis.kernels.query import SHAPES
from mta_viz.analysis.kernels.table import kernel_of, kernel_table
from mta_viz.analysis.labs.task_samples import task_prompts
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import PromptError, TokenizerError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import capture
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tokenizers.builtin import CharTokenizer
from tests.tiny_models import random_weights

IDS = (5, 2, 9, 5, 7, 2, 5, 1, 9, 5, 2)


def model(sign: float, taps: dict[tuple[int, int], float], where: str = "pre") -> HookedMTA:
    """One layer, one head; the same token scores about `sign` x 4, another 0. `taps` by (query, key)."""
    kernel = (6, 7) if where == "pre" else (3, 5)
    config = ModelConfig(
        d_model=16, n_layers=1, n_heads=1, n_kv_heads=1, d_head=16, d_mlp=8, vocab_size=16,
        rope_theta=1e9, mta=MTAOptions(**{f"{where}_kernel": kernel}),
    )  # fmt: skip
    weights = {name: torch.zeros_like(value) for name, value in random_weights(config).items()}
    weights |= {name: torch.ones_like(value) for name, value in weights.items() if "ln" in name}
    weights["embed.weight"] = torch.eye(16)
    weights["blocks.0.attn.wk.weight"] = torch.eye(16)
    weights["blocks.0.attn.wq.weight"] = sign * torch.eye(16)
    offsets = kernel_offsets(config, *kernel)
    for (query, key), tap in taps.items():
        weights[f"blocks.0.attn.kernel_{where}"][0, offsets.query.index(query), offsets.key.index(key)] = tap
    built = HookedMTA(config).requires_grad_(False).eval()
    built.load_state_dict(weights)
    return built


def measured(built: HookedMTA, *prompts: tuple[int, ...]) -> AtMatches:
    rows = kernel_table(built.state_dict(), built.config)
    (at,) = measure_matches(rows, (capture(built, ids) for ids in prompts or (IDS,)), 1).values()
    return at


INDUCTION = {(0, 0): 1.0, **{(-n, -1 - n): -1.0 for n in range(3)}}


@pytest.mark.parametrize(("sign", "verb"), [(-1.0, "raises"), (1.0, "lowers")])
def test_a_negative_induction_raises_the_key_after_a_match_where_matches_are_negative(sign, verb):
    built = model(sign, INDUCTION)
    (row,) = kernel_table(built.state_dict(), built.config)
    assert row["shape"] == "negative induction" and row["own_tap"] == 1
    at = measured(built)
    assert at.target == Target(0, 1) and at.target.words == "the key after a match"
    assert at.gap.value * sign > 1 and at.effect.value * sign < -1
    assert at.action.startswith(f"{verb} the key after a match by ")
    assert f"a {'negative' if sign < 0 else 'positive'} tap lifts the cell" in at.sentence
    assert "One prompt: no interval." in at.sentence and math.isnan(at.effect.low)


@pytest.mark.parametrize("factor", [-2.0, 0.25, 4.0])
def test_what_the_other_taps_add_stays_when_a_factor_moves_between_queries_and_kernel(factor):
    taps = {(-n, -n): 1.0 for n in range(4)}
    moved = {place: tap / factor for place, tap in taps.items()}
    here, there = measured(model(1.0, taps)), measured(model(factor, moved))
    assert there.effect.value - there.own.value == pytest.approx(here.effect.value - here.own.value, rel=1e-4)
    assert here.own.value == 0 and abs(there.own.value) > 1


@pytest.mark.parametrize(("sign", "verb"), [(-1.0, "lowers"), (1.0, "raises")])
def test_the_mirror_case_a_positive_tap(sign, verb):
    taps = {place: abs(tap) for place, tap in INDUCTION.items()}
    assert measured(model(sign, taps)).action.startswith(f"{verb} the key after a match by ")


def test_an_own_tap_alone_acts_on_the_matched_key_by_its_gain_less_one():
    for tap, sign in ((1.0, -1.0), (2.5, -1.0), (-1.0, 1.0)):
        at = measured(model(sign, {(0, 0): tap}))
        assert at.target == Target(0, 0)
        assert at.effect.value == pytest.approx((tap - 1) * pooled(at, sign), rel=1e-4, abs=1e-6)
    assert measured(model(-1.0, {(0, 0): 1.0})).action == "leaves the matched key as it is"
    assert measured(model(-1.0, {(0, 0): 2.5})).action.startswith("lowers the matched key by ")


def pooled(at: AtMatches, sign: float) -> float:
    """The mean raw score of matching cells, each cell counting alike."""
    scores = capture(model(sign, {(0, 0): 1.0}), IDS).map(0, Stage.RAW, 0).double().numpy()
    return float(scores[matching_cells(IDS)].mean())


@pytest.mark.parametrize("tap", [-0.4, 0.4])
def test_after_the_softmax_the_sign_of_the_tap_is_the_sign_of_the_effect(tap):
    for sign in (-1.0, 1.0):
        at = measured(model(sign, {(0, 0): 1.0, (0, -1): tap}, "post"))
        assert at.kernel.where == "post" and at.target == Target(0, 1)
        assert at.effect.value * tap > 0 and at.match.value > 0 and at.gap.value * sign > 0
        assert "weights are not negative" in at.sentence


@pytest.mark.parametrize("seed", range(4))
def test_every_number_is_the_plain_sum_over_the_whole_maps(seed):
    """Random models and prompts, slabs and all, against loops over every cell."""
    config = ModelConfig(
        d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=7,
        mta=MTAOptions(pre_kernel=(3, 5), post_kernel=(2, 3), head_pre=True),
    )  # fmt: skip
    built = HookedMTA(config).requires_grad_(False).eval()
    weights = random_weights(config, seed)
    weights["blocks.1.attn.kernel_pre"][:, 2, 2] = 1.0
    weights["blocks.1.attn.kernel_pre"][0, 2, 0] = 3.0  # a match is written two keys later
    weights["blocks.1.attn.kernel_pre"][1, 0, 3] = -3.0  # and here two queries later, one key before
    built.load_state_dict(weights)
    ids = np.random.default_rng(seed).integers(0, 7, 40).tolist()
    trace, rows = capture(built, ids), kernel_table(built.state_dict(), config)
    of_all = measure_matches(rows, [trace])
    assert len(of_all) == 8
    assert of_all[KernelId(1, 0, "pre")].target == Target(0, 2)
    assert of_all[KernelId(1, 1, "pre")].target == Target(2, -1)
    own_taps = {kernel_of(row): row["own_tap"] for row in rows}
    for kernel, at in of_all.items():
        before = trace.map(kernel.layer, Stage.RAW if kernel.where == "pre" else Stage.SOFTMAX, kernel.head)
        after = trace.map(kernel.layer, MADE_BY[kernel.where], kernel.head)
        added, later, on = (after - before).double().numpy(), at.target.query, at.target.key
        cells = {
            (i + later, j + on)
            for i in range(40)
            for j in range(i)
            if ids[i] == ids[j] and i + later < 40 and 0 <= j + on <= i + later
        }
        assert at.cells == len(cells)
        assert at.effect.value == pytest.approx(np.mean([added[cell] for cell in cells]), abs=1e-5)
        under = np.mean([float(before[cell]) for cell in cells])
        assert at.own.value == pytest.approx((own_taps[kernel] - 1) * under, abs=1e-5)
        beside = [
            np.mean([added[i, key] for key in range(i + 1) if (i, key) not in cells])
            for i, _ in cells
            if any((i, key) not in cells for key in range(i + 1))
        ]
        assert at.elsewhere.value == pytest.approx(np.mean(beside), abs=1e-5)
        assert at.gap.value == pytest.approx(match_gap(before.double().numpy(), ids), abs=1e-5)
        assert at.gap.value == pytest.approx(at.match.value - at.other.value)
        assert at.under.value == pytest.approx(under, abs=1e-5)
        assert at.own.value == pytest.approx((own_taps[kernel] - 1) * at.under.value, abs=1e-5)
        if at.target == Target(0, 0):  # what it reads there is the match itself
            assert at.own.value == pytest.approx((own_taps[kernel] - 1) * at.match.value, abs=1e-5)


def test_planted_maps_redone_by_hand():
    raw = heads([[9.0], [1, 2], [5, 1, 3], [0, 7, 0, 1]], [[0.0], [0, 0], [0, 0, 0], [0, 0, 0, 0]])
    made = heads([[9.0], [1, 4], [5, 8, 3], [1, 7, 6, 1]], [[0.0], [0, 0], [0, 0, 0], [0, 0, 0, 0]])
    trace = planted([{Stage.RAW: raw, Stage.KQ: made}], (4, 8, 4, 8), FULL)
    row = {"layer": 0, "head": 0, "where": "pre", "shape": "negative induction", "own_tap": 2.0}
    (at,) = measure_matches([row], [trace]).values()
    assert at.gap.value == pytest.approx(((5 - 2) + (7 - 1 / 3)) / 2)  # row 2 matches key 0, row 3 key 1
    assert (at.effect.value, at.cells) == (pytest.approx((7 + 6) / 2), 2)  # cells (2, 1) and (3, 2)
    assert at.elsewhere.value == pytest.approx((0 + 1 / 3) / 2)
    assert at.own.value == pytest.approx((2 - 1) * (1 + 0) / 2)
    assert at.under.value == at.columns()["read_by_own_tap"] == pytest.approx((1 + 0) / 2)


def test_what_the_own_tap_adds_follows_from_the_numbers_beside_it():
    """Token 3 comes three times: its last row has two matches, which count as two."""
    raw = heads([[9.0], [1, 2], [4, 1, 3], [6, 7, 8, 1]], [[0.0], [0, 0], [0, 0, 0], [0, 0, 0, 0]])
    trace = planted([{Stage.RAW: raw, Stage.KQ: 3 * raw}], (3, 8, 3, 3), FULL)
    (at,) = measure_matches(
        [{"layer": 0, "head": 0, "where": "pre", "shape": "diagonal", "own_tap": 3.0}], [trace]
    ).values()
    assert at.match.value == at.under.value == pytest.approx((4 + 6 + 8) / 3)
    assert at.other.value == pytest.approx(((1 + 3) / 2 + 2 * (7 + 1) / 2) / 3)
    assert at.own.value == at.effect.value == pytest.approx((3 - 1) * at.match.value)
    assert "(+12 by its own tap, which meets +6 there, +0 by the others)" in at.sentence


def test_intervals_are_over_prompts_and_prompts_without_a_match_do_not_count():
    built = model(-1.0, INDUCTION)
    prompts = [IDS, (1, 2, 3, 4), (3, 1, 3, 2, 5), (2, 2, 1, 4)]
    at = measured(built, *prompts)
    each = [measured(built, ids).effect.value for ids in prompts if len(set(ids)) < len(ids)]
    assert at.effect.prompts == at.gap.prompts == 3
    assert at.effect.value == pytest.approx(np.median(each))
    assert (at.effect.low, at.effect.high) == (min(each), max(each)) and at.effect.level == 0.75
    assert "75 % interval" in at.sentence and "3 prompts." in at.sentence


def test_without_a_match_nothing_is_said():
    at = measured(model(-1.0, INDUCTION), (1, 2, 3, 4))
    assert at.action == "" and at.level is None and at.cells == 0
    assert at.sentence == "Not measured at matches: no token of the prompt comes again in it."
    assert at.columns()["effect_at_match"] is None and at.columns()["action"] is None


UP, UNSURE, NOTHING = (
    OverPrompts(1.0, 0.5, 1.5, 8),
    OverPrompts(1.0, -0.2, 2.2, 8),
    OverPrompts(0.0, 0.0, 0.0, 8),
)
DOWN, MORE = OverPrompts(-2.0, -2.5, -1.5, 8), OverPrompts(3.0, 2.0, 4.0, 8)


@pytest.mark.parametrize(
    ("where", "effect", "elsewhere", "above_row", "action"),
    [
        ("pre", UP, NOTHING, UP, "raises the key after a match by 1"),
        ("pre", UP, MORE, DOWN, "lowers the key after a match by 2 against the rest of its row"),
        ("pre", UNSURE, NOTHING, UP, "raises the key after a match by 1 against the rest of its row"),
        ("pre", UP, NOTHING, UNSURE,
         "neither raises nor lowers the key after a match clearly against its row (+1)"),
        ("post", UNSURE, NOTHING, UP, "neither raises nor lowers the key after a match clearly (+1)"),
        ("post", UP, MORE, DOWN, "raises the key after a match by 1, and the rest of its row by more, 3"),
        ("pre", NOTHING, NOTHING, NOTHING, "leaves the key after a match as it is"),
    ],
)  # fmt: skip
def test_the_verb_follows_the_numbers(where, effect, elsewhere, above_row, action):
    kernel = KernelId(0, 0, where)
    assert (
        AtMatches(kernel, Target(0, 1), UP, UP, UP, effect, elsewhere, above_row, UP, UP, 30).action == action
    )


def test_places_in_words():
    assert Target(1, -2).words == "the key 2 before a match, 1 query later"
    assert Target(2, 0).words == "the matched key, 2 queries later"


def test_every_name_has_a_place():
    dominant = {"dominant_query": -2, "dominant_key": 3}
    for shape in SHAPES:
        target = target_of({"shape": shape} | dominant)
        assert shape not in UNNAMED or target == Target(0, 0)
    assert target_of({"shape": "single tap"} | dominant) == Target(2, -3)
    assert target_of({"shape": "inhibition of return"} | dominant) == Target(1, 0)
    assert target_of({"shape": "negative diagonal"} | dominant) == Target(0, 0)
    assert target_of({"shape": "negative diagonal at +1"} | dominant) == Target(0, -1)
    assert target_of({"shape": "diagonal at -3"} | dominant) == Target(0, 3)


def test_broken_taps_are_not_measured_and_head_mixing_has_no_numbers():
    built = model(-1.0, {(0, 0): math.nan})
    rows = kernel_table(built.state_dict(), built.config)
    assert measure_matches(rows, [capture(built, IDS)]) == {}
    (row,) = with_matches(rows, {})
    assert tuple(row)[-len(matches.COLUMNS) :] == matches.COLUMNS
    assert all(row[name] is None for name in matches.COLUMNS)


def test_a_kernel_of_zeros_takes_the_match_away():
    at = measured(model(-1.0, {}))
    assert at.effect.value == pytest.approx(at.own.value) == pytest.approx(-pooled(at, -1.0), rel=1e-4)
    assert at.action.startswith("raises the matched key by ")  # matches are negative here


def test_the_notebook_takes_a_prompt_a_trace_or_a_task():
    built = model(-1.0, INDUCTION)
    plain, table = mta_viz.kernels(built), mta_viz.kernels(built, IDS)
    assert tuple(table) == (*plain, *matches.COLUMNS)
    assert table.equals(mta_viz.kernels(built, capture(built, IDS)))
    assert table["effect_at_match"][0] == pytest.approx(measured(built).effect.value)
    assert table["match_key"][0] == 1 and table["match_cells"].dtype == "Int64"
    with pytest.raises(PromptError, match="not both"):
        mta_viz.kernels(built, IDS, task="needle")
    with pytest.raises(TokenizerError, match="tokenizer"):
        mta_viz.kernels(built, task="needle")


def test_the_notebook_measures_at_the_task_that_fits_as_the_command_does(tmp_path):
    """A character model on blocks: the runs of the task's prompts, without their answers."""
    config = ModelConfig(
        d_model=16, n_layers=1, n_heads=1, n_kv_heads=1, d_head=16, d_mlp=8, vocab_size=32, n_ctx=512,
        mta=MTAOptions(pre_kernel=(2, 3)),
    )  # fmt: skip
    built = HookedMTA(config).requires_grad_(False).eval()
    built.load_state_dict(random_weights(config, seed=1))
    built.tokenizer = CharTokenizer()
    setting, prompts = task_prompts(built, "blocks", 2, seed=3, usual=20)
    whole = BlockTask().sample_range(0, 2, 3).tokens.tolist()
    assert [list(prompt.ids) for prompt in prompts] == [ids[: -BlockTask().n_answer] for ids in whole]
    assert "blocks of" in setting
    table = mta_viz.kernels(built, task="blocks", samples=2, seed=3)
    (at,) = measure_matches(
        kernel_table(built.state_dict(), config), (capture(built, ids) for ids in prompts)
    ).values()
    assert table["match_gap"][0] == pytest.approx(at.gap.value) and table["match_prompts"][0] == 2
    with pytest.raises(PromptError, match="the task that fits it is blocks"):
        mta_viz.kernels(built, task="needle")

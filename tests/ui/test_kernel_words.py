"""What a kernel's card says, as functions of its row, its probe and its measured effect."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mta_viz.analysis.attention.matches import AtMatches, OverPrompts, Target
from mta_viz.analysis.cause.effects import Absent, Effect, Effects, Estimate, MedianEstimate
from mta_viz.analysis.cause.shapley import KernelValue, Shapley
from mta_viz.analysis.cause.shapley_file import TaskShapley
from mta_viz.analysis.kernels.kernels import KernelId, Offsets
from mta_viz.analysis.kernels.naming import name_kernels
from mta_viz.analysis.kernels.probes import run_probe
from mta_viz.model.interventions import KernelToIdentity, KernelToOwnTap, MixingToIdentity
from mta_viz.ui.kernels import card as words
from mta_viz.ui.kernels import parts as matters
from mta_viz.ui.kernels.parts import matters_sentence
from tests.ui.driver import fine, said

PRE, ROW, OTHER = KernelId(1, 2, "pre"), KernelId(0, 3, "head_post"), KernelId(3, 0, "post")
SIX, TWO = Offsets(tuple(range(-5, 1)), tuple(range(-5, 6))), Offsets((-1, 0), tuple(range(-4, 5)))


def table() -> Effects:
    fall, nothing = Estimate(-0.879, -0.93, -0.8), Estimate(0.001, -0.03, 0.03)
    never = Estimate(math.nan, math.nan, math.nan)

    def mean(value: float) -> Estimate:
        return Estimate(value, math.nan, math.nan)

    effects = (
        Effect(
            (KernelToIdentity(1, 2, "pre"),), 0.12, fall, mean(-3.2), MedianEstimate(-3.0, -4.0, -2.5, 0.96)
        ),
        Effect((MixingToIdentity(0, "head_post", 3),), 1.0, nothing, mean(0.0)),
        Effect((MixingToIdentity(0, "head_post"), KernelToIdentity(1, 2, "pre")), 0.0, never, never),
    )
    return Effects("x", "needle", 120, 0, "4 needles in 512 tokens", "0", 0.999, -0.01, effects)


def diagonal() -> np.ndarray:
    taps = np.random.default_rng(0).normal(0, 0.1, (6, 11))
    for lag in range(6):
        taps[5 - lag, 5 - lag] = 3
    return taps


def row_of(taps: np.ndarray, offsets: Offsets) -> dict:
    (shape,) = name_kernels(taps[None], offsets)
    scores = {name.replace("-", "_"): value for name, value in shape.scores.items()}
    facts = {"shape": shape.shape, "faint": shape.faint, "evidence": shape.evidence, "verdict": shape.verdict}
    facts["names"] = shape.names
    return facts | {"c_q": taps.shape[0], "c_k": taps.shape[1]} | scores


def test_the_sentence_says_what_falls_how_sure_and_the_rank():
    assert matters_sentence(table(), PRE) == (
        "Matters: set to identity, accuracy on the needle task falls from 0.999 to 0.120 (−0.879, 95 % "
        "interval −0.930 to −0.800, 120 samples); log-probability of the answer −3.20 nats in "
        "the mean, median −3.00 (95 % interval −4.00 to −2.50): rank 1 of 2 kernels by the mean."
    )


def test_an_interval_that_holds_0_shows_no_change():
    assert matters_sentence(table(), ROW) == (
        "Matters: with its row at identity, accuracy on the needle task is 0.999 with it and 1.000 without; "
        "the interval of the change holds 0 (+0.001, 95 % interval −0.030 to +0.030, 120 samples); "
        "log-probability of the answer +0.000 nats in the mean: rank 2 of 2 kernels by the mean."
    )


@pytest.mark.parametrize("effects", [Absent("none"), table()])
def test_without_a_measurement_the_verdict_is_not_tested(effects):
    assert matters_sentence(effects, OTHER) == "Matters: not tested yet."


def test_a_diagonal_looks_and_acts_like_one():
    row, result = row_of(diagonal(), SIX), run_probe(diagonal(), SIX, "diagonal")
    title = words.title(KernelId(1, 3, "pre"), row, True, 1)
    assert title == "L2 H4 · before the softmax · 6x11 · diagonal (sequence match)"
    sentence = words.acts_like(row, result, 0.99, 16)
    assert "On a repeated 6-gram the full match gets" in sentence and "is above" in sentence
    assert "doubtful" not in sentence and "above 99% of the model's other 15 kernels" in sentence
    assert words.looks(row, True, SIX).startswith("Looks like: diagonal +1.00, p 0.001; next template: ")


def negative_induction() -> np.ndarray:
    taps = np.zeros((6, 11))
    taps[5, 5] = 1
    for lag in range(5):
        taps[5 - lag, 4 - lag] = -0.9
    return taps


def at_matches(gap: float, effect: float) -> AtMatches:
    match, none = OverPrompts(gap, math.nan, math.nan, 1), OverPrompts(0.0, math.nan, math.nan, 1)
    added = OverPrompts(effect, math.nan, math.nan, 1)
    return AtMatches(
        KernelId(0, 3, "pre"), Target(0, 1), match, none, match, added, none, added, match, none, 12
    )


def test_a_title_says_which_way_a_kernel_acts_as_measured():
    row, kernel = row_of(negative_induction(), SIX), KernelId(0, 3, "pre")
    size = "L0 H3 · before the softmax · 6x11"
    shape = f"{size} · negative induction (the key after a match, taps against the own tap)"
    assert words.title(kernel, row, True, 0) == shape
    raised = words.title(kernel, row, True, 0, at_matches(-1.48, 4.29))
    assert raised == f"{shape} · raises the key after a match by 4.29 on this prompt"
    assert "lowers the key after a match by 4.29" in words.title(
        kernel, row, True, 0, at_matches(1.48, -4.29)
    )


def test_a_probe_at_the_measured_level_says_what_the_kernel_does_there():
    row = row_of(negative_induction(), SIX)
    result = run_probe(negative_induction(), SIX, "negative induction", -1.48)
    sentence = words.acts_like(row, result, 0.99, 16)
    assert "The key after a repeated 6-gram gets +6.66" in sentence
    assert "for a match of −1.48, the measured level" in sentence
    assert "The shape itself, at matches of +1: " in sentence


def test_two_rows_cannot_show_a_diagonal():
    taps = np.random.default_rng(0).normal(0, 1, (2, 9))
    words_of_two = words.looks(row_of(taps, TWO), None, TWO)
    assert "A two-row kernel cannot show a diagonal or priming" in words_of_two


def test_kernels_of_zeros_and_with_nan_say_so():
    zero, broken = np.zeros((6, 11)), diagonal()
    broken[0, :2] = np.nan
    assert words.broken(row_of(zero, SIX), zero).startswith("All taps are 0: this head's map is erased here")
    assert words.broken(row_of(broken, SIX), broken).startswith("NaN or infinite in 2 taps")
    assert words.broken(row_of(diagonal(), SIX), diagonal()) == ""


def test_a_long_measurement_waits_for_its_button(open_app, monkeypatch):
    monkeypatch.setattr(matters, "ASK_FROM", 0.0)
    app = open_app("tiny-mta", "Hello, waiting", "pages/kernels.py", layer=1, head=2, place="pre")
    fine(app)
    assert "The answer “" not in said(app)
    app.button(key="kernel-effect").click().run()
    fine(app)
    assert "The answer “" in said(app) and "final attention lies on other keys" in said(app)


def test_the_kernel_at_its_own_tap_is_said_to_be_so():
    (first, *others) = table().effects
    own = replace(
        table(), edit="own-tap", effects=(replace(first, plan=(KernelToOwnTap(1, 2, "pre"),)), *others)
    )
    assert matters_sentence(own, PRE).startswith(
        "Matters: with its own tap alone, accuracy on the needle task falls"
    )


def test_the_same_edit_on_two_samples_says_which_each_is_of():
    own = replace(table().effects[0], plan=(KernelToOwnTap(1, 2, "pre"),))
    own_tap = replace(table(), samples=90, effects=(own,), edit="own-tap")
    sentence = matters.edits_sentence(table(), own_tap, PRE)
    assert sentence.startswith("At its own tap only, gain and sign kept (the table's 90 samples): −3.20 nats")
    value = KernelValue(1, 2, "pre", 0.5, 2.0, 1.5, 0.25)
    shared = Shapley("own-tap", 16, 40, -0.1, -8.1, 1.0, 0.0, (value,), ())
    assert matters.worth_sentence(TaskShapley("x", "needle", "", 0, shared), PRE) == (
        "On Shapley's 16 samples a kernel taken out keeps its own tap only: its shape goes, its gain and "
        "sign stay. Alone removed (necessary): −0.500 nats. All others removed (sufficient): it gives +2.00 "
        "of the +8.00 that all kernels give together. Shapley value +1.50, standard error 0.25 (a sweep "
        "in the workspace has all kernels)."
    )

"""Answers under plans: the same numbers as plain runs of edited models; sets found are checked by hand."""

import itertools
import math

import pytest
import torch

import mta_viz
from mta_viz.analysis.cause.answers import (
    AnswerMeter,
    answer_after,
    asked_value,
    log_odds,
    rerun,
    unchanged_without_a_plan,
)
from mta_viz.analysis.cause.sweeps import (
    RANDOM_SETS,
    SweepRow,
    ablate,
    greedy_set,
    heads_alone,
    heads_patched,
    kernels_alone,
    mixing_alone,
    sweep,
)
from mta_viz.errors import Cancelled, ConfigError, PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import AblateHead, BypassGate, KernelToIdentity, MixingToIdentity, PatchHead
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.run.tracing import capture, score
from mta_viz.tokenizers.builtin import BytesTokenizer
from tests.tiny_models import FULL, config, random_weights

PROMPT = "Hello, hell"
PLAN = (KernelToIdentity(1, 2, "pre"), AblateHead(2, 1), BypassGate(3))


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    """4 layers x 4 heads over bytes, kernels in layers 1 and 3, group norm and gate."""
    made = HookedMTA(config(FULL, 258)).requires_grad_(False).eval()
    made.load_state_dict(random_weights(made.config))
    made.tokenizer = BytesTokenizer()
    return made


@pytest.fixture(scope="module")
def meter(model: HookedMTA) -> AnswerMeter:
    """Of the answer "o!" after the prompt: two tokens."""
    trace = capture(model, PROMPT)
    return AnswerMeter(trace, answer_after(trace, "o!"))


def by_hand(model: HookedMTA, answer: str = "o!") -> float:
    """Log-probability of the answer from one plain forward of all of it."""
    ids = [256, *PROMPT.encode(), *answer.encode()]
    logs = score(model, torch.tensor([ids]))[0].double().log_softmax(-1)
    return sum(float(logs[at - 1, ids[at]]) for at in range(1 + len(PROMPT), len(ids)))


def test_an_answer_of_several_tokens_is_measured_as_a_whole(model: HookedMTA, meter: AnswerMeter):
    assert meter.answer.ids == (ord("o"), ord("!"))
    assert meter.before == pytest.approx(by_hand(model), abs=1e-5)
    assert meter.log_probability(PLAN) == pytest.approx(by_hand(edited(model, PLAN)), abs=1e-5)
    assert abs(meter.log_probability(PLAN) - meter.before) > 1e-3


def test_the_board_tells_both_runs(model: HookedMTA):
    board = ablate(model, PROMPT, PLAN).board
    trace, other = capture(model, PROMPT), capture(edited(model, PLAN), PROMPT)
    first, second = (run.logits()[-1].softmax(0) for run in (trace, other))
    ids = [one.id for one in board.top]
    assert ids[:5] == first.topk(5).indices.tolist() and set(ids[5:]) <= set(second.topk(5).indices.tolist())
    assert set(second.topk(5).indices.tolist()) <= set(ids) and len(set(ids)) == len(ids)
    for one in board.top:
        assert one.before == pytest.approx(float(first[one.id]), abs=1e-5)
        assert one.after == pytest.approx(float(second[one.id]), abs=1e-5)
    assert board.answer.ids == (int(trace.logits()[-1].argmax()),) and board.answer.source == "likeliest"
    p, q = math.exp(board.before), math.exp(board.after)
    assert board.log_odds_change == pytest.approx(math.log(q / (1 - q)) - math.log(p / (1 - p)))
    assert log_odds(0.0) == math.inf


def test_a_rerun_is_a_run_of_the_edited_model(model: HookedMTA):
    trace = capture(model, PROMPT)
    for plan in (PLAN, (), (PatchHead(1, 0, "final", "Hallo, holl"), *PLAN)):
        again = rerun(trace, plan)
        want = capture(again.model, PROMPT)
        torch.testing.assert_close(again.residuals, want.residuals)
    shares: list[float] = []
    rerun(trace, (AblateHead(2, 0),), shares.append)
    assert shares == [0.5, 1.0]


def test_an_empty_plan_is_bit_equal(model: HookedMTA):
    trace = capture(model, PROMPT)
    assert unchanged_without_a_plan(trace)
    changed = capture(edited(model, PLAN), PROMPT)
    assert not unchanged_without_a_plan(type(trace)(trace.tokens, changed.residuals, model))
    board = ablate(model, PROMPT).board
    assert board.after == board.before and all(one.before == one.after for one in board.top)


def test_sweeps_try_everything_once(model: HookedMTA, meter: AnswerMeter):
    shapes = model.config
    assert len(set(kernels_alone(shapes))) == len(kernels_alone(shapes)) == 2 * 4 * 2
    assert len(set(heads_alone(shapes))) == 16
    rows = mixing_alone(shapes)
    assert len(set(rows)) == 2 * 4 * 4 and all(one.head is not None for one in rows)
    shares: list[float] = []
    tried = (KernelToIdentity(3, 0, "pre"), AblateHead(0, 1), MixingToIdentity(0, "head_pre", 1))
    found = sweep(meter, tried, shares.append)
    assert shares == [pytest.approx(1 / 9), pytest.approx(5 / 9), 1.0]  # by the layers run
    for row in found:
        want = by_hand(edited(model, [row.intervention]))
        assert row.log_probability == pytest.approx(want, abs=1e-5)
        assert row.change == pytest.approx(want - meter.before, abs=1e-5)


def test_a_sweep_of_patches_runs_the_other_prompt_once(model: HookedMTA, meter: AnswerMeter, monkeypatch):
    tried = heads_patched(model.config, "Hallo, holl")
    assert len(tried) == 16 and {one.stage for one in tried} == {"z"}
    runs: list[object] = []
    hooks = tracing.run_hooks
    monkeypatch.setattr(tracing, "run_hooks", lambda *given: runs.append(given) or hooks(*given))
    found = sweep(meter, tried[:3])
    assert len(runs) == 1
    want = [meter.log_probability((one,)) for one in tried[:3]]
    assert [row.log_probability for row in found] == pytest.approx(want)


def test_a_sweep_stops_when_asked(meter: AnswerMeter):
    def stop(share: float) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        sweep(meter, heads_alone(meter.trace.model.config), stop)


def test_the_needed_set_takes_the_answer_down_and_none_of_it_is_spare(model: HookedMTA, meter: AnswerMeter):
    alone = sorted(sweep(meter, kernels_alone(model.config)), key=lambda row: row.change)[:8]
    fall = -1.2 * min(row.change for row in alone)  # more than any of them does alone
    assert fall > 0
    found = greedy_set(meter, alone, fall=fall)
    assert found.reached and found.change <= -fall and len(found.plan) > 1
    assert meter.log_probability(found.plan) - meter.before == pytest.approx(found.change)
    for one in found.plan:
        rest = tuple(other for other in found.plan if other != one)
        assert meter.log_probability(rest) - meter.before > -fall
    size = len(found.plan)
    possible = math.comb(len(alone), size) - 1
    assert len(found.random) == min(RANDOM_SETS, possible)
    every = {
        round(meter.log_probability(chosen) - meter.before, 6)
        for chosen in itertools.combinations([row.intervention for row in alone], size)
    }
    assert {round(change, 6) for change in found.random} <= every - {round(found.change, 6)}


class Told(AnswerMeter):
    """A meter that reads changes from a table."""

    def __init__(self, changes: dict[str, float]) -> None:
        self.before, self.changes = 0.0, changes

    def log_probability(self, plan, sources=None) -> float:
        return self.changes["".join(sorted("abc"[one.head] for one in plan))]


def test_what_the_greedy_set_can_do_without_is_taken_out():
    told = Told({"a": -2.0, "b": -1.5, "c": -1.4, "ab": -2.4, "ac": -2.2, "bc": -3.0, "abc": -3.5})
    alone = [
        SweepRow(KernelToIdentity(0, head, "pre"), change, change)
        for head, change in enumerate((-2.0, -1.5, -1.4))
    ]
    found = greedy_set(told, alone, fall=2.9)  # a, then b, then c; and b and c do it without a
    assert found.plan == (KernelToIdentity(0, 1, "pre"), KernelToIdentity(0, 2, "pre"))
    assert (found.change, found.everything) == (-3.0, -3.5) and sorted(found.random) == [-2.4, -2.2]


def test_a_set_that_cannot_be_found_is_said(meter: AnswerMeter):
    alone = sweep(meter, kernels_alone(meter.trace.model.config))
    found = greedy_set(meter, alone, fall=1e6)
    assert not found.reached and len(found.plan) == 16 and found.random == ()  # no other set of all 16
    assert greedy_set(meter, (), fall=1.0).reached is False


def test_the_answer_of_a_needle_prompt_is_its_number(model: HookedMTA):
    text = "The magic number of Rome is 12. The magic number of Oslo is 7. The magic number of Rome is"
    trace = capture(model, text)
    assert asked_value(trace.tokens) == "12"
    answer = answer_after(trace)
    assert (answer.text, answer.source, bytes(answer.ids)) == (" 12", "needle", b" 12")
    assert asked_value(capture(model, PROMPT).tokens) is None


def test_answers_and_sweeps_that_are_none_are_refused(model: HookedMTA):
    with pytest.raises(PromptError, match="has 40 tokens; expected 1 to 32"):
        ablate(model, PROMPT, answer="a" * 40)
    with pytest.raises(ConfigError, match="no sweep over tails"):
        ablate(model, PROMPT, sweeps=("tails",))
    with pytest.raises(ConfigError, match="layer 0 has no pre kernel"):
        ablate(model, PROMPT, [KernelToIdentity(0, 0, "pre")])
    bare = edited(model, ())
    bare.tokenizer = None
    with pytest.raises(PromptError, match="needs the model's tokenizer"):
        ablate(bare, [1, 2], answer="a")
    assert mta_viz.ablate(bare, [1, 2]).board.answer.source == "likeliest"

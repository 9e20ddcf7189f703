"""Questions through a model: spans of facts, the gold probability by hand, accuracy of known answerers."""

import json
import math
import random

import pytest
import torch
from lab_models import byte_model

from mta_viz.analysis.labs import evaluation as questions
from mta_viz.analysis.labs.evaluation import (
    NEW_TOKENS,
    QuestionAnswer,
    QuestionScore,
    answers_table,
    evaluate_questions,
    gold_probability,
    run_question,
    trained_for_questions,
)
from mta_viz.analysis.labs.finder import prompt_spans, sample_parts
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.errors import Cancelled, ConfigError, PromptError
from mta_viz.run.tracing import generate, score
from mta_viz.tasks.intervals import accuracy_interval
from mta_viz.tasks.questions import QuestionTask, make_question_sample, score_output

TASK = QuestionTask("qa2", 150)


@pytest.fixture(scope="module")
def model():
    return byte_model()


@pytest.fixture(scope="module")
def sample(model):
    return make_question_sample(model.tokenizer, TASK, 1)


def test_a_run_has_the_answer_of_generate_judged_and_the_facts_as_parts(model, sample):
    stages = []
    run = run_question(model, TASK, 1, begin=stages.append)
    assert run.sample == sample and len(stages) == 3
    said = model.tokenizer.decode(generate(model, sample.tokens, NEW_TOKENS))
    assert run.continuation == said
    assert run.scored == score_output(said, sample.answer, sample.question.text, sample.labels)
    parts = run.finder.parts
    assert [(one.start, one.stop) for one in parts.all] == [(one.start, one.stop) for one in sample.facts]
    supports = [one for one in parts.all if one.name.endswith("(support)")]
    assert len(supports) == 2 and parts.asked == supports[-1]
    assert parts.query == len(sample.tokens) - 1
    assert run.finder.n_null > 0 and run.probability == gold_probability(model, sample) > 0


def test_the_gold_probability_is_the_product_over_its_tokens(model, sample):
    ids = sample.tokens.ids + sample.answer_ids
    chances = score(model, torch.tensor([ids]))[0].double().softmax(-1)
    product = 1.0
    for place in range(len(sample.tokens), len(ids)):
        product *= float(chances[place - 1, ids[place]])
    assert gold_probability(model, sample) == pytest.approx(product, rel=1e-3, abs=0)  # about 1e-20


def test_spans_are_found_again_in_other_tokens(model, sample):
    own = prompt_spans(sample)
    assert own[:-1] == sample_parts(sample).all and own[-1].letter == "?"
    longer = model.tokenizer.encode("So. " + sample.tokens.text)
    moved = prompt_spans(sample, longer)
    assert [one.start - other.start for one, other in zip(moved, own, strict=True)] == [4] * len(own)


def answering(monkeypatch, say):
    """`evaluate_questions` with answers of `say(sample)`."""
    monkeypatch.setattr(questions, "greedy_answer", lambda model, tokenizer, sample, progress: say(sample))


@pytest.mark.parametrize("name", ["qa1", "qa5"])
def test_an_oracle_scores_all_and_a_guesser_what_chance_says(model, monkeypatch, name):
    task, rng = QuestionTask(name, 0), random.Random(f"guesses {name}")
    answering(monkeypatch, lambda sample: f" {sample.answer}.")
    found = evaluate_questions(model, task, n=40)
    assert found.accuracy == NeedleScore(40, 40, 1.0, accuracy_interval(40, 40)) and found.silent == 0
    answering(monkeypatch, lambda sample: f" {rng.choice(sample.labels)}.")
    guessed, n = evaluate_questions(model, task, n=150), 150
    spread = math.sqrt(n * task.chance * (1 - task.chance))
    assert abs(guessed.accuracy.right - n * task.chance) < 3.3 * spread  # beyond it once in 1,000
    assert guessed.chance == task.chance
    answering(monkeypatch, lambda sample: " nobody knows.")
    silent = evaluate_questions(model, task, n=5)
    assert silent.accuracy.accuracy == 0.0 and silent.silent == 5


def test_results_are_handed_over_one_by_one_and_stay_when_stopped(model, monkeypatch):
    answering(monkeypatch, lambda sample: sample.answer)
    kept = []

    def stop(share):
        if share >= 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        evaluate_questions(model, QuestionTask("qa4", 0), n=4, seed=7, keep=kept.append, progress=stop)
    assert [one.accuracy.n for one in kept] == [1, 2] and kept[-1].accuracy.accuracy == 1.0
    assert [one.seed for one in kept[-1].answers] == [7, 8]


def test_what_cannot_be_asked_is_refused(model):
    with pytest.raises(ConfigError, match="n is 0"):
        evaluate_questions(model, TASK, n=0)
    with pytest.raises(PromptError, match="too few for a word"):
        evaluate_questions(model, QuestionTask("qa1", 1), n=1)


def test_answers_as_csv():
    answer = QuestionAnswer(3, "Where is Keiko? Answer:", "pantry", "in the pantry, or the turret",
                            ("pantry", "turret"), False)  # fmt: skip
    text = answers_table([QuestionScore("qa1", 64, 1 / 6, (answer,))]).csv()
    assert text.splitlines() == [
        "task,distraction,sample,question,gold,first_sentence,named,right",
        'qa1,64,3,Where is Keiko? Answer:,pantry,"in the pantry, or the turret",pantry turret,0',
    ]


def test_only_a_card_that_names_the_task_says_that_it_was_trained(tmp_path):
    assert not trained_for_questions(None) and not trained_for_questions(tmp_path)
    for content, trained in (("{", False), ("[]", False), ('{"task": "needle"}', False)):
        (tmp_path / "card.json").write_text(content)
        assert trained_for_questions(tmp_path) is trained
    (tmp_path / "card.json").write_text(json.dumps({"task": "questions"}))
    assert trained_for_questions(tmp_path)

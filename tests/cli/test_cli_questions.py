"""`questions`: the numbers of the Python call, every answer as CSV, and refusals."""

import csv

import pytest
from cli_support import assert_refused

from mta_viz.analysis.labs.evaluation import NOT_TRAINED, answers_table, evaluate_questions
from mta_viz.checkpoint.native import write_native
from mta_viz.cli import questions
from mta_viz.run.tracing import load
from mta_viz.tasks.questions import QuestionTask
from mta_viz.tasks.stories import TASKS
from tests.tiny_models import FULL, config, random_weights


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A model that reads bytes."""
    folder = tmp_path_factory.mktemp("writer") / "bytes"
    shapes = config(FULL, 258)
    write_native(
        folder, shapes, random_weights(shapes), tokenizer_name="bytes", tokenizer_path=None, dtype=None
    )
    return folder


def test_the_command_says_what_the_call_says(run, writer, tmp_path):
    file = tmp_path / "answers.csv"
    options = ("--task", "qa4,QA1,qa4", "--length", 0, "--samples", 2, "--seed", 5)
    answer = run("questions", writer, *options, "--out", file)
    assert answer.status == 0, answer.err
    assert NOT_TRAINED in answer.err and answer.json["trained_for_questions"] is False
    model = load(writer)
    scores = [evaluate_questions(model, QuestionTask(name, 0), n=2, seed=5) for name in ("qa4", "qa1")]
    for told, score in zip(answer.json["tasks"], scores, strict=True):
        assert (told["task"], told["distraction"], told["n"]) == (score.task, 0, 2)
        assert (told["right"], told["accuracy"]) == (score.accuracy.right, score.accuracy.accuracy)
        assert (told["interval"], told["chance"]) == (list(score.accuracy.interval), score.chance)
        assert told["names_no_label"] == score.silent and told["about"] == TASKS[score.task]
    assert file.read_text() == answers_table(scores).csv()
    with file.open() as lines:
        assert [row["sample"] for row in csv.DictReader(lines)] == ["5", "6", "5", "6"]


def test_bad_input_is_refused(run, writer, folder, tmp_path):
    assert_refused(run("questions", writer, "--task", "qa6"), "no task 'qa6'", "qa1, qa2")
    assert_refused(run("questions", writer, "--length", "-3"), "whole number from 0 to 100,000")
    assert_refused(run("questions", writer, "--length", 10**6), "whole number from 0 to 100,000")
    assert_refused(run("questions", writer, "--task", "qa1", "--length", 1), "too few for a word")
    assert_refused(run("questions", writer, "--haystack", tmp_path / "none"), "is missing")
    (tmp_path / "short.txt").write_text("One sentence. Two.")
    short = ("--haystack", tmp_path / "short.txt", "--length", 900)
    assert_refused(run("questions", writer, *short), "tokens too short")
    assert_refused(run("questions", folder, "--length", 0), "has no token for")  # a model of single letters
    assert_refused(run("questions", writer, "--out", tmp_path / "short.txt"), "exists", "--force")


def test_the_flags_know_the_tasks():
    assert tuple(TASKS) == questions.TASKS

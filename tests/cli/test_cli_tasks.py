"""`--task` in every command that measures at one: pairs, and a file of prompts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_support import assert_refused

from mta_viz.analysis.cause.effects import read_effects
from mta_viz.analysis.cause.shapley_file import read_shapley
from mta_viz.analysis.labs.sweep_file import read_sweep
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from tests.tiny_models import config, random_weights

PAIRS = "3 names x 3 cities in 700 tokens, the asked sentence at 0, 25, 50, 75, 100 % in turn"


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """A model with kernels in one layer, bytes as tokens."""
    folder = tmp_path_factory.mktemp("reader") / "reader"
    shapes = replace(config(MTAOptions(pre_kernel=(2, 3), mta_layers=(1,)), 258), n_ctx=1400)
    weights = random_weights(shapes)
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> Path:
    """Three prompts of two lengths."""
    file = tmp_path_factory.mktemp("lines") / "sums.jsonl"
    samples = [{"prompt": f"{a} + {b} =", "answer": str(a + b)} for a, b in ((1, 2), (10, 3), (2, 2))]
    file.write_text("\n".join(map(json.dumps, samples)))
    return file


def test_effects_and_shapley_values_say_which_task_they_are_of(run, reader, lines, tmp_path):
    for task, setting, n in (("pairs", PAIRS, 2), (lines, "prompts of sums.jsonl (sha256 ", 3)):
        name = task if task == "pairs" else "file"
        more = ("--samples", 2) if task == "pairs" else ()  # of a file all it has
        answer = run("effects", reader, "--task", task, *more, "--out", tmp_path / f"{name}.json")
        assert answer.status == 0, answer.err
        kept = read_effects(tmp_path / f"{name}.json")
        assert (kept.task, kept.samples) == (name, n) and kept.setting.startswith(setting)
    out = tmp_path / "shapley.json"
    answer = run("shapley", reader, "--task", lines, "--most", 2, "--out", out)
    assert answer.status == 0, answer.err
    worth = read_shapley(out)
    assert (worth.task, worth.shared.n_samples) == ("file", 3) and worth.setting == kept.setting
    refused = run("effects", reader, "--task", lines, "--samples", 4, "--out", tmp_path / "no.json")
    assert_refused(refused, "4 samples from number 0 on are asked for", "there are 3")
    other = run("effects", reader, "--task", lines, "--out", tmp_path / "pairs.json")
    assert_refused(other, "another measurement (task, samples, setting differ)")


@pytest.mark.parametrize("command", ["effects", "shapley", "kernels"])
def test_the_length_of_a_files_prompts_is_not_asked_for(run, reader, lines, command):
    assert_refused(run(command, reader, "--task", lines, "--length", 99), "--length is of the tasks needle")


def test_kernels_are_measured_on_pairs_and_on_a_file(run, reader, lines):
    pairs = run("kernels", reader, "--task", "pairs", "--samples", 2)
    assert pairs.json["matches"] == {"of": PAIRS, "prompts": 2, "prompts_with_matches": 2}
    written = run("kernels", reader, "--task", lines, "--seed", 1)
    assert written.json["matches"]["prompts"] == 2


def test_evaluation_says_accuracy_chance_and_what_wrong_answers_were(run, reader, lines):
    pairs = run("evaluate", reader, "--task", "pairs", "--samples", 2).json
    assert (pairs["n_names"], pairs["n_cities"], pairs["length"]) == (3, 3, 700)
    assert pairs["chance"] == {"one_word": pytest.approx(1 / 3), "any_number": pytest.approx(1 / 9)}
    for words in ("known", "held_out"):
        score = pairs[words]["score"]
        assert score["n"] == 2 and score["right"] + sum(pairs[words]["wrong"].values()) == 2
    written = run("evaluate", reader, "--task", lines).json
    assert (written["task"], written["samples"], written["score"]["n"]) == ("file", 3, 3)
    assert_refused(
        run("evaluate", reader, "--task", "blocks", "--length", 9), "--length is of the pairs task"
    )


def test_a_sweep_has_grids_of_pairs_or_the_samples_of_a_file(run, reader, lines, tmp_path):
    out = tmp_path / "pairs.json"
    sizes = ("--needles", "1,4", "--lengths", 400, "--depths", "0,100", "--samples", 1)
    answer = run("needle", reader, "--task", "pairs", *sizes, "--out", out)
    assert answer.status == 0, answer.err
    assert [row["needles"] for row in answer.json["models"][0]["by_needles"]] == [1, 4]
    kept = read_sweep(out)
    assert kept.kind == "pairs" and kept.needle == "The number that {name} has in {city} is {value}."
    again = run("needle", reader, "--task", "pairs", *sizes, "--out", out)
    assert again.json["models"][0]["run_now"] == 0
    written = run("needle", reader, "--task", lines, "--out", tmp_path / "file.json")
    (row,) = written.json["models"][0]["settings"]
    assert (row["needles"], row["length"], row["depth"], row["n"]) == (None, None, None, 3)
    assert written.json["models"][0]["by_needles"] == written.json["models"][0]["by_place"] == []
    assert [sample.seed for sample in read_sweep(tmp_path / "file.json").models[0].samples] == [0, 1, 2]
    assert_refused(run("needle", reader, "--task", lines, "--out", out), "another template or haystack")


def test_a_conjunction_is_tested_on_pairs(run, reader):
    answer = run("conjunction", reader, "--task", "pairs", "--samples", 1, "--length", 700)
    assert answer.status == 0, answer.err
    first = answer.json["first"]
    name, city, *_ = first["words"]
    assert first["span"]["text"].startswith(f"The number that {name} has in {city} is ")
    assert_refused(run("conjunction", reader, "--task", "pairs", "--text", "x"), "leave --task out")
    assert_refused(run("conjunction", reader, "--length", 9), "--length is of the pairs task")
    assert_refused(run("conjunction", reader, "--task", "pairs", "--span", "x"), "go with --text")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--task", "pairs", "--needles", "5"), "5 pairs are not as many names as cities"),
        (("--task", "pairs", "--template", "ruler"), "--template: the pairs task has one wording"),
        (("--task", "LINES", "--needles", "4", "--depths", "0"), "--needles, --depths: a file's prompts are"),
        (("--task", "poems"), "'poems' (choose from needle, pairs or FILE.jsonl)"),
        (("--task", "nowhere.jsonl"), "nowhere.jsonl is missing"),
        (("--task", "LINES", "--samples", "9"), "9 samples from number 0 on are asked for"),
    ],
)
def test_what_a_task_has_not_is_refused(run, reader, lines, tmp_path, words, said):
    words = [lines if word == "LINES" else word for word in words]
    assert_refused(run("needle", reader, *words, "--out", tmp_path / "x.json"), said)


def test_a_file_with_problems_lists_them(run, reader, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"prompt": "a", "answer": 3}\n')
    answer = run("evaluate", reader, "--task", tmp_path / "bad.jsonl")
    assert_refused(answer, "bad.jsonl", "line 1: 'answer' is missing", "line 2: answer is 3; expected a text")


def test_a_prompt_is_drawn_from_a_task_wherever_one_is_asked_for(run, reader, lines, capsys):
    """`story`, `lens`, `heads` ...: the sample's prompt, and a file's answer, as if they had been given."""
    drawn = run("story", reader, "--task", lines, "--seed", 1)
    assert drawn.json == run("story", reader, "--prompt", "10 + 3 =", "--answer", " 13").json
    assert "the prompt is “10 + 3 =”" in drawn.err
    for command in ("lens", "heads", "attribute"):
        more = ("--answer", " 3") if command == "attribute" else ()
        given = run(command, reader, "--prompt", "1 + 2 =", *more).json
        assert run(command, reader, "--task", lines).json == given
    assert_refused(run("lens", reader, "--task", lines, "--seed", 3), "has 3 samples, counted from 0")
    assert_refused(run("lens", reader), "one of the arguments --prompt --tokens --task is required")
    assert_refused(run("lens", reader, "--task", "blocks"), "the tasks that fit it are needle and pairs")


def test_two_models_of_two_vocabularies_get_the_text_of_a_sample(run, reader, folder, tmp_path):
    file = tmp_path / "letters.jsonl"
    file.write_text(json.dumps({"prompt": "abc.de#a", "answer": "b"}))
    answer = run("compare", reader, folder, "--task", file, "--answer", "c")
    assert answer.status == 0, answer.err

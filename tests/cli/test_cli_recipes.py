"""`train` and `evaluate`: a small run, then its numbers again from its files."""

import json
from pathlib import Path

import pytest
from cli_support import assert_refused

SMALL = """
d_model = 16
n_layers = 1
n_heads = 1
batch_size = 4
n_blocks = 4
block_mixture = [2, 4]
evaluation_samples = 20
evaluation_seed = 3
"""


@pytest.fixture
def trained(run, tmp_path: Path) -> Path:
    """A checkpoint of two steps, its card the command's answer."""
    (tmp_path / "small.toml").write_text(SMALL)
    out = tmp_path / "small"
    answer = run("train", "blocks", "--config", tmp_path / "small.toml", "--steps", 2, "--out", out)
    assert answer.status == 0, answer.err
    assert answer.json == json.loads((out / "card.json").read_text())
    return out


def test_evaluation_repeats_the_numbers_of_the_card(run, trained):
    card = json.loads((trained / "card.json").read_text())
    measured = run("evaluate", trained, "--task", "blocks", "--samples", 20).json
    assert measured["task"] == "blocks" and measured["n_blocks"] == 4
    assert {name: measured[name] for name in card["evaluation"]} == card["evaluation"]


def test_without_a_card_the_task_is_the_recipes_own(run, trained):
    (trained / "card.json").unlink()
    measured = run("evaluate", trained, "--task", "blocks", "--samples", 1).json
    assert (measured["n_letters"], measured["n_blocks"], measured["seed"]) == (5, 52, 0)


def test_a_damaged_card_is_named(run, trained):
    (trained / "card.json").write_text("[]")
    assert_refused(run("evaluate", trained, "--task", "blocks"), "card.json")


def test_a_run_is_not_overwritten(run, trained, tmp_path):
    assert_refused(run("train", "blocks", "--config", tmp_path / "small.toml", "--out", trained), "exists")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train",), "RECIPE"),
        (("train", "poems"), "blocks"),
        (("train", "blocks", "--steps", "0"), "steps is 0"),
        (("train", "needle"), "--corpus"),
        (("evaluate", "x"), "--task"),
        (("evaluate", "x", "--task", "poems"), "blocks"),
    ],
)
def test_what_there_is_not_is_refused(run, words, said):
    assert_refused(run(*words), said)

"""What cards and files beside a model say: its task, how often it is right, kernels of other shapes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.finetune_arms import line
from mta_viz.analysis.labs.cards import arms_file, card_score, note_of, pooled, read_arms, trained_for
from mta_viz.analysis.labs.needle import needle_score
from mta_viz.errors import MtaVizError
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.intervals import accuracy_interval, paired_change_interval
from mta_viz.tasks.needles import NeedleTask
from mta_viz.training.finetune_loss import Measured, compared

CELL = {"n_needles": 4, "length": 512, "depth": 50, "scores": {"all": {"right": 3, "n": 4, "accuracy": 0.75}}}
NEEDLES = {"task": "needle", "sha256": "a", "needles": {"seed": 0, "cells": [CELL]}}
BLOCKS = {
    "task": "blocks",
    "sha256": "a",
    "config": asdict(BlockTask(n_blocks=6)),
    "evaluation": {"n": 9, "wrong": 2},
}


def put(folder, card) -> None:
    (folder / "card.json").write_text(json.dumps(card))


def test_a_card_says_how_often_its_own_weights_are_right_at_its_own_setting(tmp_path):
    put(tmp_path, NEEDLES)
    score = card_score(tmp_path, lambda: "a", NeedleTask(4, 512, 50))
    assert score is not None and (score.right, score.n, score.interval) == (3, 4, accuracy_interval(3, 4))
    assert card_score(tmp_path, lambda: "b", NeedleTask(4, 512, 50)) is None  # of other weights
    for task in (NeedleTask(4, 512, 25), NeedleTask(4, 512, 50, haystack="A. B."), BlockTask()):
        assert card_score(tmp_path, lambda: "a", task) is None
    put(tmp_path, BLOCKS)
    score = card_score(tmp_path, lambda: "a", BlockTask(n_blocks=6))
    assert score is not None and (score.right, score.n) == (7, 9)
    assert card_score(tmp_path, lambda: "a", BlockTask()) is None


@pytest.mark.parametrize("card", [[], {}, {"task": 3}, {"sha256": "a", "needles": 1}])
def test_a_card_that_is_none_says_nothing(tmp_path, card):
    put(tmp_path, card)
    assert card_score(tmp_path, lambda: "a", NeedleTask(4, 512, 50)) is None and trained_for(tmp_path) is None
    assert trained_for(None) is None and note_of(tmp_path) == ""


def test_a_card_says_what_its_numbers_hang_on():
    assets = Path(__file__).parents[2] / "assets"
    assert "three learning rates and three seeds" in note_of(assets / "blocks-n5-transformer")
    assert note_of(assets / "blocks-n5-mta") == ""


def rows() -> list[dict]:
    """As the benchmark writes them: two arms, one of them with two seeds."""
    made = []
    for arm, seed, right in (("6x11", 0, 9), ("6x11", 1, 5), ("norms", 0, 1)):
        sides = [Measured((True,) * n + (False,) * (10 - n), {"grammar": 4.0 + n}, 1.0) for n in (1, right)]
        facts = {"parameters_trained": 66, "steps": 100 + seed, "seconds": 9.5}
        made.append(line(arm, seed, facts | compared(*sides)))
    return made


def test_arms_are_read_as_the_benchmark_writes_them_and_their_seeds_are_put_together(tmp_path):
    (tmp_path / "arms.json").write_text(json.dumps(rows()))
    arms = read_arms(tmp_path / "arms.json")
    assert list(arms.by_name) == ["6x11", "norms"]
    assert pooled(arms.by_name["6x11"]) == needle_score([True] * 14 + [False] * 6)
    table = arms.table().records()
    assert [(row["arm"], row["seed"], row["right"], row["n"]) for row in table] == [
        *[("6x11", 0, 9, 10), ("6x11", 1, 5, 10), ("6x11", None, 14, 20), ("norms", 0, 1, 10)]
    ]
    assert table[2]["low"] == accuracy_interval(14, 20)[0] and table[2]["steps"] == 100.5
    assert (table[2]["perplexity_before: grammar"], table[2]["perplexity_after: grammar"]) == (5.0, 11.0)


def test_arms_are_compared_on_the_same_samples_seed_by_seed(tmp_path):
    first, second = [True, True, True, False], [False, False, True, True]
    right = {("6x11", 0): first, ("6x11", 1): second, ("norms", 0): second}
    written = [row | {"right": right[row["arm"], row["seed"]]} for row in rows()]
    (tmp_path / "arms.json").write_text(json.dumps(written))
    (difference,) = read_arms(tmp_path / "arms.json").differences()
    ((seed, mean, *ends),) = difference.seeds  # seed 1 is of one arm alone
    assert (difference.first, difference.second, seed) == ("6x11", "norms", 0)
    assert mean == difference.mean == 0.25 and tuple(ends) == pytest.approx(difference.ends)
    assert difference.ends == pytest.approx(paired_change_interval(second, first))
    (tmp_path / "arms.json").write_text(json.dumps(rows()))
    assert read_arms(tmp_path / "arms.json").differences() == ()  # which samples are right is not known


def test_arms_lie_in_an_adapters_folder_or_over_one_of_them(tmp_path):
    for name in ("6x11-seed1", "another"):
        (tmp_path / name).mkdir()
    assert arms_file(None) is None and arms_file(tmp_path / "another") is None
    (tmp_path / "arms.json").write_text(json.dumps(rows()))
    assert arms_file(tmp_path / "6x11-seed1") == arms_file(tmp_path) == tmp_path / "arms.json"
    assert arms_file(tmp_path / "another") is None


@pytest.mark.parametrize("text", ["{}", "[]", "[1]", '[{"arm": "6x1"}]', "no"])
def test_what_is_no_file_of_arms_is_refused(tmp_path, text):
    (tmp_path / "arms.json").write_text(text)
    with pytest.raises(MtaVizError):
        read_arms(tmp_path / "arms.json")

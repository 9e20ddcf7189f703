"""`conjunction`: the numbers of the call, as JSON and CSV, and what is refused."""

import csv
import io
import json
import shutil

import pytest
import torch
from cli_support import assert_refused

import mta_viz
from mta_viz.analysis.labs.conjunction import at_identity, conjunction
from mta_viz.analysis.labs.four_prompts import block_prompts, words_of, written_prompts
from mta_viz.tasks.blocks import BlockTask

TEXT = "q{A}gz{B}.a#{A?}{B?}"
OWN = ("--text", TEXT, "--span", "q{A}gz{B}", "--words", "d, f, m, p", "--words", "e, r, k, w")


@pytest.fixture(scope="module")
def loaded(folder):
    return mta_viz.load(folder, dtype=torch.float32)


def test_blocks_give_the_numbers_of_the_call_beside_identity(run, folder, loaded):
    answer = run("conjunction", folder, "--samples", 2, "--letters", 3, "--blocks", 3, "--seed", 4)
    assert answer.status == 0, answer.err
    samples = block_prompts(BlockTask(3, 2, 3), 2, 4)
    own, plain = answer.json["models"]
    assert own["heads"] == conjunction(loaded, samples).table().records()
    assert plain["heads"] == conjunction(at_identity(loaded), samples).table().records()
    assert plain["model"].endswith("kernels at identity")
    assert answer.json["first"]["prompts"]["both"] == samples[0].prompts[0].text
    medians = {"median", "median_low", "median_high", "level"}
    assert (
        set(own["strongest"]["share"]) == {"stage", "layer", "head", "interaction", "low", "high"} | medians
    )
    assert own["strongest"]["odds"]["low"] is None  # a mean without bounds has no interval


def test_a_text_and_a_twin_as_csv_and_file(run, folder, loaded, tmp_path):
    out, twin = tmp_path / "out.json", shutil.copytree(folder, tmp_path / "twin")
    assert_refused(run("conjunction", folder, *OWN, "--twin", folder), "itself")
    answer = run("conjunction", folder, *OWN, "--twin", twin, "--format", "csv", "--out", out)
    assert answer.status == 0 and "note: computed in float32" in answer.err
    samples = written_prompts(loaded.tokenizer, TEXT, "q{A}gz{B}", words_of("d, f, m, p\ne, r, k, w"))
    expected = conjunction(loaded, samples).table().records() * 2  # the twin is a copy
    lines = list(csv.DictReader(io.StringIO(answer.out)))
    assert len(lines) == len(expected)
    kept = [(one["interaction"], row["interaction"]) for one, row in zip(lines, expected, strict=True)]
    assert any(value is None for _, value in kept)  # an empty cell, as the page saves it
    assert all(value is None if not text else float(text) == pytest.approx(value) for text, value in kept)
    assert json.loads(out.read_text())["samples"] == 2
    assert_refused(run("conjunction", folder, *OWN, "--out", out), "out.json")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--span", "x"), "--span and --words go with --text"),
        (("--text", TEXT, "--span", "q{A}"), "there are no words"),
        (("--text", TEXT, "--words", "d, f, m, p"), "the span is empty"),
        (("--text", TEXT, "--span", "q{A}", "--words", "d, f, mm, p"), "1 more token"),
        (("--text", "Ab{A?}{B?}", "--span", "A", "--words", "d, f, m, p"), "has no token for"),
        (("--blocks", "500"), "use at most 81 blocks"),
        (("--blocks", "1001"), "whole number from 1 to 1,000"),
        (("--letters", "2"), "n_query is 2; expected 1 to 1"),
    ],
)
def test_what_cannot_be_tested_is_told(run, folder, options, told):
    assert_refused(run("conjunction", folder, *options), told)

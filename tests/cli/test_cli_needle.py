"""`needle`: several checkpoints on the same samples, goes on where it stopped, refuses other measurements."""

import json
from pathlib import Path

import pytest
from cli_support import assert_refused

from mta_viz.analysis.labs import sweep as measuring
from mta_viz.analysis.labs import sweep_file
from mta_viz.analysis.labs.sweep_file import read_sweep
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from tests.tiny_models import FULL, config, random_weights

SIZES = ("--needles", "1,2", "--lengths", "250", "--depths", "0,100", "--samples", 2)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, Path]:
    """A model and its plain twin, bytes as tokens."""
    root = tmp_path_factory.mktemp("two")
    for name, mta in (("one", FULL), ("twin", MTAOptions())):
        shapes = config(mta, 258)
        weights = random_weights(shapes)
        write_native(root / name, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    return root / "one", root / "twin"


def test_two_checkpoints_get_scores_and_their_paired_difference(run, two, tmp_path):
    answer = run("needle", *two, *SIZES, "--out", tmp_path / "r.json")
    assert answer.status == 0, answer.err
    models = answer.json["models"]
    assert [one["run_now"] for one in models] == [8, 8]
    assert [one["n"] for one in models[0]["settings"]] == [2] * 4
    assert [one["needles"] for one in models[1]["by_needles"]] == [1, 2]
    panels = [(one["length"], one["needles"], one["n"]) for one in models[0]["by_length_and_needles"]]
    assert sum(n for *_, n in panels) == 8 and panels == sorted(panels)
    assert answer.json["differences"][0]["n"] == 8 and answer.json["computed_in"] == "float32"
    kept = read_sweep(tmp_path / "r.json")
    assert [one.name for one in kept.models] == ["one", "twin"]
    assert {len(one.samples) for one in kept.models} == {8}


def test_a_stopped_sweep_goes_on_and_runs_no_sample_twice(run, two, tmp_path, monkeypatch):
    file, kept, asked = tmp_path / "r.json", sweep_file.write_sweep, []
    answered = measuring.answer

    def counting(model, tokenizer, samples):
        asked.extend(sample.tokens.ids for sample in samples)
        return answered(model, tokenizer, samples)

    def stop(path, results):
        kept(path, results)
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "answer", counting)
    monkeypatch.setattr(sweep_file, "write_sweep", stop)
    stopped = run("needle", two[0], *SIZES, "--out", file)
    assert stopped.status == 130 and "the same command goes on from there" in stopped.err
    assert len(asked) == 2  # one batch
    monkeypatch.setattr(sweep_file, "write_sweep", kept)
    resumed = run("needle", two[0], *SIZES, "--out", file)
    assert "2 samples of one are in" in resumed.err
    assert len(asked) == len(set(asked)) == 8
    again = run("needle", two[0], *SIZES[:-1], 3, "--out", file)
    assert again.json["models"][0]["run_now"] == 4 and len(asked) == 12
    smaller = run("needle", two[0], *SIZES, "--out", file)
    assert smaller.json["models"][0]["run_now"] == 0 and len(asked) == 12
    assert [one["n"] for one in smaller.json["models"][0]["settings"]] == [2] * 4
    assert len(read_sweep(file).models[0].samples) == 12  # the third samples stay


def test_other_measurements_and_bad_input_are_refused(run, two, folder, tmp_path):
    file, one = tmp_path / "r.json", two[0]
    assert run("needle", one, *SIZES, "--out", file).status == 0
    ruler = ("--template", "ruler", "--lengths", "400")
    assert_refused(
        run("needle", one, *SIZES, *ruler, "--out", file), "another template or haystack", "--force"
    )
    assert run("needle", one, *SIZES, *ruler, "--out", file, "--force").status == 0
    other = tmp_path / "other.json"
    assert_refused(run("needle", one, "--lengths", "90", "--out", other), "more than the length 90")
    assert_refused(run("needle", one, "--needle", "No slots.", "--out", other), "lacks {city}", "{value}")
    assert_refused(run("needle", one, "--depths", "0,x", "--out", other), "not a list of depths")
    assert_refused(run("needle", one, "--depths", "101", "--out", other), "expected 0 to 100")
    assert_refused(run("needle", one, "--haystack", tmp_path / "none", "--out", other), "is missing")
    (tmp_path / "short.txt").write_text("One sentence. Two.")
    short = ("--haystack", tmp_path / "short.txt", "--lengths", 900)
    assert_refused(run("needle", one, *short, "--out", other), "tokens too short")
    assert_refused(run("needle", folder, "--out", other), "has no token for")  # a model of single letters
    (tmp_path / "mine.json").write_text(json.dumps([1]))
    assert_refused(
        run("needle", one, "--out", tmp_path / "mine.json"),
        "a needle sweep cannot be used",
        "its format is None",
    )
    assert not other.exists()

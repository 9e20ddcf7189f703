"""`effects`: measures, saves, resumes, and refuses what is of another measurement."""

from pathlib import Path

import pytest
from cli_support import assert_refused

from mta_viz.analysis.cause import effects
from mta_viz.analysis.cause.effects import find_effects
from mta_viz.analysis.cause.sweeps import effect_plans
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from mta_viz.run import tracing
from tests.tiny_models import config, random_weights


def measure(run, small: Path, *more: object):
    return run("effects", small, "--task", "blocks", "--samples", 4, *more)


def test_it_leaves_the_table_where_the_app_looks(run, small, model):
    answer = measure(run, small)
    assert answer.status == 0, answer.err
    found = find_effects(small)
    assert answer.json["n_effects"] == len(found.effects) == len(effect_plans(model.config))
    assert (found.task, found.samples, found.seed) == ("blocks", 4, 0)
    assert found.setting == "3 blocks of 5 letters, to be answered with the whole block"
    assert answer.json["out"] == str(small / "effects.json")
    assert answer.json["largest"][0]["plan"].endswith("-> identity")


def test_heads_are_added_to_a_table_that_is_there(run, small, model):
    measure(run, small)
    answer = measure(run, small, "--heads")
    assert answer.json["n_effects"] == len(effect_plans(model.config)) + 8


def test_it_goes_on_where_it_was_stopped(run, small, monkeypatch):
    kept = effects.write_effects

    def stop_after_two(file: Path, table) -> None:
        kept(file, table)
        if len(table.effects) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(effects, "write_effects", stop_after_two)
    stopped = measure(run, small)
    assert stopped.status == 130 and "the same command goes on from there" in stopped.err
    monkeypatch.setattr(effects, "write_effects", kept)
    resumed = measure(run, small)
    assert "2 effects are in" in resumed.err
    (small / "effects.json").rename(small / "resumed.json")
    measure(run, small)
    assert (small / "resumed.json").read_text() == (small / "effects.json").read_text()


@pytest.mark.parametrize(("more", "word"), [(("--seed", 1), "seed"), (("--samples", 5), "samples")])
def test_another_measurement_is_not_mixed_in(run, small, more, word):
    measure(run, small)
    assert_refused(measure(run, small, *more), f"of another measurement ({word} differ)", "--force")
    assert measure(run, small, *more, "--force").status == 0


def test_a_file_that_is_no_table_is_not_overwritten(run, small, tmp_path):
    (tmp_path / "mine.json").write_text("[1, 2]")
    assert_refused(measure(run, small, "--out", tmp_path / "mine.json"), "effects cannot be used")
    assert_refused(measure(run, small, "--out", tmp_path), "is a folder")
    assert (tmp_path / "mine.json").read_text() == "[1, 2]"


def test_what_cannot_be_measured_is_said(run, small, tmp_path):

    plain = config(MTAOptions(), 32)
    write_native(
        tmp_path / "plain",
        plain,
        random_weights(plain),
        tokenizer_name="char",
        tokenizer_path=None,
        dtype=None,
    )
    assert_refused(run("effects", tmp_path / "plain", "--task", "blocks"), "no kernels")
    assert_refused(run("effects", small, "--task", "text"), "invalid choice")
    assert tracing.load(small).config.n_layers == 2


def test_block_finding_is_refused_to_a_model_of_words_before_its_card_is_read(run, tmp_path):
    words = config(MTAOptions(pre_kernel=(2, 3)), 64)
    write_native(
        tmp_path / "words",
        words,
        random_weights(words),
        tokenizer_name="char",
        tokenizer_path=None,
        dtype=None,
    )
    (tmp_path / "words" / "card.json").write_text('{"config": {"vocab_size": 64}}')
    assert_refused(run("effects", tmp_path / "words", "--task", "blocks"), "needs the character vocabulary")

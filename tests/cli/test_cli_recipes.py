"""`train` and `evaluate`: a small run, then its numbers again from its files."""

import json
import re
from pathlib import Path

import pytest
import torch
from cli_support import assert_refused

from mta_viz.checkpoint.native import write_native
from mta_viz.config import ModelConfig
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing

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
    where = ("--out", out, "--lingua", tmp_path / "lingua")
    answer = run("train", "blocks", "--config", tmp_path / "small.toml", "--steps", 2, *where)
    assert answer.status == 0, answer.err
    assert answer.json == json.loads((out / "card.json").read_text())
    return out


def test_evaluation_repeats_the_numbers_of_the_card(run, trained):
    card = json.loads((trained / "card.json").read_text())
    measured = run("evaluate", trained, "--task", "blocks", "--samples", 20).json
    assert measured["task"] == "blocks" and measured["n_blocks"] == 4
    assert {name: measured[name] for name in card["evaluation"]} == card["evaluation"]


def test_the_lingua_export_gives_the_same_logits(trained, tmp_path):
    ids = torch.arange(20)[None]
    ours, theirs = (tracing.load(folder) for folder in (trained, tmp_path / "lingua"))
    assert theirs.dtype == ours.dtype and theirs.config == ours.config
    assert torch.equal(tracing.score(ours, ids), tracing.score(theirs, ids))


def test_without_a_card_the_task_is_the_recipes_own(run, trained):
    (trained / "card.json").unlink()
    measured = run("evaluate", trained, "--task", "blocks", "--samples", 1).json
    assert (measured["n_letters"], measured["n_blocks"], measured["seed"]) == (5, 52, 0)


@pytest.mark.parametrize("card", ["[]", '{"config": [1]}', '{"config": null}', '{"config": {"path": "x"}}'])
def test_a_damaged_card_is_named(run, trained, card):
    (trained / "card.json").write_text(card)
    assert_refused(run("evaluate", trained, "--task", "blocks"), "card.json")


def test_a_run_is_not_overwritten(run, trained, tmp_path):
    assert_refused(run("train", "blocks", "--config", tmp_path / "small.toml", "--out", trained), "exists")


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """A checkpoint without training that reads bytes, long enough for six needles in half of it."""
    folder = tmp_path_factory.mktemp("reader") / "reader"
    config = ModelConfig(
        d_model=4, n_layers=1, n_heads=1, n_kv_heads=1, d_head=4, d_mlp=4, vocab_size=258, n_ctx=1024
    )
    weights = {name: torch.zeros_like(weight) for name, weight in HookedMTA(config).state_dict().items()}
    write_native(folder, config, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    return folder


def test_needles_are_measured_at_half_and_the_whole_length(run, reader):
    answer = run("evaluate", reader, "--task", "needle", "--samples", 1)
    assert answer.status == 0, answer.err
    assert re.match(r"note: 18 sequences, about \d+ s here\n", answer.err)  # before anything is scored
    cells = answer.json["cells"]
    assert [cell["length"] for cell in cells] == [512] * 4 + [1024] * 4 + [512] * 5 + [1024] * 5
    total = answer.json["total"]
    assert total["all"]["n"] == 18 and total["all"]["right"] == 0
    empty = [score for cell in cells for score in cell["scores"].values() if score["n"] == 0]
    assert empty and all(score["accuracy"] is None for score in empty)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(run, reader, tmp_path):
    assert run("evaluate", reader, "--task", "text").json["perplexity"] == pytest.approx(
        {"grammar": 258}, rel=1e-4
    )
    (tmp_path / "book.txt").write_text("\n\n".join(["One sentence of a book. " * 50] * 10))
    measured = run("evaluate", reader, "--task", "text", "--corpus", tmp_path).json
    assert measured["window"] == 1024
    assert measured["perplexity"] == pytest.approx({"grammar": 258, "books": 258}, rel=1e-4)


TAKEN = ("--out", "taken", "--device", "tpu")
IDLE = ("--train", "norms", "--kernel", "3x3", "--keep", "none", "--keep-weight", "2")
RUNS = {
    "pairs": (
        ("finetune", "gone", "--layers", "2", "--task", "needle", "--pairs", "2x2", "--out", "o"),
        ("--pairs with --task needle means nothing; leave one of them out",),
    ),
    "train": (
        ("train", "blocks", *TAKEN, "--lingua", "taken", "--max-seconds", "-1", "--steps", "0"),
        ("steps is 0", "device 'tpu'", "max_seconds is -1", "taken exists", "is the run's own folder"),
    ),
    "finetune": (
        ("finetune", "gone", *TAKEN, "--layers", "2", *IDLE),
        ("--kernel with --train norms", "--keep-weight with --keep none", "device 'tpu'", "taken exists"),
    ),
    "resume": (
        ("finetune", "gone", "--layers", "2", "--out", "gone", "--resume", "--device", "tpu"),
        ("There is nothing to resume", "device 'tpu'"),
    ),
    "convert": (
        ("convert", "gone", "--to", "adapter", "--out", "taken"),
        ("there is no such file or folder", "give it a name that ends with .safetensors"),
    ),
    "differential": (
        ("train", "blocks", "--variant", "differential", "--lingua", "l", "--out", "o"),
        ("it has differential True, which Lingua's format has no place for",),
    ),
}


@pytest.mark.parametrize(("words", "said"), RUNS.values(), ids=RUNS)
def test_all_that_is_wrong_is_said_before_any_work(run, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "params.json").touch()
    answer = run(*words)
    assert_refused(answer, "")
    assert all(problem in answer.err for problem in said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train",), "RECIPE"),
        (("train", "poems"), "blocks"),
        (("train", "blocks", "--steps", "0"), "steps is 0"),
        (("train", "needle"), "--corpus"),
        (("evaluate", "x"), "--task"),
        (("evaluate", "x", "--task", "poems"), "blocks"),
        (("evaluate", "x", "--task", "text", "--corpus", "nowhere"), "nowhere"),
    ],
)
def test_what_there_is_not_is_refused(run, words, said):
    assert_refused(run(*words), said)

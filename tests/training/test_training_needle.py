"""The needle recipe end to end in miniature: tokenizer, data, training, evaluation, refusals."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mta_viz.analysis.labs.evaluation import NeedlePlan, evaluate_needles
from mta_viz.analysis.labs.needle import judge
from mta_viz.checkpoint.types import parameter_count
from mta_viz.errors import ConfigError, MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.run.devices import multiply_adds
from mta_viz.tasks import grammar
from mta_viz.tasks.needles import NeedleTask
from mta_viz.tasks.words import HELD_OUT_CITIES, HELD_OUT_NUMBERS, KNOWN_CITIES, made_up_cities
from mta_viz.training.from_scratch import NeedleRecipe, prepare_text, train_needle
from mta_viz.training.needle_data import (
    CityNames,
    NeedleBatches,
    as_tokenizer,
    may_train,
    read_books,
    train_tokenizer,
)
from mta_viz.training.settings import NeedleConfig, recipe_config
from mta_viz.training.trainer import Prefetched

TINY = NeedleConfig(
    d_model=32,
    n_layers=1,
    n_heads=2,
    kernel=(2, 3),
    vocab_size=600,
    n_ctx=512,
    length_mixture=(64, 128),
    tokens_per_step=256,
    made_up_cities=300,
    grammar_sentences=400,
    tokenizer_sentences=150,
    steps=20,
    warmup_steps=5,
    snapshots=6,
    evaluation_samples=1,
    evaluation_seed=70,
    evaluation_sentences=40,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    paragraphs = itertools.islice(grammar.paragraphs(1, "book"), 60)
    (folder / "book.txt").write_text("\n\n".join(map(" ".join, paragraphs)))
    return folder


@pytest.fixture(scope="module")
def text(corpus):
    return prepare_text(TINY, read_books(corpus))


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("needle") / "run"
    return out, train_needle(TINY, corpus, out, lingua=out.with_name("lingua"))


def test_training_writes_a_checkpoint_that_loads_with_history_and_card(trained):
    out, card = trained
    names = {file.name for file in out.iterdir()}
    weights_and_words = {"model.safetensors", "params.json", "tokenizer.json", "kernel_history.safetensors"}
    assert names == weights_and_words | {"card.json", "README.md", "progress.json"}
    losses = [loss for _, loss in card["loss_curve"]]
    assert len(losses) == 20 and losses[-1] < losses[0]
    assert card["needles"]["total"]["all"]["n"] == 18 and card["needles"]["seed"] == TINY.evaluation_seed
    assert "300 invented ones" in card["data"]
    model = tracing.load(out)
    assert model.tokenizer.encode("A 12.").ids[0] == model.tokenizer.bos_id
    weights = load_file(out / "model.safetensors")
    with safe_open(out / "kernel_history.safetensors", "pt") as history:
        steps = json.loads(history.metadata()["steps"])
        assert steps[0] == 0 and steps[-1] == 20 and steps == sorted(set(steps))
        for key in history.keys():  # noqa: SIM118 - not a dict
            assert torch.equal(history.get_tensor(key)[-1], weights[key])


def test_the_lingua_export_gives_the_same_logits_and_tokens(trained):
    ours, theirs = (
        tracing.load(folder, dtype=torch.float32) for folder in (trained[0], trained[0].with_name("lingua"))
    )
    assert sorted(file.name for file in trained[0].with_name("lingua").iterdir()) == [
        "consolidated.pth",
        "params.json",
        "tokenizer.json",
    ]
    ids = torch.tensor([ours.tokenizer.encode("The magic number of Rome is 12.").ids])
    assert theirs.tokenizer.encode("The magic number of Rome is 12.").ids == tuple(ids[0].tolist())
    assert torch.equal(tracing.score(ours, ids), tracing.score(theirs, ids))


def test_evaluation_catches_a_zeroed_weight(trained, corpus, tmp_path):
    out, card = trained
    for file in out.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(out / "model.safetensors")
    weights["layers.0.attention.wv.weight"] = torch.zeros_like(weights["layers.0.attention.wv.weight"])
    save_file(weights, tmp_path / "model.safetensors")
    broken = NeedleRecipe(TINY, read_books(corpus)).evaluate(tracing.load(tmp_path, dtype=torch.float32))
    assert broken["needles"]["seed"] == card["needles"]["seed"] == 70
    assert all(broken["perplexity"][name] != value for name, value in card["perplexity"].items())


def test_a_right_answer_is_the_whole_number_and_nothing_more(text):
    tokenizer = as_tokenizer(text.library)
    samples = [NeedleTask(1, 100).sample(tokenizer, seed) for seed in range(6)]
    stop, digit = tokenizer.encode("x.").ids[-1], tokenizer.encode("x7").ids[-1]

    def written(after, wrong_row=None):
        """The likeliest ids of who knows the answers and then writes `after`."""
        longest = max(len(sample.answer_ids) for sample in samples) + 1
        ids = torch.full((len(samples), longest), after)
        for row, sample in enumerate(samples):
            ids[row, : len(sample.answer_ids)] = torch.tensor(sample.answer_ids)
        if wrong_row is not None:
            ids[wrong_row, 0] = after
        return ids

    assert judge(written(stop), tokenizer, samples) == [True] * 6
    assert judge(written(digit), tokenizer, samples) == [False] * 6
    assert judge(written(stop, wrong_row=2), tokenizer, samples) == [True, True, False, True, True, True]


def model_without_a_preference(vocab_size):
    """All tokens are as likely after anything."""
    config = dataclasses.replace(TINY.model_config(), vocab_size=vocab_size)
    model = HookedMTA(config)
    torch.nn.init.zeros_((model.embed if model.unembed is None else model.unembed).weight)
    return model


def test_evaluation_counts_cells_and_groups(text):
    tokenizer = as_tokenizer(text.library)
    plan = NeedlePlan(((1, 100, None), (2, 150, 50.0)), samples=20)
    seen, model = [], model_without_a_preference(tokenizer.vocab_size)
    result = evaluate_needles(model, tokenizer, plan, progress=seen.append)
    assert [cell.scores["all"].n for cell in result.cells] == [20, 20]
    assert result.total["all"].right == 0 and result.total["all"].interval[0] == 0.0
    assert 0 < result.total["held_out_city"].n < 40
    first = multiply_adds(model.config, 100)  # of the work of a sample of each setting
    assert sorted(seen) == seen and seen[-1] == pytest.approx(1.0)
    assert any(at == pytest.approx(first / (first + multiply_adds(model.config, 150))) for at in seen)
    assert result.total["known"].n < 40


def test_batches_depend_on_seed_and_step_alone_and_spell_out_their_answers(text):
    batches = NeedleBatches(text.library, text.tables, TINY)
    assert torch.equal(batches(3).tokens, batches(3).tokens)
    assert not torch.equal(batches(3).tokens, batches(2).tokens[: batches(3).tokens.shape[0]])
    twin = dataclasses.replace(TINY, variant="transformer", learning_rate=5e-4)
    assert torch.equal(batches(3).tokens, NeedleBatches(text.library, text.tables, twin)(3).tokens)
    tokenizer = as_tokenizer(text.library)
    for step in range(10):
        batch = batches(step)
        for row in range(0, batch.tokens.shape[0], 2):
            ids = tuple(batch.tokens[row].tolist())
            passage = tokenizer.decode(ids)
            last = passage.rpartition("The magic number of ")[2]
            assert passage.count(f"The magic number of {last}") == 2  # the needle, and the answered question
            answer = tuple(batch.tokens[row][batch.weights[row] == TINY.answer_weight].tolist())
            assert tokenizer.decode(answer) == " " + last.rpartition(" ")[2]
            assert not any(city in passage for city in HELD_OUT_CITIES)


def asked_cities(text, config, steps=40):
    batches, tokenizer = NeedleBatches(text.library, text.tables, config), as_tokenizer(text.library)
    passages = [tokenizer.decode(tuple(batches(step).tokens[0].tolist())) for step in range(steps)]
    return {passage.rpartition("The magic number of ")[2].partition(" is ")[0] for passage in passages}


def test_needles_name_known_and_made_up_cities_in_the_share_asked_for(text):
    both = asked_cities(text, TINY)
    assert both <= {*KNOWN_CITIES, *made_up_cities(300)}
    assert both & set(KNOWN_CITIES) and both & set(made_up_cities(300))
    assert asked_cities(text, dataclasses.replace(TINY, made_up_cities=0)) <= set(KNOWN_CITIES)
    assert asked_cities(text, dataclasses.replace(TINY, made_up_share=1.0)) - set(KNOWN_CITIES)


def test_one_draw_names_different_cities_and_some_begin_or_end_alike(text):
    names, rng = CityNames(text.library, TINY), np.random.default_rng(0)
    draws = [names.draw(rng, 4) for _ in range(300)]
    assert all(len(set(cities.tolist())) == 4 for cities in draws)
    assert all(len(set(names.draw(rng, 8).tolist())) == 8 for _ in range(1000))
    with_asked = [
        any(names.ids[c][0] == names.ids[d[0]][0] or names.ids[c][-1] == names.ids[d[0]][-1] for c in d[1:])
        for d in draws
    ]
    assert 0.3 < np.mean(with_asked) < 0.9  # 0.3 drawn on purpose, the others as chance has it
    made_up = np.concatenate(draws) >= len(KNOWN_CITIES)
    assert 0.4 < made_up.mean() < 0.75
    tokenizer = as_tokenizer(text.library)
    assert [tokenizer.decode(tuple(ids.tolist())) for ids in names.ids] == [
        f" {name}" for name in names.names
    ]


def test_prefetched_batches_are_the_same(text):
    batches = NeedleBatches(text.library, text.tables, TINY)
    ahead = Prefetched(batches, torch.device("cpu"))
    for step in (0, 1, 5, 2):
        assert torch.equal(ahead(step).tokens, batches(step).tokens)
    ahead.close()


def test_held_out_numbers_and_cities_are_never_trained_on(text):
    assert not may_train("Kigali is far.") and not may_train(f"There were {HELD_OUT_NUMBERS[4]} cats.")
    assert may_train("In 1913, Rome had 2 cats.")
    tokenizer = as_tokenizer(text.library)
    for table in text.tables:
        assert table.is_start[table.starts].all()
        ids = tuple(table.ids[1 : table.starts[50]].tolist())
        assert tokenizer.encode(tokenizer.decode(ids)).ids[1:] == ids  # tables join as whole text encodes


@pytest.fixture(scope="module")
def library():
    return train_tokenizer(itertools.islice(grammar.sentences(1, "tests"), 200), 500)


@given(passage=st.text())
def test_any_text_encodes_and_comes_back(library, passage):
    tokenizer = as_tokenizer(library)
    assert tokenizer.decode(tokenizer.encode(passage).ids) == passage


def test_digits_and_sentence_spaces_stand_alone_and_training_is_deterministic(library):
    numbers = as_tokenizer(train_tokenizer(["is 527. Next"] * 50, 600))  # would merge all it may
    pieces = numbers.pieces(numbers.encode("is 527. Next").ids)
    assert pieces == ("<BOS>", "is", "␣5", "2", "7", ".", "␣", "Next")
    again = train_tokenizer(itertools.islice(grammar.sentences(1, "tests"), 200), 500)
    assert again.to_str() == library.to_str()


def test_the_default_model_fits_16_mb_and_the_twin_lacks_the_kernels_alone():
    mta, twin = NeedleConfig().model_config(), NeedleConfig(variant="transformer").model_config()
    assert parameter_count(mta) == 6_171_206
    per_layer = 2 * 8 * 6 * 11 + 2 * 8 * 8
    assert parameter_count(mta) - parameter_count(twin) == 6 * per_layer
    assert 2 * parameter_count(mta) < 16e6


def test_kernels_can_be_kept_to_some_layers(tmp_path):
    (tmp_path / "some.toml").write_text("kernel_layers = [1, 4]\n")
    config = recipe_config(NeedleConfig, tmp_path / "some.toml").model_config()
    assert [layer for layer in range(6) if config.kernels(layer).pre] == [1, 4]
    assert [layer for layer in range(6) if config.kernels(layer).post] == [1, 4]
    assert all(config.kernels(layer).head_pre for layer in range(6))
    assert (
        recipe_config(NeedleConfig, variant="transformer", kernel_layers=(1,)).model_config().variant
        == "transformer"
    )


def test_bad_input_is_refused_before_any_work(tmp_path, corpus):
    with pytest.raises(MtaVizError, match="is neither a folder nor a file"):
        train_needle(TINY, tmp_path / "none", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MtaVizError, match=r"holds no \.txt file"):
        train_needle(TINY, tmp_path / "empty", tmp_path / "out")
    (tmp_path / "empty" / "wide.txt").write_bytes("One.\n\nTwo.".encode("utf-16"))
    with pytest.raises(MtaVizError, match=r"wide\.txt is no plain text: it holds zero bytes"):
        train_needle(TINY, tmp_path / "empty", tmp_path / "out")
    with pytest.raises(MtaVizError, match="cannot be used"):
        train_needle(TINY, corpus, tmp_path / "out", device="nonsense")
    with pytest.raises(MtaVizError, match="own folder"):
        train_needle(TINY, corpus, tmp_path / "out", lingua=tmp_path / "out")
    with pytest.raises(MtaVizError, match="exists; choose another folder for the Lingua export"):
        train_needle(TINY, corpus, tmp_path / "out", lingua=corpus)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match=r"(?s)variant.*length_mixture"):
        recipe_config(NeedleConfig, variant="rnn", length_mixture=(8,))
    with pytest.raises(
        ConfigError, match=r"(?s)kernel_layers is \[6\].*0 to 5.*made_up_cities.*made_up_share"
    ):
        recipe_config(NeedleConfig, kernel_layers=(6,), made_up_cities=3, made_up_share=2.0)
    with pytest.raises(ConfigError, match="at least one of 0 to 5"):
        recipe_config(NeedleConfig, kernel_layers=())
    with pytest.raises(MtaVizError, match="exists"):
        train_needle(TINY, corpus, corpus)


def test_a_run_stopped_by_the_clock_goes_on_to_the_same_weights(trained, corpus, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(MtaVizError, match="before the first step"):
        train_needle(TINY, corpus, out, max_seconds=1e-9)
    assert {file.name for file in out.iterdir()} == {"training_state.pt", "progress.json"}
    train_needle(TINY, corpus, out, resume=True)
    whole, parts = load_file(trained[0] / "model.safetensors"), load_file(out / "model.safetensors")
    assert all(np.array_equal(whole[key], parts[key]) for key in whole)

"""A checkpoint's tokenizer and vocabulary: named, missing, given by the user, too large."""

import json
from pathlib import Path

import pytest
import torch
from checkpoint_samples import (
    edit_params,
    edit_tensors,
    lingua_tensors,
    problems_of,
    tiny_config,
    write_consolidated,
    write_sample,
)
from tokenizers import Tokenizer as Library
from tokenizers import models, processors

from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.errors import CheckpointError


def test_a_missing_tokenizer_file_stops_nothing_and_is_asked_for(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_sample(tmp_path, ("tiktoken", "/author/tokenizer.model")))
    assert checkpoint.tokenizer is None
    assert checkpoint.tokenizer_name == "tiktoken"
    assert checkpoint.tokenizer_path == "/author/tokenizer.model"
    assert "tokenizer.model" in str(checkpoint.tokenizer_problem)


def test_no_tokenizer_named(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_sample(tmp_path, (None, None)))
    assert checkpoint.tokenizer is None
    assert "names no tokenizer" in str(checkpoint.tokenizer_problem)


def test_a_tokenizer_file_the_user_gave_must_work(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "c", ("tiktoken", None))
    with pytest.raises(CheckpointError, match="nowhere"):
        read_checkpoint(folder, tokenizer=tmp_path / "nowhere.model")


@pytest.mark.golden
def test_a_tokenizer_file_given_by_the_user_or_found_by_name(golden: Path, tmp_path: Path) -> None:
    ranks = golden / "tokenizers" / "tiny.tiktoken"
    config = tiny_config(vocab_size=2000)
    params = params_from_config(config, "tiktoken", "/author/tiny.tiktoken")
    folder = write_consolidated(tmp_path, params, lingua_tensors(config))
    given = read_checkpoint(folder, tokenizer=ranks)
    assert given.tokenizer is not None
    assert given.tokenizer.kind == "tiktoken"
    assert given.tokenizer_path == str(ranks)
    (folder / "tiny.tiktoken").write_bytes(ranks.read_bytes())
    assert read_checkpoint(folder).tokenizer_path == "tiny.tiktoken"


def test_a_tokenizer_larger_than_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    (problem,) = problems_of(write_sample(tmp_path, ("bytes", None)))
    assert '"bytes" has 258 tokens, more than the vocabulary of the model (32)' in problem


def test_vocabulary_of_minus_one(tmp_path: Path) -> None:
    assert read_checkpoint(edit_params(write_sample(tmp_path / "a"), vocab_size=-1)).config.vocab_size == 32
    without = edit_params(write_sample(tmp_path / "b", ("tiktoken", None)), vocab_size=-1)
    assert read_checkpoint(without).config.vocab_size == 32  # the rows of the embedding
    assert read_summary(without).config.vocab_size == 32
    (problem, *_) = problems_of(edit_params(write_sample(tmp_path / "c", ("bytes", None)), vocab_size=-1))
    assert problem == "tok_embeddings.weight has shape [32, 8]; expected [258, 8]"


def test_a_tokenizer_whose_library_panics_is_a_broken_folder_beside_good_ones(tmp_path: Path) -> None:
    """Its post-processor names a special token that is not among its special tokens."""
    words = Library(models.WordLevel({"a": 0, "<s>": 1}, "a"))
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    good = json.loads(words.to_str())
    poisoned = {**good, "post_processor": {**good["post_processor"], "special_tokens": {}}}
    for name, settings in (("a", good), ("b", poisoned), ("c", good)):
        folder = write_sample(tmp_path / name, ("tokenizers", "tokenizer.json"))
        (edit_params(folder, vocab_size=-1) / "tokenizer.json").write_text(json.dumps(settings))
        edit_tensors(folder, **{"tok_embeddings.weight": torch.zeros(2, 8)})
        edit_tensors(folder, **{"output.tied_module.weight": torch.zeros(2, 8)})
    a, b, c = find_checkpoints([tmp_path]).found
    assert (a.problem, c.problem) == (None, None)
    assert b.summary is None
    assert "PanicException" in str(b.problem)
    assert "vocab_size is -1" in str(b.problem)

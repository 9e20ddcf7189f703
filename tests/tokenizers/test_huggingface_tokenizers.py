"""Tokenizers of Hugging Face folders: the ids that `transformers` gives, special tokens and BOS included."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from mta_viz.checkpoint.huggingface import tokenizer_of
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.loading import load_tokenizer

LINES = [*(["Hello world, this is a small text about a harbour."] * 30), *(["naïve café 東京 \n\n"] * 30)]
TEXTS = (
    "Hello world",
    " two  spaces\n\n\tand a tab",
    "naïve café 東京 😀",
    "",
    "<|im_start|>user\nHello<|im_end|>\n",
    "<|begin_of_text|>Hello<s>",
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<s>"]


def byte_level() -> Library:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    library.train_from_iterator(LINES, trainer)
    return library


def write(folder: Path, library: Library, **settings: Any) -> Path:
    library.save(str(folder / "tokenizer.json"))
    return configure(folder, **settings)


def configure(folder: Path, **settings: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def opened(folder: Path) -> Tokenizer:
    name, path = tokenizer_of(folder, None)
    return load_tokenizer(name, path, folder=folder)


def assert_same_ids(folder: Path) -> None:
    library, ours = AutoTokenizer.from_pretrained(folder), opened(folder)
    for text in TEXTS:
        tokens = ours.encode(text)
        assert list(tokens.ids) == library(text)["input_ids"], text
        assert "".join(text[start:stop] for start, stop in tokens.spans) == text


def test_llama_3_begins_with_bos(tmp_path: Path) -> None:
    library = byte_level()
    bos = library.token_to_id("<|begin_of_text|>")
    begin = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)]
    )
    library.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>"}
    assert_same_ids(write(tmp_path, library, **settings))
    assert opened(tmp_path).bos_id == bos


def test_smollm_has_no_bos_although_its_settings_name_one(tmp_path: Path) -> None:
    """Nor where the vocabulary has a token by one of BOS's names, `<s>`."""
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert_same_ids(write(tmp_path, byte_level(), unk_token="<|endoftext|>", **settings))
    assert opened(tmp_path).bos_id is None


def test_qwen_2_composes_characters_and_has_no_bos(tmp_path: Path) -> None:
    library = byte_level()
    library.normalizer = normalizers.NFC()
    settings = {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>"}
    assert_same_ids(write(tmp_path, library, pad_token="<|endoftext|>", **settings))


@pytest.fixture
def sentencepiece_folder(tmp_path: Path) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=str(tmp_path / "tokenizer"), model_type="bpe",
        vocab_size=320, byte_fallback=True, normalization_rule_name="identity", hard_vocab_limit=False,
        remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    return tmp_path


@pytest.mark.parametrize("begins", [True, False])
def test_a_sentencepiece_model_leaves_bos_to_the_settings(sentencepiece_folder: Path, begins: bool) -> None:
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    folder = configure(sentencepiece_folder, add_bos_token=begins, unk_token="<unk>", **settings)
    library, ours = AutoTokenizer.from_pretrained(folder), opened(folder)
    for text in ("Hello world", "naïve café 東京"):
        assert list(ours.encode(text).ids) == library(text)["input_ids"]
    assert (ours.bos_id is not None) == begins


def test_a_file_given_says_what_it_is_by_its_ending(tmp_path: Path) -> None:
    assert tokenizer_of(tmp_path, None) == ("huggingface", "tokenizer.json")
    assert tokenizer_of(tmp_path, Path("my.model")) == ("sp", "my.model")
    (tmp_path / "ranks.model").write_text("IQ== 0\nIg== 1\n")  # as Llama 3's own file is called
    assert tokenizer_of(tmp_path, tmp_path / "ranks.model") == ("tiktoken", "ranks.model")
    (tmp_path / "tokenizer.model").touch()
    assert tokenizer_of(tmp_path, None) == ("sp", "tokenizer.model")
    assert tokenizer_of(tmp_path, Path("my.json")) == ("huggingface", "my.json")

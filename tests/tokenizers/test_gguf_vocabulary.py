"""Vocabularies in GGUF files: the ids of `transformers` and of SentencePiece from the same words."""

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from gguf import GGUFWriter

from mta_viz.errors import PromptError, TokenizerError
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.chat import chat_prompt
from mta_viz.tokenizers.loading import load_tokenizer
from tests.gguf_files import BYTES, MERGES, random_arrays, sizes, write_gguf

TEXTS = [
    "the 12345 and 1, 123 in the",
    "deftly don't I'LL we've",
    "  two  spaces\n\n\tand\r\nlines   ",
    "naïve café e\u0301 ﬁ Ⅷ ½ x²",
    "😀 👩‍👩‍👧 🇫🇷 \u200b\xa0",
    "مرحبا بالعالم ١٢٣ שלום 漢字 한국어 हिन्दी",
    "def f(x):\n    return x**2 if (a && b) {}; v2.0.1 1,000,000",
    "<|start|>the<|end|> <|start|",
    "",
]


def gguf_tokenizer(file: Path) -> Tokenizer:
    return load_tokenizer("gguf", file.name, folder=file.parent)


def model_file(folder: Path, pre: str, extra: dict[str, Any] | None = None) -> Path:
    write_gguf(folder / "m.gguf", "llama", random_arrays(sizes()), sizes(), pre=pre, extra=extra)
    return folder / "m.gguf"


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "gpt-2", "default"])
def test_ids_are_those_of_transformers(tmp_path: Path, pre: str) -> None:
    from transformers import AutoTokenizer

    file = model_file(tmp_path, pre)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path, gguf_file=file.name), gguf_tokenizer(file)
    for text in TEXTS:
        # qwen2: its own tokenizer composes characters first, which `transformers` leaves out for GGUF
        given = text.replace("e\u0301", "é") if pre == "qwen2" else text
        assert list(ours.encode(text).ids) == theirs.encode(given, add_special_tokens=False), text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["123", "4", "5"]),  # one run of digits, merged: 1 2 -> 12, 12 3 -> 123
        ("smollm", ["1", "2", "3", "4", "5"]),  # every digit stands alone
        ("qwen2", ["1", "2", "3", "4", "5"]),
        ("llama-bpe", ["123", "4", "5"]),  # three at a time
    ],
)
def test_how_digits_are_cut(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    assert list(gguf_tokenizer(model_file(tmp_path, pre)).encode("12345").pieces) == pieces


def test_llama_3_takes_a_whole_word_that_no_merge_makes(tmp_path: Path) -> None:
    """Its own tokenizer does, as llama.cpp does; `transformers` leaves that out for a GGUF file."""
    assert gguf_tokenizer(model_file(tmp_path, "llama-bpe")).encode("zq").pieces == ("zq",)
    assert gguf_tokenizer(model_file(tmp_path, "gpt-2")).encode("zq").pieces == ("z", "q")


def test_begin_and_end_are_as_the_file_says(tmp_path: Path) -> None:
    without = gguf_tokenizer(model_file(tmp_path, "smollm"))
    assert (without.bos_id, without.eos_id, without.encode("t").ids) == (None, 1, (2 + BYTES.index("t"),))
    extra = {"tokenizer.ggml.padding_token_id": 1}
    file = model_file(tmp_path, "smollm", extra)
    content = file.read_bytes()
    flag = b"tokenizer.ggml.add_bos_token" + (7).to_bytes(4, "little")
    assert content.count(flag + b"\0") == 1
    file.write_bytes(content.replace(flag + b"\0", flag + b"\1"))
    with_bos = gguf_tokenizer(file)
    assert with_bos.bos_id == 0 and with_bos.encode("t").ids == (0, 2 + BYTES.index("t"))
    assert with_bos.decode((0, 2 + BYTES.index("t"), 1)) == "t"


def test_a_chat_template_is_the_one_in_the_file(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}!"
    file = model_file(tmp_path, "smollm", {"tokenizer.chat_template": template})
    tokens = chat_prompt(gguf_tokenizer(file), file, "the")
    assert (tokens.text, tokens.ids[0], tokens.ids[-2]) == ("<|start|>the<|end|>!", 0, 1)
    with pytest.raises(PromptError, match="the model has no chat template"):
        chat_prompt(gguf_tokenizer(file), model_file(tmp_path, "smollm"), "the")


def test_a_rule_not_known_asks_for_the_file(tmp_path: Path) -> None:
    with pytest.raises(
        TokenizerError, match=r"is called 'tekken' there and is not known here.*tokenizer\.json"
    ):
        gguf_tokenizer(model_file(tmp_path, "tekken"))


@pytest.mark.parametrize("merge", ["t", "t h e", "q z"])
def test_merges_that_fit_nothing_are_refused(tmp_path: Path, merge: str) -> None:
    file = tmp_path / "m.gguf"
    write_gguf(file, "llama", random_arrays(sizes()), sizes(), merges=[*MERGES, merge])
    with pytest.raises(TokenizerError, match=r"The vocabulary in m\.gguf cannot be used"):
        gguf_tokenizer(file)


@pytest.fixture(scope="module")
def trained() -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:7] * 20), model_writer=model, vocab_size=400, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_pieces(file: Path, words: sentencepiece.SentencePieceProcessor, *, bos: bool) -> Path:
    writer = GGUFWriter(file, "llama")
    pieces = range(words.vocab_size())
    unknown, control, byte = (
        {i for i in pieces if test(i)} for test in (words.is_unknown, words.is_control, words.is_byte)
    )
    writer.add_tokenizer_model("llama")
    writer.add_token_list([words.id_to_piece(i) for i in pieces])
    writer.add_token_scores([words.get_score(i) for i in pieces])
    writer.add_token_types(
        [2 if i in unknown else 3 if i in control else 6 if i in byte else 1 for i in pieces]
    )
    writer.add_bos_token_id(words.bos_id())
    writer.add_eos_token_id(words.eos_id())
    writer.add_unk_token_id(words.unk_id())
    writer.add_add_bos_token(bos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file


def test_scores_give_the_ids_of_sentencepiece(
    tmp_path: Path, trained: sentencepiece.SentencePieceProcessor
) -> None:
    ours = gguf_tokenizer(write_pieces(tmp_path / "m.gguf", trained, bos=True))
    assert (ours.bos_id, ours.eos_id, ours.vocab_size) == (1, 2, trained.vocab_size())
    for text in TEXTS:
        assert list(ours.encode(text).ids) == [1, *trained.encode(text)], text
    assert gguf_tokenizer(write_pieces(tmp_path / "n.gguf", trained, bos=False)).bos_id is None


def test_scores_give_the_ids_of_transformers(
    tmp_path: Path, trained: sentencepiece.SentencePieceProcessor
) -> None:
    """Of texts that begin with no space: before one `transformers` puts no other, SentencePiece does."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import (
        convert_gguf_tokenizer,
        get_gguf_tokenizer,
    )

    file = write_pieces(tmp_path / "m.gguf", trained, bos=False)
    theirs, _ = convert_gguf_tokenizer(*get_gguf_tokenizer(str(file))[:2])
    ours = gguf_tokenizer(file)
    for text in (text for text in TEXTS if text[:1] != " "):
        assert list(ours.encode(text).ids) == theirs.encode(text, add_special_tokens=False).ids, text


def test_a_vocabulary_without_types_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(TokenizerError, match=r"no scores or no types.*Give the model's tokenizer\.json"):
        gguf_tokenizer(tmp_path / "m.gguf")

"""What holds for every tokenizer and every text: spans partition it, labels are readable, nothing is lost."""

import re
import unicodedata

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.base import Tokenizer, Tokens
from mta_viz.tokenizers.builtin import ALPHABET, CharTokenizer

CLUSTERS = [
    "e\u0301", "\u0301", "👨\u200d👩\u200d👧", "❤\ufe0f", "🇮🇹", "עברית\u200f", "\u202e", "\0", "\x1b",
    "\r\n", "\r", "\n\n", "\t", "   ", "\u00a0", "\u3000", "\ufeff", "\ufffd", "\u200b", "\U000e0041",
    "ﬁ", "①", "İ", "한국", "ក្", "<BOS>", "<s>", "</s>", "<|begin_of_text|>", "[CLS]", "▁", "Ġ", "<0xF0>",
    "##a", " the", "日", "don't", "123456",
]  # fmt: skip
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.one_of(st.sampled_from(CLUSTERS), st.characters(exclude_categories=["Cs"]))).map("".join),
)
KINDS = ["bytes", "tiktoken", "sp", "sp without fallback", "byte-level", "byte-level trimmed", "word pieces"]
LOSSLESS = ["bytes", "tiktoken", "byte-level"]
thorough = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def readable(piece: str) -> bool:
    """No blank, nothing invisible, no stand-in character; the names "<reserved 5>" and "<id 7>" are fine."""
    piece = re.sub(r"^<(reserved|id) (\d+)>$", r"\1\2", piece)
    unseen = any(unicodedata.category(char)[0] in "CZ" for char in piece)
    return bool(piece) and not unseen and "\ufffd" not in piece and unicodedata.category(piece[0])[0] != "M"


def check(tokens: Tokens, tokenizer: Tokenizer, text: str) -> None:
    edges = [0, *(end for _, end in tokens.spans)]
    assert [start for start, _ in tokens.spans] == edges[:-1]
    assert "".join(text[a:b] for a, b in tokens.spans) == text == tokens.text
    assert len(tokens.ids) == len(tokens.pieces) == len(tokens.spans)
    assert all(0 <= token_id < tokenizer.vocab_size for token_id in tokens.ids)
    assert all(map(readable, tokens.pieces)), tokens.pieces
    if tokenizer.bos_id is not None:
        assert tokens.ids[0] == tokenizer.bos_id
    assert tokenizer.pieces(tokens.ids) == tokens.pieces


@pytest.mark.parametrize("kind", KINDS)
@thorough
@given(text=texts)
@example(text="".join(CLUSTERS))
@example(text="")
@example(text="   ")
def test_spans_partition_any_text_and_labels_are_readable(
    all_tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = all_tokenizers[kind]
    try:
        tokens = tokenizer.encode(text)
    except TokenizerError:
        # only a model without BOS whose normaliser keeps nothing of the text may refuse it
        assert kind == "sp without fallback"
        assert tokenizer.bos_id is None
        return
    check(tokens, tokenizer, text)


@pytest.mark.parametrize("kind", LOSSLESS)
@thorough
@given(text=texts)
@example(text="".join(CLUSTERS))
def test_decode_undoes_encode(all_tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = all_tokenizers[kind]
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode((*ids, tokenizer.eos_id, tokenizer.vocab_size + 7, -1)) == text


@thorough
@given(text=st.text(ALPHABET))
def test_char_partitions_and_decodes_its_alphabet(text: str) -> None:
    tokenizer = CharTokenizer()
    tokens = tokenizer.encode(text)
    check(tokens, tokenizer, text)
    assert tokenizer.decode(tokens.ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_every_id_has_a_readable_label(all_tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = all_tokenizers[kind]
    ids = tuple(range(tokenizer.vocab_size))
    assert all(map(readable, tokenizer.pieces(ids)))
    assert tokenizer.pieces((tokenizer.vocab_size, 4097, -1))[1:] == ("<id 4097>", "<id -1>")
    assert tokenizer.pieces((tokenizer.vocab_size,)) == (f"<id {tokenizer.vocab_size}>",)


@pytest.mark.parametrize("kind", KINDS)
def test_a_very_long_text_is_partitioned(all_tokenizers: dict[str, Tokenizer], kind: str) -> None:
    text = "the e\u0301 日本 😀\r\n" * 3000 + "a" * 20000
    check(all_tokenizers[kind].encode(text), all_tokenizers[kind], text)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_refused_with_its_place(all_tokenizers: dict[str, Tokenizer], kind: str) -> None:
    with pytest.raises(TokenizerError, match=r"lone surrogate U\+D83D\) at position 2"):
        all_tokenizers[kind].encode("ab\ud83d")

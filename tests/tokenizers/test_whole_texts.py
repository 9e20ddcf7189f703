"""Tokenizers of every build: what is decoded is the text, or the text is refused; never another prompt."""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_any_text import CLUSTERS, readable
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.hf_json import JsonTokenizer

LINES = ["The old ferry waited in Rome.", "café 日本 the thing in the north", "12 gates, don't they'll"] * 4
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def bpe(
    before: Any = None, normal: Any = None, decoder: Any = None, alphabet: list[str] = ALPHABET
) -> Library:
    library = Library(models.BPE())
    if before is not None:
        library.pre_tokenizer = before
    if normal is not None:
        library.normalizer = normal
    if decoder is not None:
        library.decoder = decoder
    how = {"initial_alphabet": alphabet, "special_tokens": ["<BOS>", "<EOS>"], "show_progress": False}
    library.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=330, **how))
    return library


def with_added_tokens() -> Library:
    library = bpe(BYTES)
    library.add_tokens(["<tool>", AddedToken("é日", normalized=False), AddedToken("ab", single_word=True)])
    library.add_special_tokens(["<|end|>"])
    return library


def unigram(byte_fallback: bool) -> Library:
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", *names, "▁", "▁the", "the", *"ehtaino"]
    scores = [(piece, -float(place % 7 + 1)) for place, piece in enumerate(pieces)]
    library = Library(models.Unigram(scores, 0 if byte_fallback else None, byte_fallback))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    return library


def words() -> Library:
    library = Library(models.WordLevel({"the": 0, "a": 1, " ": 2}, unk_token="<none>"))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(" "), "isolated")
    library.decoder = decoders.Fuse()
    return library


def edited(library: Library, **model: Any) -> Library:
    settings = json.loads(library.to_str())
    settings["model"] |= model
    return Library.from_str(json.dumps(settings))


SPLIT = pre_tokenizers.Split(Regex(r"\s+|\w+"), "isolated")
BUILDS: dict[str, Callable[[], Library]] = {
    "byte-level, no decoder": lambda: bpe(BYTES),
    "byte-level, another decoder": lambda: bpe(BYTES, decoder=decoders.Fuse()),
    "byte-level in a sequence": lambda: bpe(pre_tokenizers.Sequence([SPLIT, BYTES])),
    "byte-level in sequences": lambda: bpe(
        pre_tokenizers.Sequence([pre_tokenizers.Sequence([SPLIT]), pre_tokenizers.Sequence([BYTES])])
    ),
    "byte-level as a normalizer": lambda: bpe(None, normalizers.ByteLevel()),
    "byte-level as a normalizer, split": lambda: bpe(SPLIT, normalizers.Sequence([normalizers.ByteLevel()])),
    "byte-level, letters lacking": lambda: bpe(BYTES, alphabet=[]),
    "byte-level, dropout": lambda: edited(bpe(BYTES, decoder=decoders.ByteLevel()), dropout=0.5),
    "added tokens": with_added_tokens,
    "characters": lambda: bpe(alphabet=list("abcé日 ")),
    "bytes where a character is lacking": lambda: unigram(byte_fallback=True),
    "nothing where a character is lacking": lambda: unigram(byte_fallback=False),
    "words": words,
}
texts = st.one_of(
    st.text("abcethé日 <>0xF▁Ġ", max_size=20),
    st.lists(st.sampled_from([*CLUSTERS, "the", "ab", "<tool>", "é日", "<|end|>", " "]), max_size=8).map(
        "".join
    ),
)


@cache
def made(build: str) -> JsonTokenizer:
    return JsonTokenizer(BUILDS[build]().to_str().encode())


@pytest.mark.parametrize("build", BUILDS)
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts)
@example("the thing é日 <tool> ab <|end|>")
@example("<0xF0>")
def test_decode_of_encode_is_the_text_or_it_is_refused(build: str, text: str) -> None:
    tokenizer = made(build)
    try:
        tokens = tokenizer.encode(text)
    except TokenizerError as error:
        assert re.search("has no token for|as a byte|makes no token", str(error))
        return
    # a model that writes a space so sees one for the other, as SentencePiece does
    spaced = text.replace("▁", " ") if build.endswith("is lacking") else text
    assert tokenizer.decode(tokens.ids) == spaced
    assert "".join(text[start:end] for start, end in tokens.spans) == text
    assert all(map(readable, tokens.pieces))
    assert tokenizer.encode(text).ids == tokens.ids

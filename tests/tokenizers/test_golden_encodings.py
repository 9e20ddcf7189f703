"""Encodings equal those of the reference tokenizers, case by case."""

import json
from pathlib import Path

import pytest

from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tokenizers.loading import load_tokenizer

pytestmark = pytest.mark.golden
# name in the file of cases -> file of cases, kind, tokenizer file, does a case carry BOS and EOS
SETS = {
    "bytes": ("encodings.json", "bytes", None, True),
    "char": ("encodings.json", "char", None, True),
    "tiktoken": ("encodings.json", "tiktoken", "tiny.tiktoken", True),
    "merges.tiktoken": ("more_encodings.json", "tiktoken", "merges.tiktoken", False),
    "tiny_sp.model": ("more_encodings.json", "sp", "tiny_sp.model", False),
}


def read(golden: Path, name: str) -> tuple[dict, Tokenizer, bool]:
    cases_file, kind, file, framed = SETS[name]
    cases = json.loads((golden / "tokenizers" / cases_file).read_text())[name]
    return cases, load_tokenizer(kind, file, folder=golden / "tokenizers"), framed


@pytest.mark.parametrize("name", SETS)
def test_ids_are_bos_and_the_reference_ids(golden: Path, name: str) -> None:
    cases, tokenizer, framed = read(golden, name)
    facts = (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_id)
    assert facts == (cases["n_words"], cases["bos_id"], cases["eos_id"])
    assert len(cases["cases"]) >= 4
    for case in cases["cases"]:
        plain = case["ids"][1:-1] if framed else case["ids"]
        assert tokenizer.encode(case["text"]).ids == (tokenizer.bos_id, *plain), case["text"]


@pytest.mark.parametrize("name", SETS)
def test_decoding_gives_the_text_without_specials(golden: Path, name: str) -> None:
    cases, tokenizer, framed = read(golden, name)
    for case in cases["cases"]:
        text = case["text"] if framed else case.get("decoded", case["text"])
        assert tokenizer.decode((*tokenizer.encode(case["text"]).ids, cases["eos_id"])) == text


@pytest.mark.parametrize("name", ["char", "tiktoken"])
def test_spans_are_the_reference_substrings(golden: Path, name: str) -> None:
    cases, tokenizer, _ = read(golden, name)
    for case in cases["cases"]:
        tokens = tokenizer.encode(case["text"])
        substrings, offsets = case["substrings_and_offsets"]
        assert [case["text"][a:b] for a, b in tokens.spans[1:]] == substrings
        assert [a for a, _ in tokens.spans[1:]] == offsets

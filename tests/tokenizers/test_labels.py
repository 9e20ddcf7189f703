"""The label rule, character by character."""

import unicodedata

import pytest

from mta_viz.tokenizers.base import label, label_bytes, quoted, split_characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "␣the"),
        ("\n\n", "⏎⏎"),
        ("\t", "⇥"),
        ("\r\n", "<U+000D>⏎"),
        ("\0", "<U+0000>"),
        ("\u200b", "<U+200B>"),
        ("\u00a0", "<U+00A0>"),
        ("\U000e0041", "<U+E0041>"),
        ("\u0301", "<U+0301>"),
        (" \u0301", "␣<U+0301>"),
        ("e\u0301\u0302", "e\u0301\u0302"),
        ("👨\u200d👩", "👨<U+200D>👩"),
        ("❤\ufe0f", "❤<U+FE0F>"),
        ("\u3164", "<U+3164>"),
        ("\u2800", "<U+2800>"),
        ("\ufffd", "<U+FFFD>"),
        ("עב", "עב"),
        ("", "<empty>"),
    ],
)
def test_label_of_text(text: str, shown: str) -> None:
    assert label(text) == shown


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (b"\xf0", "<0xF0>"),
        (b" \xf0\x9f", "␣<0xF0><0x9F>"),
        (b"\x9c\xac!", "<0x9C><0xAC>!"),
        ("é".encode(), "é"),
        (rb"\xf0", r"\xf0"),
        (b"\xed\xa0\x80", "<0xED><0xA0><0x80>"),
    ],
)
def test_label_of_bytes(piece: bytes, shown: str) -> None:
    assert label_bytes(piece) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" 753", "“753”"),
        ("␣753", "“753”"),
        ("␣San␣Juan ", "“San Juan”"),
        (" ", "“␣”"),
        ("\n7", "“⏎7”"),
        ("\u202eabc", "“<U+202E>abc”"),
        ("", "“<empty>”"),
    ],
)
def test_sentences_quote_a_text_and_its_labels_alike(text: str, shown: str) -> None:
    assert quoted(text) == shown
    assert quoted(label(text)) == shown


def test_no_character_has_a_blank_label() -> None:
    for code in [*range(0x3400), *range(0x3400, 0xD800, 101), *range(0xE000, 0x110000, 101)]:
        shown = label(chr(code))
        assert shown.strip()
        assert unicodedata.category(shown[0])[0] not in "CMZ"


def test_parts_of_a_character_say_which_and_of_what():
    pieces = ["a", "x<0xC3>", "<0xA9><0xE2>", "<0x80>", "<0xAE>", "<0xF0>", "b", "<0x80>", "<0x0A>"]
    assert split_characters(pieces) == {
        1: "part 1 of 2 of é",
        2: "part 2 of 2 of é and part 1 of 3 of <U+202E>",
        3: "part 2 of 3 of <U+202E>",
        4: "part 3 of 3 of <U+202E>",
    }

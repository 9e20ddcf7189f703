"""What is particular to one kind: names of special tokens, refusals, speed."""

import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.base import Tokenizer, label
from mta_viz.tokenizers.builtin import CharTokenizer
from mta_viz.tokenizers.hf_json import JsonTokenizer


def test_char_ids_and_labels() -> None:
    tokenizer = CharTokenizer()
    assert tokenizer.encode("az.#_").ids == (29, 0, 25, 26, 27, 28)
    assert tokenizer.pieces(range(28, 33)) == ("_", "<BOS>", "<EOS>", "<reserved 0>", "<id 32>")


def test_char_names_each_unknown_character_its_places_and_the_alphabet() -> None:
    with pytest.raises(TokenizerError) as caught:
        CharTokenizer().encode("A b\tA")
    message = str(caught.value)
    for part in ('"A" at 0, 4', '"␣" at 1', '"⇥" at 3', 'letters a to z and ".", "#", "_"'):
        assert part in message
    with pytest.raises(TokenizerError, match="10 more characters") as caught:
        CharTokenizer().encode("".join(map(chr, range(0x4E00, 0x4E1E))))
    assert len(str(caught.value)) < 1000


def test_tiktoken_names_its_specials(all_tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = all_tokenizers["tiktoken"]
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_id) == (264 + 256, 264, 265)
    assert tokenizer.pieces((264, 265, 266, 519, 520)) == (
        "<|begin_of_text|>", "<|end_of_text|>", "<reserved 2>", "<reserved 255>", "<id 520>",
    )  # fmt: skip


def test_tiktoken_splits_contractions_in_capitals_too(all_tokenizers: dict[str, Tokenizer]) -> None:
    # "'LL" | "Ax": the pair "LA" lies across the split and is not merged; in "LAx" it is
    assert all_tokenizers["tiktoken"].encode("'LLAx").pieces[1:] == ("'", "L", "L", "A", "x")
    assert all_tokenizers["tiktoken"].encode("LAx").pieces[1:] == ("LA", "x")


@pytest.mark.parametrize("kind", ["bytes", "tiktoken", "sp", "byte-level"])
def test_broken_bytes_decode_to_the_replacement_character(
    all_tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = all_tokenizers[kind]
    ids = tokenizer.encode("a𐍈").ids
    assert tokenizer.pieces(ids)[-1] == "<0x88>"
    assert "\ufffd" in tokenizer.decode(ids[:-1])


def test_pieces_of_a_token_with_a_space_and_half_a_character(all_tokenizers: dict[str, Tokenizer]) -> None:
    tokens = all_tokenizers["tiktoken"].encode("the the 😀")
    assert tokens.pieces[1:] == ("the", "␣the", "␣<0xF0>", "<0x9F>", "<0x98>", "<0x80>")
    assert tokens.spans[1:] == ((0, 3), (3, 7), (7, 8), (8, 8), (8, 8), (8, 9))


def test_sentencepiece_spaces_dropped_by_the_normaliser_stay_in_the_spans(
    all_tokenizers: dict[str, Tokenizer],
) -> None:
    tokens = all_tokenizers["sp"].encode("the   thing ")
    assert tokens.pieces[:2] == ("<s>", "␣the")
    assert "".join("the   thing "[a:b] for a, b in tokens.spans[2:]) == "   thing "
    assert all_tokenizers["sp"].encode("  ").spans == ((0, 2),)
    with pytest.raises(TokenizerError, match="makes no token"):
        all_tokenizers["sp without fallback"].encode("  ")


def test_bos_by_name_or_from_the_post_processor(all_tokenizers: dict[str, Tokenizer]) -> None:
    byte_level, words = all_tokenizers["byte-level"], all_tokenizers["word pieces"]
    assert byte_level.pieces((byte_level.bos_id, byte_level.eos_id)) == ("<BOS>", "<EOS>")
    assert words.pieces((words.bos_id, words.eos_id)) == ("[CLS]", "[SEP]")


def test_the_post_processor_goes_before_the_names(tokenizer_folder: Path) -> None:
    library = Library.from_file(str(tokenizer_folder / "tokenizer.json"))
    library.post_processor = processors.TemplateProcessing(single="! $A", special_tokens=[("!", 2)])
    assert library.id_to_token(2) == "!"
    tokenizer = JsonTokenizer(library.to_str().encode())
    assert (tokenizer.bos_id, tokenizer.eos_id) == (2, 1)
    assert tokenizer.decode(tokenizer.encode("in").ids) == "in"  # "!" is not marked special in the file


def test_truncation_and_padding_of_the_file_are_off(all_tokenizers: dict[str, Tokenizer]) -> None:
    words = all_tokenizers["word pieces"]
    assert len(words.encode("the thing in the north in Rome")) > 6
    assert "[PAD]" not in words.encode("in").pieces


def test_special_strings_typed_in_a_prompt_are_plain_text(all_tokenizers: dict[str, Tokenizer]) -> None:
    for name, special in {"tiktoken": "<|begin_of_text|>", "sp": "<s>", "byte-level": "<BOS>"}.items():
        ids = all_tokenizers[name].encode(f"a{special}").ids
        assert all_tokenizers[name].bos_id not in ids[1:]


def test_a_character_the_byte_vocabulary_lacks_is_refused_not_dropped() -> None:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.train_from_iterator(["the thing"], trainers.BpeTrainer(vocab_size=50, show_progress=False))
    tokenizer = JsonTokenizer(library.to_str().encode())
    assert tokenizer.decode(tokenizer.encode("the thing").ids) == "the thing"
    with pytest.raises(TokenizerError, match='no token for "X" at 4, "é" at 5'):
        tokenizer.encode("the Xé")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", "tiktoken", "sp", "byte-level"])
def test_how_long_4096_tokens_take(all_tokenizers: dict[str, Tokenizer], kind: str) -> None:
    text = "".join(f"the old ferry {i} waited in Rome, café 日本 😀!\n" for i in range(400))
    tokenizer = all_tokenizers[kind]
    text = text[: 4096 * 4000 // len(tokenizer.encode(text[:4000]))]
    seconds = []
    for _ in range(5):
        label.cache_clear()  # as for the first prompt; processor time, since the machine may be busy
        start = time.process_time()
        tokens = tokenizer.encode(text)
        seconds.append(time.process_time() - start)
    assert len(tokens) > 3900
    print(f"{kind}: {1000 * min(seconds):.1f} ms")


def test_spaces_trimmed_from_the_librarys_offsets_stay_with_their_tokens(
    all_tokenizers: dict[str, Tokenizer],
) -> None:
    tokens = all_tokenizers["byte-level trimmed"].encode("  ")
    assert tokens.pieces[1:] == ("␣", "␣")
    assert tokens.spans[1:] == ((0, 1), (1, 2))

"""Token ids instead of text."""

import numpy as np
import pytest
import torch

from mta_viz.errors import PromptError
from mta_viz.tokenizers.base import ids_from_text, tokens_from_ids
from mta_viz.tokenizers.builtin import BytesTokenizer


def test_ids_are_taken_as_they_are_and_labelled() -> None:
    tokens = tokens_from_ids([104, 256, 300], vocab_size=512, tokenizer=BytesTokenizer())
    assert tokens.ids == (104, 256, 300)
    assert tokens.pieces == ("h", "<BOS>", "<id 300>")
    assert tokens.spans == ((0, 0),) * 3
    assert tokens.text is None
    assert tokens_from_ids([7], vocab_size=8).pieces == ("<id 7>",)


@pytest.mark.parametrize(
    "ids",
    [np.array([3, 7]), [np.int16(3), np.uint8(7)], torch.tensor([3, 7]), (3, torch.tensor(7)), iter((3, 7))],
    ids=["array", "numpy numbers", "tensor", "mixed", "iterator"],
)
def test_any_kind_of_integer_is_an_id(ids: object) -> None:
    found = tokens_from_ids(ids, vocab_size=8).ids
    assert found == (3, 7) and {type(one) for one in found} == {int}


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "No token ids"),
        (np.array([]), "No token ids"),
        (np.array([True]), "True"),
        (np.array([1.0]), "1.0"),
        (torch.tensor([[1, 2]]), "tensor"),
        ([0, 512, -1], r"0 to 511; given: 512 at 1, -1 at 2 \("),
        ([1.0, True, "3"], "1.0 at 0, True at 1, '3' at 2"),
        ([900] * 9, "900 at 4 and 4 more"),
    ],
)
def test_wrong_ids_are_named_with_their_place(ids: object, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        tokens_from_ids(ids, vocab_size=512)


@pytest.mark.parametrize("text", ["[256, 104,105]", "256 104\n105", " 256,104 , 105, ", "[256 104 105]\n"])
def test_pasted_text_is_read(text: str) -> None:
    assert ids_from_text(text) == (256, 104, 105)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "No token ids"), ("[]", "No token ids"), ("1, x, 3", 'Entry 1 .*"x"'), ("1.5", '"1.5"')],
)
def test_pasted_text_that_is_no_list_of_ids(text: str, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        ids_from_text(text)

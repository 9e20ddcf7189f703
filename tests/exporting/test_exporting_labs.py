"""The text lab's tables: a line a passage in the file's order, a line a token, odd ones as themselves."""

import csv
import io

import torch

from mta_viz.analysis.labs.text import LeftOut, PassageScores, TextLosses, WordScore
from mta_viz.tokenizers.base import Tokens


def test_passages_stand_in_their_order_with_those_left_out():
    word = WordScore(3, 'a,"b', ("␣a", "b"), 7, False, -0.5, "⏎", 4, 6)
    rows = list(csv.DictReader(io.StringIO(PassageScores(3, (word,), (LeftOut(2, "why"),)).table().csv())))
    assert [(row["passage"], row["last_word"], row["left_out"]) for row in rows] == [
        ("2", "", "why"),
        ("3", 'a,"b', ""),
    ]
    assert rows[1]["probability"] == "0.60653066" and rows[1]["perplexity"] == "1.64872127"
    assert (rows[1]["rank"], rows[1]["greedy"], rows[1]["tokens"]) == ("7", "0", "2")
    assert (rows[1]["tokens_before"], rows[1]["tokens_read"]) == ("6", "4")


def test_the_first_token_has_no_loss():
    tokens = Tokens((9, 5), ("<BOS>", "␣🙂"), ((0, 0), (0, 2)), " 🙂")
    found = TextLosses(tokens, torch.tensor([torch.nan, 0.25]), torch.tensor([0, 2]), ("", "x"), 8)
    rows = list(csv.DictReader(io.StringIO(found.table().csv())))
    assert list(rows[0].values()) == ["0", "9", "<BOS>", "", "", "", ""]
    assert list(rows[1].values()) == ["1", "5", "␣🙂", "0.25", "0.778800783", "2", "x"]

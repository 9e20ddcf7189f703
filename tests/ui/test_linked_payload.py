"""What the view is sent, decoded as view.js does."""

import json

import numpy as np
import pytest
import torch

from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.linked.payload import EXACT_UP_TO, TEXT_UP_TO, Linked, payload


def tokens(pieces) -> Tokens:
    return Tokens(tuple(range(len(pieces))), tuple(pieces), ((0, 0),) * len(pieces), None)


def linked(values, pieces=None, start=(0, 0), stage=Stage.KQ, **more) -> Linked:
    cells = torch.tensor(values, dtype=torch.float32)
    shown = AttentionMap(1, 2, stage, cells, *start, distribution=stage is Stage.SOFTMAX)
    return Linked("map", "run", shown, tokens(pieces or ["a"] * len(values)), 2.0, **more)


def decoded(message: bytes):
    length = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + length])
    assert length % 4 == 0
    colors = np.frombuffer(message, np.uint8, 768, 4 + length).reshape(256, 3)
    return header, colors, np.frombuffer(message, f"<{header['kind']}", offset=4 + length + 768)


def test_a_whole_map_is_its_triangle_with_what_is_not_finite():
    values = [[1.5, 9, 9], [-2.25, float("nan"), 9], [0.0, float("-inf"), 1e-30]]
    header, colors, cells = decoded(payload(linked(values, ["<b>", "␣é", "c"])))
    assert header["triangle"] and header["shape"] == [3, 3] and header["kind"] == "f4"
    wanted = [1.5, -2.25, float("nan"), 0.0, float("-inf"), np.float32(1e-30)]
    assert np.array_equal(cells, np.array(wanted, np.float32), equal_nan=True)
    assert header["text"] == [[0, ["<b>", "␣é", "c"]]] and header["title"].startswith(
        "L1 H2 · after key-query"
    )
    assert header["signed"] and header["bar"] == ["◀ < −2", "+2"]
    assert colors[0, 2] > colors[0, 0] and colors[-1, 0] > colors[-1, 2]  # blue below 0, red above


def test_a_part_is_sent_whole_and_weights_from_0():
    header, _, cells = decoded(payload(linked([[0.25, 0.5]], ["a"] * 9, (5, 3), Stage.SOFTMAX)))
    assert (header["triangle"], header["start"], header["shape"]) == (False, [5, 3], [1, 2])
    assert cells.tolist() == [0.25, 0.5] and not header["signed"] and header["bar"] == ["0", "2"]
    assert len(header["text"][0][1]) == 9


def test_a_long_map_is_half_as_exact_whatever_its_size():
    for size in (1e-9, 1.0, 3e6):
        values = np.zeros((EXACT_UP_TO + 1, EXACT_UP_TO + 1), np.float32)
        values[-1, :3] = (size, -size / 1000, float("nan"))
        header, _, cells = decoded(payload(linked(values.tolist())))
        row = cells[-len(values) :].astype(float) / header["factor"]
        assert header["kind"] == "f2" and np.isnan(row[2]) and row[3] == 0
        assert row[:2] == pytest.approx([size, -size / 1000], rel=1e-3)


def test_of_a_very_long_prompt_the_tokens_of_both_sides_are_written():
    pieces = [str(at) for at in range(TEXT_UP_TO + 10)]
    (first, second), _, _ = decoded(payload(linked([[1.0, 2.0]], pieces, (4000, 7))))[0]["text"], 0, 0
    assert first == [7, ["7", "8"]] and second == [4000, ["4000"]]


def test_spans_marks_and_parts_of_characters_are_named():
    span = Span("needle", "A", 1, 3)
    pieces = ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    more = {"spans": (span,), "marks": ((0, 1),)}
    header, _, _ = decoded(payload(linked([[1.0] * 4] * 4, pieces, **more)))
    assert header["spans"][0]["letter"] == "A" and header["spans"][0]["color"].startswith("#")
    assert header["marks"] == [[0, 1]] and header["parts"]["2"] == "part 3 of 4 of 😀"


def test_another_limit_or_mark_is_another_message():
    first, again = linked([[1.0]]), linked([[1.0]])
    assert payload(first) == payload(again) and first.key == again.key
    other = linked([[1.0]], marks=((0, 1),))
    assert payload(other) != payload(first) and other.key != first.key

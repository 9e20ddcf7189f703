"""What the view is sent, decoded as shared.js does."""

import json
from dataclasses import replace
from itertools import starmap

import numpy as np
import pytest
import torch

from mta_viz.analysis.attention.changes import subtract
from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.compare.maps import ComparedMap
from mta_viz.model.stages import Stage
from mta_viz.plots import theme
from mta_viz.tokenizers.base import Tokens
from mta_viz.ui.attention.head import VIEW_UP_TO
from mta_viz.ui.linked.component import EXACT_UP_TO, TEXT_UP_TO, KernelPanel, Linked, Panel, payload


def tokens(pieces) -> Tokens:
    return Tokens(tuple(range(len(pieces))), tuple(pieces), ((0, 0),) * len(pieces), None)


def shown(values, start=(0, 0), stage=Stage.KQ) -> AttentionMap:
    cells = torch.tensor(values, dtype=torch.float32)
    return AttentionMap(1, 2, stage, cells, *start, distribution=stage is Stage.SOFTMAX)


def linked(values, pieces=None, start=(0, 0), stage=Stage.KQ, **more) -> Linked:
    panels = (Panel("", shown(values, start, stage), 2.0),)
    return Linked("map", "run", panels, tokens(pieces or ["a"] * len(values)), **more)


def decoded(message: bytes):
    """The header, the colours and cells of each map, and which cells are masked besides the future."""
    length = int.from_bytes(message[:4], "little")
    header, at = json.loads(message[4 : 4 + length]), 4 + length

    def take(count, kind):
        nonlocal at
        part = np.frombuffer(message, kind, count, at)
        at += part.nbytes + -part.nbytes % 4
        return part

    palettes = [take(768, np.uint8).reshape(256, 3) for _ in range(header["palettes"])]
    rows, columns = header["shape"]
    count = rows * (rows + 1) // 2 if header["triangle"] else rows * columns
    maps = []
    for panel in header["panels"]:
        cells = take(count, f"<{panel['kind']}")
        bits = take(-(-rows * columns // 8), np.uint8) if panel["masked"] else np.zeros(0, np.uint8)
        maps.append((palettes[panel["palette"]], cells, np.unpackbits(bits)[: rows * columns]))
    assert at == len(message)
    return header, *zip(*maps, strict=True)


def test_a_whole_map_is_its_triangle_with_what_is_not_finite():
    values = [[1.5, 9, 9], [-2.25, float("nan"), 9], [0.0, float("-inf"), 1e-30]]
    header, (colors,), (cells,), _ = decoded(payload(linked(values, ["<b>", "␣é", "c"])))
    (panel,) = header["panels"]
    assert header["triangle"] and header["shape"] == [3, 3] and panel["kind"] == "f4"
    wanted = [1.5, -2.25, float("nan"), 0.0, float("-inf"), np.float32(1e-30)]
    assert np.array_equal(cells, np.array(wanted, np.float32), equal_nan=True)
    assert header["text"] == [[0, ["<b>", "␣é", "c"]]] and header["title"].startswith("L1 H2 · after key-q")
    assert panel["signed"] and panel["bar"] == ["◀ < −2", "+2"]
    assert colors[0, 2] > colors[0, 0] and colors[-1, 0] > colors[-1, 2]  # blue below 0, red above


def test_a_part_is_sent_whole_and_weights_from_0():
    header, _, (cells,), _ = decoded(payload(linked([[0.25, 0.5]], ["a"] * 9, (5, 3), Stage.SOFTMAX)))
    assert (header["triangle"], header["start"], header["shape"]) == (False, [5, 3], [1, 2])
    (panel,) = header["panels"]
    assert cells.tolist() == [0.25, 0.5] and not panel["signed"] and panel["bar"] == ["0", "2"]
    assert len(header["text"][0][1]) == 9


def test_a_long_map_is_half_as_exact_whatever_its_size():
    for size in (1e-9, 1.0, 3e6):
        values = np.zeros((EXACT_UP_TO + 1, EXACT_UP_TO + 1), np.float32)
        values[-1, :3] = (size, -size / 1000, float("nan"))
        header, _, (cells,), _ = decoded(payload(linked(values.tolist())))
        row = cells[-len(values) :].astype(float) / header["panels"][0]["factor"]
        assert header["panels"][0]["kind"] == "f2" and np.isnan(row[2]) and row[3] == 0
        assert row[:2] == pytest.approx([size, -size / 1000], rel=1e-3)


def test_three_whole_maps_stay_below_two_megabytes():
    map_ = shown(np.random.default_rng(0).normal(size=(VIEW_UP_TO, VIEW_UP_TO)))
    message = replace(linked([[1.0]], ["word "] * VIEW_UP_TO), panels=(Panel("", map_, 2.0),) * 3)
    assert len(payload(message)) < 2_000_000


def test_maps_beside_one_another_have_their_own_colours_limits_and_masks():
    before, after = shown([[1.0, 9], [2.0, 3.0]], stage=Stage.RAW), shown([[0.5, 9], [2.5, 3.0]])
    change = subtract(replace(after, stage=Stage.RAW), before)
    compared = ComparedMap(**vars(change), other=(1, 2), unlike=(1,))
    panels = tuple(
        starmap(Panel, [("original", before, 5.0), ("edited", after, 5.0), ("difference", compared, 1.0)])
    )
    message = replace(linked([[1.0]], ["a", "b"]), panels=panels)
    header, (first, second, third), cells, (_, _, masked) = decoded(payload(message))
    assert [panel["heading"] for panel in header["panels"]] == ["original", "edited", "difference"]
    assert [panel["limit"] for panel in header["panels"]] == [5.0, 5.0, 1.0]
    assert (first == second).all() and (third == theme.color_table(theme.DIFFERENCE_SCALE)).all()
    assert [part.tolist() for part in cells] == [[1, 2, 3], [0.5, 2.5, 3], [-0.5, 0.5, 0]]
    assert masked.tolist() == [0, 0, 1, 1]  # the future is masked anyway
    assert "after key-query conv" in header["title"]


def test_a_smaller_map_of_another_prompt_is_filled_up_with_masked_cells():
    own, other = tokens(["a", "b"]), tokens(["a", "x", "y"])
    beside = Panel("B", shown([[5.0, 9, 9], [6.0, 7.0, 9], [1.0, 2.0, 3.0]]), 9.0, other)
    both = replace(
        linked([[1.0]], own.pieces), panels=(Panel("A", shown([[1.0, 9], [2.0, 3.0]]), 9.0), beside)
    )
    header, _, cells, masks = decoded(payload(both))
    assert header["shape"] == [3, 3] and header["triangle"] and header["tokens"] == 2
    assert [part.tolist() for part in cells] == [[1, 2, 3, 0, 0, 0], [5, 6, 7, 1, 2, 3]]
    assert masks[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1] and not len(masks[1])
    assert [panel["pieces"] for panel in header["panels"]] == [None, list(other.pieces)]
    same = replace(both, tokens=other)
    assert decoded(payload(same))[0]["panels"][1]["pieces"] is None


def test_a_kernel_is_sent_with_its_offsets_and_what_is_beyond_its_limit():
    taps = torch.tensor([[0.5, -0.25, float("nan")], [0.0, 1.0, 0.125]])
    kernel = KernelPanel(taps, -1, -1, 0.5, "L1 H2 pre")
    sent = decoded(payload(linked([[1.0]], kernel=kernel)))[0]["kernel"]
    assert sent["taps"] == [[0.5, -0.25, None], [0.0, 1.0, 0.125]] and (sent["query"], sent["key"]) == (
        -1,
        -1,
    )
    assert sent["bar"] == ["−0.5", "> +0.5 ▶"]


def test_of_a_very_long_prompt_the_tokens_of_both_sides_are_written():
    pieces = [str(at) for at in range(TEXT_UP_TO + 10)]
    first, second = decoded(payload(linked([[1.0, 2.0]], pieces, (4000, 7))))[0]["text"]
    assert first == [7, ["7", "8"]] and second == [4000, ["4000"]]


def test_spans_marks_and_parts_of_characters_are_named():
    span = Span("needle", "A", 1, 3)
    pieces = ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    more = {"spans": (span,), "marks": ((0, 1),), "crops": {"question x needle": ((2, 4), (1, 3))}}
    header = decoded(payload(linked([[1.0] * 4] * 4, pieces, **more)))[0]
    assert header["spans"][0]["letter"] == "A" and header["spans"][0]["color"].startswith("#")
    assert header["marks"] == [[0, 1]] and header["parts"]["2"] == "part 3 of 4 of 😀"
    assert header["crops"] == {"question x needle": [[2, 4], [1, 3]]} and header["crop"] == "whole"


def test_another_limit_mark_or_crop_is_another_message():
    first, again = linked([[1.0]]), linked([[1.0]])
    assert payload(first) == payload(again) and first.key == again.key
    limited = replace(first, panels=(replace(first.panels[0], limit=3.0),))
    for other in (limited, linked([[1.0]], marks=((0, 1),)), linked([[1.0]], crops={"A": ((0, 1), (0, 1))})):
        assert payload(other) != payload(first) and other.key != first.key

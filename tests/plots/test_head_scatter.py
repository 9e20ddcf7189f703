"""The scatter of heads, told from the figure's own data: places, hovers, what is left out."""

import math

import pytest
import torch

from mta_viz.analysis.attention.heads import HeadScores
from mta_viz.plots.attention.heads import head_scatter, n_without

AXES = ("distance", "previous.lift", "sink")


def scores(**values: list[list[float]]) -> HeadScores:
    made = dict(zip(AXES, map(torch.tensor, values.values()), strict=True))
    return HeadScores(3, None, made, torch.zeros(2, 2).long(), {})


FOUND = scores(
    across=[[1.0, 2.0], [3.0, math.nan]], up=[[-0.5, 0.25], [0.5, 0.0]], color=[[0.1, math.nan], [0.4, 0.2]]
)


def test_points_are_heads_at_their_two_scores_with_all_three_in_the_hover() -> None:
    figure = head_scatter(FOUND, AXES, numbering=1, selected=(1, 0))
    grey, colored = figure.data
    assert colored.x.tolist() == [1, 3] and colored.y.tolist() == [-0.5, 0.5]
    assert colored.customdata.tolist() == [[0, 0], [1, 0]]
    assert colored.marker.color.tolist() == pytest.approx([0.1, 0.4])
    assert colored.hovertext[1] == "L2 H1<br>distance: 3 tokens<br>previous token lift: +0.500 share<br>" + (
        "sink share: +0.400 share"
    )
    assert [words.x for words in figure.layout.annotations if words.text == "L2 H1"] == [3]
    assert colored.marker.size.tolist() == [10, 15]
    assert grey.customdata.tolist() == [[0, 1]] and "sink share: not measured here" in grey.hovertext[0]


def test_heads_without_a_place_are_counted() -> None:
    assert n_without(FOUND, AXES) == 1
    empty = scores(across=[[math.nan] * 2] * 2, up=[[0.0] * 2] * 2, color=[[0.0] * 2] * 2)
    assert n_without(empty, AXES) == 4 and not head_scatter(empty, AXES).data

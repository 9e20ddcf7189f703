"""Names beside points of a scatter: where they stand, and that none lies on another or on a point."""

import numpy as np

from mta_viz.plots.parts import Parts

ENDS = ((0.0, 100.0), (0.0, 100.0))


def named(points: list[tuple[float, float]], count: int, ends=ENDS) -> list[dict]:
    parts = Parts((120, 120), {"l": 10, "r": 10, "t": 10, "b": 10})  # a pixel is a unit
    parts.add_names([f"n{at}" for at in range(count)], points, ends)
    return parts.annotations


def test_a_name_stands_at_the_right_and_at_the_left_near_the_edge() -> None:
    assert [words["xanchor"] for words in named([(50, 50), (97, 20)], 2)] == ["left", "right"]
    (turned,) = named([(50, 2)], 1, (ENDS[0], (100.0, 0.0)))  # an axis that goes down
    assert (turned["x"], turned["y"]) == (50, 2)


def test_names_meet_neither_points_nor_names() -> None:
    first, second = named(
        [(50, 50), (50, 45), (70, 50)], 2
    )  # the other point lies where the first would stand
    assert first["xanchor"] == "right" and second["yanchor"] == "top"  # the first took its left
    crowd = [(x, y) for x in range(0, 101, 9) for y in range(0, 101, 9)]
    assert not named(crowd, len(crowd))  # no room: no name
    rng = np.random.default_rng(0)
    names = named([tuple(point) for point in rng.uniform(0, 100, (12, 2))], 12)
    assert 0 < len(names) < 12

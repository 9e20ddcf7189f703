"""Labels, ticks and numbers: what is written is what is there."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.plots import theme
from mta_viz.printed import probability_text


def test_markup_entities_and_tex_are_shown_letter_by_letter() -> None:
    assert theme.escape("<s>") == "&lt;s&gt;"
    assert theme.escape("&lt;") == "&amp;lt;"
    assert "$" not in theme.escape("$x$")


def test_a_right_to_left_token_cannot_swap_with_its_position() -> None:
    assert theme.tick_label(3, "שלום") == "3 \u2068שלום\u2069"
    assert theme.tick_label(3, "abc") == "3 abc"


def test_labels_are_cut_at_ten_characters_and_hovers_are_not() -> None:
    assert theme.tick_label(7, "0123456789") == "7 0123456789"
    assert theme.tick_label(7, "0123456789a") == "7 012345678…"
    assert theme.hover_label(7, "0123456789a") == '7 "0123456789a"'


@given(
    st.integers(0, 3000),
    st.integers(1, 3000),
    st.integers(40, 1500),
    st.lists(st.integers(0, 6000), max_size=4),
)
def test_ticks_never_touch_and_the_most_wanted_is_there(
    start: int, count: int, pixels: int, always: list[int]
) -> None:
    stop = start + count
    ticks = theme.tick_positions(start, stop, pixels, always)
    assert ticks == sorted(set(ticks)) and all(start <= tick < stop for tick in ticks)
    wanted = [*(p for p in always if start <= p < stop), start]
    assert wanted[0] in ticks
    gap = count / pixels * theme.TICK_SPACING
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(ticks))


def test_ticks_by_hand() -> None:
    assert theme.tick_positions(0, 5, 405) == [0, 1, 2, 3, 4]
    # 405 px hold 33 labels: of 66 positions every second, and the last in place of its neighbour.
    assert theme.tick_positions(0, 66, 405) == [*range(0, 64, 2), 65]
    assert theme.tick_positions(0, 100, 240, [51]) == [*range(0, 46, 5), 51, *range(60, 91, 5), 99]
    assert theme.tick_positions(4, 4, 100) == []


def test_numbers() -> None:
    assert theme.score_text(4.1834) == "+4.18" and theme.score_text(-0.0) == "-0"
    assert theme.weight_text(-0.0841) == "-0.084"
    assert probability_text(0.9731) == "0.973" and probability_text(0.00012) == "1.2e-4"
    assert probability_text(0.0) == "0.000"


@pytest.mark.parametrize(("signed", "values"), [(True, [-5, 0, 5]), (False, [0, 2.5, 5])])
def test_the_bar_prints_its_limits_and_says_what_lies_beyond(signed: bool, values: list[float]) -> None:
    inside = theme.color_bar(5.0, signed=signed)
    assert inside["tickvals"] == values and inside["ticktext"][-1] == ("+5" if signed else "5")
    assert "> " in theme.color_bar(5.0, signed=signed, values=np.array([6.0]))["ticktext"][-1]
    if signed:
        assert "< −5" in theme.color_bar(5.0, signed=True, values=np.array([-6.0]))["ticktext"][0]

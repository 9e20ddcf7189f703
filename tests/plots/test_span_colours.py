"""Which colour a span has, and letters where there is little room; scales that mean one thing."""

import colorsys
from itertools import pairwise

import pytest
from PIL.ImageColor import getrgb

from mta_viz.analysis.attention.spans import Span
from mta_viz.plots import theme
from mta_viz.plots.cells import aliases
from mta_viz.plots.parts import ASKED, ASKING, OTHERS, Parts, add_spans, colors_of
from mta_viz.tokenizers.base import Tokens

NEEDLES = tuple(Span(f"city {letter}", letter, 10 * at, 10 * at + 3) for at, letter in enumerate("ABC"))
ASKED_FOR, QUESTION = Span("Oslo (asked)", "D", 30, 33), Span("question", "?", 50, 55)


def test_a_span_keeps_its_colour_whatever_stands_beside_it():
    for spans in ((ASKED_FOR, QUESTION), (*NEEDLES, ASKED_FOR, QUESTION), (QUESTION, NEEDLES[0], ASKED_FOR)):
        colors = dict(zip(spans, colors_of(spans), strict=True))
        assert colors[ASKED_FOR] is ASKED and colors[QUESTION] is ASKING
        assert colors.get(NEEDLES[0], OTHERS[0]) is OTHERS[0]
    assert len({color.line for color in (ASKED, ASKING, *OTHERS)}) == 2 + len(OTHERS)


@pytest.mark.parametrize(("width", "letters"), [(800, "DABC"), (130, "D?AC")])
def test_letters_that_would_touch_give_way_to_what_is_asked_for(width, letters):
    parts = Parts((width, width), {"l": 10, "r": 10, "t": 10, "b": 10})
    crowded = (*NEEDLES, ASKED_FOR, Span("question", "?", 56, 60))
    add_spans(parts, crowded, range(60), range(60))
    drawn = {str(part["text"]): part["x"] for part in parts.annotations}
    places = sorted(float(x) * (width - 20) / 60 for x in drawn.values())
    assert all(right - left >= 11 for left, right in pairwise(places))
    assert set(letters) <= set(drawn) and len(parts.shapes) == 2 * len(crowded)


def _hues(scale: theme.Scale) -> list[float]:
    """Of the colours that have one, in degrees."""
    triples = [colorsys.rgb_to_hsv(*rgb) for rgb in (theme.color_table(scale) / 255).tolist()]
    return [360 * hue for hue, saturation, _ in triples if saturation > 0.1]


def test_no_hue_stands_for_what_is_below_0_and_for_what_cannot_be():
    mass, signed = _hues(theme.MASS_SCALE), _hues(theme.SIGNED_SCALE)
    assert not any(180 < hue < 260 for hue in mass) and any(180 < hue < 260 for hue in signed)
    assert min(abs(a - b) for a in mass for b in (*signed, *_hues(theme.DIFFERENCE_SCALE))) > 20


def test_the_scale_from_0_darkens_all_the_way():
    lightness = [sum(rgb) for rgb in theme.color_table(theme.MASS_SCALE).astype(int).tolist()]
    assert lightness == sorted(lightness, reverse=True) and lightness[0] == 3 * 255
    assert getrgb(theme.MASS_SCALE[-1]) == tuple(theme.color_table(theme.MASS_SCALE)[-1])


def test_a_byte_says_of_which_character_it_is_which_part():
    pieces = ("a", "<0xF0>", "<0x9F>", "<0x98><0x80>", "b")
    said = aliases(Tokens(tuple(range(5)), pieces, ((0, 0),) * 5, None), 0, 5, 1)
    assert "part 2 of 3 of 😀" in said["2"] and "part" not in said["0"] + said["4"]

"""The prompt as text: every token is there, letter by letter, on the colour of its value."""

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from model_cases import EXAMPLES

from mta_viz.analysis.attention.cells import Along, CrossSection
from mta_viz.analysis.attention.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.attention.text import CHAR_PX, FONT, Glyph, lay_out, token_text
from mta_viz.plots.parts import OTHERS
from mta_viz.tokenizers.base import Tokens, label

WIDTH = round(54 + 20 * CHAR_PX) + 1  # 20 columns


def made(pieces: list[str]) -> Tokens:
    return Tokens(tuple(range(len(pieces))), tuple(pieces), ((0, 0),) * len(pieces), None)


def section(values: list[float], start: int = 0, along: Along = "keys") -> CrossSection:
    position = start + len(values) - 1 if along == "keys" else start
    return CrossSection(2, 1, along, position, start, {Stage.PATTERN: torch.tensor(values)})


def drawn(pieces: list[str], values: list[float], start: int = 0, along: Along = "keys", **more) -> go.Figure:
    options = {"limit": 1.0, "width": WIDTH} | more
    return token_text(made(pieces), section(values, start, along), Stage.PATTERN, **options)


def heat(figure: go.Figure) -> np.ndarray:
    return next(trace for trace in figure.data if isinstance(trace, go.Heatmap)).z


def read_back(figure: go.Figure) -> dict[tuple[int, int], str]:
    """(line, column) -> character, from all text traces; wide ones at their first column."""
    found = {}
    for trace in letters(figure):
        assert not any("<" in text for text in trace.text)  # plotly would take it for markup
        for x, y, text in zip(trace.x, trace.y, map(plain, trace.text), strict=True):
            if trace.textposition == "middle right":
                found |= {(y, round(x + 0.5) + c): char for c, char in enumerate(text) if char != "\u00a0"}
            else:
                found[y, int(x)] = text
    return found


def letters(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in scatters(figure) if trace.mode == "text"]


def scatters(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if isinstance(trace, go.Scatter)]


def plain(text: str) -> str:
    for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&#36;", "$"), ("&amp;", "&")):
        text = text.replace(entity, char)
    return text.strip("\u2068\u2069")


def targets(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.meta == cells.TARGETS]


def test_layout_by_hand() -> None:
    glyphs = lay_out(["ab", "␣c", "東", "e\u0301", "⏎", "longer"], 6)
    assert glyphs == [
        Glyph("a", 0, 0, 0, 1), Glyph("b", 0, 0, 1, 1), Glyph("␣", 1, 0, 2, 1), Glyph("c", 1, 0, 3, 1),
        Glyph("東", 2, 0, 4, 2),
        Glyph("e\u0301", 3, 1, 0, 1), Glyph("⏎", 4, 1, 1, 1),
        *(Glyph(char, 5, 2, column, 1) for column, char in enumerate("longer")),
    ]  # fmt: skip


def test_a_token_longer_than_a_line_is_cut() -> None:
    assert [(g.line, g.column) for g in lay_out(["x", "abcde"], 3)] == [
        (0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1),
    ]  # fmt: skip
    assert [(g.line, g.column) for g in lay_out(["東東"], 3)] == [(0, 0), (1, 0)]


@given(some.lists(some.text(max_size=8), min_size=1, max_size=12), some.integers(8, 30))
@EXAMPLES
def test_every_character_of_every_label_has_its_own_place(texts: list[str], columns: int) -> None:
    pieces = [label(text) for text in texts]
    glyphs = lay_out(pieces, columns)
    for token, piece in enumerate(pieces):
        assert "".join(glyph.text for glyph in glyphs if glyph.token == token) == piece
    taken = [(g.line, g.column + extra) for g in glyphs for extra in range(g.width)]
    assert len(set(taken)) == len(taken) and all(0 <= column < columns for _, column in taken)
    assert taken == sorted(taken)


@given(some.lists(some.text(max_size=6), min_size=1, max_size=9))
@EXAMPLES
def test_the_text_read_back_is_the_text(texts: list[str]) -> None:
    pieces = [label(text) for text in texts]
    found = read_back(drawn(pieces, [0.5] * len(pieces)))
    want = {(g.line, g.column): g.text for g in lay_out(pieces, 20) if g.text != "␣"}
    assert found == want


ODD = ["<b>bold</b>", "$x_1$", "&amp;", "a\\b:{}", "שלום", "e\u0301e", "東京", "<U+200B>", "%{x}", "<\u0338b"]


def test_markup_is_shown_as_itself() -> None:
    found = read_back(drawn(ODD, [0.9, -0.9] * 5, width=900))
    assert "".join(found[place] for place in sorted(found)) == "".join(ODD)


def test_cells_carry_their_tokens_value_and_wide_ones_two() -> None:
    z = heat(drawn(["ab", "東", "c", "⏎", "d"], [0.1, -0.2, 0.3, 0.4, 0.5]))
    assert z.shape == (2, 20)
    assert z[0, :6].tolist() == pytest.approx([0.1, 0.1, -0.2, -0.2, 0.3, 0.4])
    assert z[1, 0] == pytest.approx(0.5) and np.isnan(z[0, 6:]).all() and np.isnan(z[1, 1:]).all()


def test_scales_are_signed_or_from_zero() -> None:
    def ends(figure: go.Figure) -> tuple[float, float]:
        trace = next(trace for trace in figure.data if isinstance(trace, go.Heatmap))
        return trace.zmin, trace.zmax

    assert ends(drawn(["a"], [0.5])) == (-1, 1)
    assert ends(drawn(["a"], [0.5], distribution=True)) == (0, 1)


def test_masked_tokens_are_hatched_grey_and_say_so() -> None:
    figure = drawn(["ab", "c", "de"], [0.5, 0.5])  # query 1: token 2 comes after it
    assert np.isnan(heat(figure)[0, 3:]).all()
    (hatch,) = [trace for trace in figure.data if trace.type == "scatter" and trace.fill == "toself"]
    assert (np.nanmin(hatch.x), np.nanmax(hatch.x)) == (2.5, 4.5)
    _, masked = targets(figure)
    assert [row[0] for row in masked.customdata.tolist()] == [2, 2]
    assert masked.hovertemplate.startswith("masked: key %{text} is after query 1")
    grey = [trace for trace in letters(figure) if trace.textfont.color == theme.FRAME]
    assert [plain(text) for trace in grey for text in trace.text] == ["de"]
    column = drawn(["ab", "c", "de"], [0.5, 0.5], 1, "queries")
    assert targets(column)[1].hovertemplate.startswith("masked: query %{text} is before key 1")


def test_every_character_is_a_target_with_its_token_and_value() -> None:
    (seen,) = targets(drawn(["ab", "東", "⏎", "c"], [0.25, -0.5, 0.0, 1.0]))
    assert seen.customdata.tolist() == [[0, 0.25], [0, 0.25], [1, -0.5], [2, 0], [3, 1]]
    assert seen.x.tolist() == [0, 1, 2.5, 4, 0] and seen.y.tolist() == [0, 0, 0, 0, 1]
    assert seen.text[2] == '1 "東"' and "final weights (multiply v): weight %{customdata[1]:+.4g}" in (
        seen.hovertemplate
    )


def test_negative_tokens_are_dotted_underneath_and_nan_is_crossed() -> None:
    figure = drawn(["ab", "c", "d", "e"], [-0.5, -0.01, 0.5, float("nan")])
    dotted = [trace for trace in scatters(figure) if trace.line.dash == "dot"]
    assert len(dotted) == 1 and np.nanmin(dotted[0].x) > -0.5 and np.nanmax(dotted[0].x) < 1.5
    (cross,) = [trace for trace in scatters(figure) if trace.marker.color == theme.BAD_COLOR]
    assert (cross.x.tolist(), cross.y.tolist()) == ([4], [0])
    assert not [trace for trace in scatters(drawn(["a"], [0.5])) if trace.line.dash == "dot"]


def test_ink_is_light_on_dark_cells() -> None:
    def ink(value: float, **more: object) -> str:
        return letters(drawn(["a"], [value], **more))[0].textfont.color

    assert ink(1.0) == ink(-1.0) == ink(9.0) == "#FFFFFF" and ink(0.0) == ink(0.3) == theme.INK
    assert ink(1.0, distribution=True) == "#FFFFFF" and ink(0.0, distribution=True) == theme.INK


def test_directions_differ_by_their_frame_and_the_token_is_boxed() -> None:
    row, column = drawn(["ab", "c"], [0.5, 0.5]), drawn(["ab", "c"], [0.5, 0.5], 0, "queries")
    assert row.layout.xaxis.linecolor != column.layout.xaxis.linecolor
    assert [(box.x0, box.x1) for box in row.layout.shapes] == [(1.5, 2.5)]
    assert [(box.x0, box.x1) for box in column.layout.shapes] == [(-0.5, 1.5)]
    assert "from query 1 c" in row.layout.annotations[-1].text
    assert "to key 0 ab" in column.layout.annotations[-1].text


def test_lines_fit_their_cells() -> None:
    figure = drawn(["a"] * 50, [0.1] * 50)
    plot_px = figure.layout.width - figure.layout.margin.l - figure.layout.margin.r
    assert plot_px == pytest.approx(20 * CHAR_PX, abs=1)
    assert figure.layout.yaxis.range == (2.5, -0.5) and set(figure.layout.yaxis.ticktext) == {"0", "20", "40"}
    assert {trace.textfont.family for trace in letters(figure)} == {FONT}


def test_a_long_prompt_is_a_few_traces_under_two_megabytes() -> None:
    pieces = [("␣the", "␣city", ".", "⏎", "東")[i % 5] for i in range(4096)]
    figure = drawn(pieces, np.linspace(-1, 1, 4096).tolist(), width=760)
    assert len(figure.data) < 15 and len(figure.to_json()) < 2_000_000
    assert sum(len(trace.text) for trace in letters(figure)) < 3000  # 819 newlines and wide letters each
    ids = [f"<id {4000 + i}>" for i in range(4096)]
    figure = drawn(ids, np.linspace(-1, 1, 4096).tolist(), width=760)
    assert len(figure.to_json()) < 2_000_000 and targets(figure)[0].text[-1] == "4095"
    assert sum(len(trace.text) for trace in letters(figure)) < 1000  # whole lines, in two inks


def test_spans_are_outlined_line_by_line_with_one_letter() -> None:
    pieces = ["abcdefgh", "ijklmnop", "qrstuvwx"]  # two tokens fill the first line of 20 columns
    figure = drawn(pieces, [0.1, 0.2, 0.3], spans=(Span("x", "A", 1, 3),))
    boxes = [shape for shape in figure.layout.shapes if shape.line.color == OTHERS[0].line]
    assert [(box.x0, box.x1, box.y0) for box in boxes] == [(7.5, 15.5, -0.5), (-0.5, 7.5, 0.5)]
    assert [(one.x, one.y) for one in figure.layout.annotations if one.text == "A"] == [(7.5, -0.5)]

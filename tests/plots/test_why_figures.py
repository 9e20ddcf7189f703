"""Why-figures: the tiles of a window, the bars of head mixing, and difference maps."""

from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from mta_viz.analysis.attention.changes import DifferenceMap
from mta_viz.analysis.attention.decomposition import Convolved, Mixed, Term, Window
from mta_viz.analysis.attention.pooling import Pooler
from mta_viz.analysis.kernels.kernels import Offsets
from mta_viz.model.stages import Stage
from mta_viz.plots import cells, theme
from mta_viz.plots.attention.maps import difference_caption, difference_map
from mta_viz.plots.attention.tokens import convolution_window, mixing_bars
from mta_viz.tokenizers.base import Tokens

TOKENS = Tokens((0, 1, 2, 3), ("<s>", "$a", "b", "c"), ((0, 0),) * 4, None)
KERNEL = torch.tensor([[0.5, 0.0, 0.1], [0.0, 2.0, 0.25]])
FACTS = {"layer": 1, "head": 0, "residual": 0.0}


def window_at(query: int, key: int, before: Stage = Stage.RAW, kernel: torch.Tensor = KERNEL) -> Convolved:
    """A 2 x 3 window over a map in which every visible score is 3."""
    offsets = Offsets((-1, 0), (-1, 0, 1))
    queries = torch.tensor(offsets.query)[:, None] + query
    keys = torch.tensor(offsets.key)[None] + key
    outside = (queries < 0) | (keys < 0) | (keys > 3)
    future = (keys > queries) & ~outside
    sources = torch.where(outside | future, 0.0, 3.0)
    terms = []
    for a, b in np.ndindex(2, 3):
        state = "outside" if outside[a, b] else "future" if future[a, b] else "inside"
        numbers = (float(part[a, b]) for part in (kernel, sources, kernel * sources))
        terms.append(Term(0, query + offsets.query[a], key + offsets.key[b], state, *numbers))
    after = Stage.KQ if before is Stage.RAW else Stage.SOFTMAX_KQ
    window = Window(offsets, kernel, sources, kernel * sources, outside, future)
    shown = tuple(sorted(terms, key=lambda term: -abs(term.product)))
    return Convolved(**FACTS, stage=after, query=query, key=key, value=1.0, stage_before=before, terms=shown,
                     window=window)  # fmt: skip


def heats(figure: go.Figure) -> list[go.Heatmap]:
    return [trace for trace in figure.data if isinstance(trace, go.Heatmap)]


def targets(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.meta == cells.TARGETS]


def hatches(figure: go.Figure, shape: str) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.type == "scatter" and trace.fillpattern.shape == shape]


def words(figure: go.Figure) -> str:
    return " | ".join(note.text for note in figure.layout.annotations)


def test_the_three_tiles_are_kernel_values_and_products() -> None:
    figure = convolution_window(window_at(3, 1), TOKENS)
    kernel, values, products = heats(figure)
    np.testing.assert_array_equal(kernel.z, KERNEL)
    np.testing.assert_array_equal(values.z, np.full((2, 3), 3))
    np.testing.assert_array_equal(products.z, 3 * KERNEL)
    assert (kernel.zmax, values.zmax, products.zmax) == (0.5, 5, 10)  # the own tap does not set the kernel's
    assert all(one.zmin == -one.zmax for one in heats(figure))
    text = words(figure)
    assert (
        "kernel</b><br>±0.5" in text and "raw scores here</b><br>±5" in text and "products</b><br>±10" in text
    )
    assert "×" in text and "=" in text and "Hatched" not in text


def test_axes_are_offsets_with_the_own_tap_framed() -> None:
    figure = convolution_window(window_at(3, 1), TOKENS)
    for heat in heats(figure):
        assert (heat.x0, heat.y0, heat.dx, heat.dy) == (-1, -1, 1, 1)
    assert figure.layout.xaxis.ticktext == ("-1", "0", "+1") and figure.layout.yaxis.ticktext == ("-1", "0")
    assert figure.layout.yaxis.range == (0.5, -1.5)
    assert [(box.x0, box.x1, box.y0, box.y1) for box in figure.layout.shapes] == [(-0.5, 0.5, -0.5, 0.5)] * 3


def test_outside_and_future_cells_are_hatched_apart_and_counted() -> None:
    figure = convolution_window(window_at(0, 0), TOKENS)
    outside, future = hatches(figure, "\\"), hatches(figure, "/")
    assert len(outside) == len(future) == 2  # on values and products, not on the kernel
    assert np.isnan(outside[0].x).sum() == 4 and np.isnan(future[0].x).sum() == 1  # one square each
    assert np.nanmean(future[0].x) == 1 and np.nanmean(future[0].y) == 0
    assert "Hatched (0): 4 outside the prompt · 1 future" in words(figure)
    assert words(figure).count("outside") == 3
    assert np.isfinite(heats(figure)[0].z).all()
    np.testing.assert_array_equal(np.isfinite(heats(figure)[1].z), [[False] * 3, [False, True, False]])
    future_only = words(convolution_window(window_at(1, 1), TOKENS))
    assert "Hatched (0): 3 future" in future_only and "| 0: future |" in future_only


def test_every_cell_says_its_product_and_in_the_middle_its_tokens() -> None:
    kernel, values, products = targets(convolution_window(window_at(1, 1), TOKENS))
    said = {(x, y): text for x, y, text in zip(values.x, values.y, values.hovertext, strict=True)}
    assert said[-1, -1] == 'query 0 "&lt;s&gt;"<br>key 0 "&lt;s&gt;"<br>tap +0.5 × +3 = +1.5'
    assert said[0, 0].startswith('query 1 "&#36;a"<br>key 1 "&#36;a"<br>tap +2 × +3')
    assert "masked: key 2 is after query 1, read as 0" in said[1, 0]
    for tile in (kernel, products):
        assert (
            "tap %{customdata[0]:+.3g} × %{customdata[1]:+.4g} = %{customdata[2]:+.4g}" in tile.hovertemplate
        )
        assert tile.customdata[0].tolist() == [0.5, 3, 1.5] and tile.hovertext is None
    outside = targets(convolution_window(window_at(0, 0), TOKENS))[1]
    assert "outside the prompt" in outside.hovertext[0]


def test_softmax_sources_are_drawn_from_zero() -> None:
    figure = convolution_window(window_at(3, 1, Stage.SOFTMAX), TOKENS)
    assert (heats(figure)[1].zmin, heats(figure)[1].zmax) == (0, 5)
    assert "softmax here</b><br>0..5" in words(figure)


def test_nan_is_a_cross() -> None:
    kernel = KERNEL.clone()
    kernel[0, 2] = torch.nan
    figure = convolution_window(window_at(3, 1, kernel=kernel), TOKENS)
    crosses = [one for one in figure.data if one.type == "scatter" and one.marker.color == theme.BAD_COLOR]
    assert [(list(one.x), list(one.y)) for one in crosses] == [([1], [-1])] * 2  # kernel and products


@pytest.mark.parametrize("width", [368, 556, 940])
def test_the_window_fits_any_width(width: int) -> None:
    figure = convolution_window(window_at(3, 1), TOKENS, width=width)
    domains = [figure.layout[name].domain for name in ("xaxis", "xaxis2", "xaxis3")]
    assert figure.layout.width == width and domains[0][0] == 0 and domains[2][1] == pytest.approx(1)
    assert all(left[1] < right[0] for left, right in pairwise(domains))


def test_mixing_bars_are_the_products_by_source_head() -> None:
    terms = (Term(3, 2, 1, "inside", 1.0, 4.0, 4.0), Term(2, 2, 1, "inside", -0.5, 3.0, -1.5))
    found = Mixed(
        **FACTS | {"head": 3}, stage=Stage.MIX, query=2, key=1, value=2.5, stage_before=Stage.KQ, terms=terms
    )
    figure = mixing_bars(found, numbering=1)
    (bars,) = figure.data
    assert bars.x.tolist() == [-1.5, 4] and list(bars.y) == [2, 3] and bars.text == ("−1.5", "+4")
    assert bars.marker.color == (theme.NEGATIVE_COLOR, theme.POSITIVE_COLOR)
    assert figure.layout.yaxis.ticktext == ("H3  −0.5 × +3", "H4 own  +1 × +4")
    assert "+2.5 = sum over 2 source heads" in words(figure) and "(score)" in words(figure)
    low, high = figure.layout.xaxis.range
    assert low < -1.5 and high > 4


def change(values: torch.Tensor) -> DifferenceMap:
    return DifferenceMap(2, 1, Stage.KQ, values, 0, 0, before=Stage.RAW)


def test_a_difference_has_its_own_colours_and_words() -> None:
    values = torch.tensor([[1.0, 0], [-2, 0.5]])
    figure = difference_map(change(values), TOKENS, limit=2.0, numbering=1)
    (heat,) = heats(figure)
    assert heat.colorscale[0][1] == "rgb(84,48,5)" and (heat.zmin, heat.zmax) == (-2, 2)
    assert "L3 H2 · after minus before the key-query conv (score)" in words(figure)
    seen = targets(figure)[0]
    assert seen.customdata[1].tolist() == [-2]
    assert "change by the key-query conv: %{customdata[0]:+.4g} (score)" in seen.hovertemplate
    said = difference_caption(change(values), 4.0)
    assert said == (
        "Score after minus before the key-query conv, same head. Brown: lowered, green: raised. Limits ±4."
    )


def test_a_pooled_difference_says_where_its_peak_is() -> None:
    pooler = Pooler(2, 4)
    pooler.add(torch.ones(4, 4).tril())
    pooled = pooler.result()
    one = DifferenceMap(2, 1, Stage.PATTERN, pooled.values, 0, 0, 2, pooled=pooled, before=Stage.SOFTMAX)
    figure = difference_map(one, TOKENS, limit=1.0)
    assert "largest change %{customdata[0]:+.4g} (weight) at" in targets(figure)[0].hovertemplate
    assert "after minus before the last mixing or subtraction (weight) · 2 x 2 blocks" in words(figure)

"""A text on its losses: each token on its own, hatched where none is, and what the hover tells."""

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from mta_viz.analysis.labs.text import TextLosses
from mta_viz.plots import cells
from mta_viz.plots.labs import loss_text
from mta_viz.tokenizers.base import Tokens

PIECES = ("<BOS>", "a", "<b>$x", "␣ש")
FOUND = TextLosses(
    Tokens((0, 1, 2, 3), PIECES, ((0, 0),) * 4, None),
    torch.tensor([torch.nan, 0.0, 2.0, 9.5]),
    torch.tensor([0, 1, 4, 1234]),
    ("", "a", "<i>", "z"),
    16,
)


def told(figure: go.Figure) -> list[str]:
    (targets,) = (trace for trace in figure.data if trace.meta == cells.TARGETS)
    return list(dict.fromkeys(targets.text))


def test_colours_are_the_losses_and_the_first_token_has_none():
    figure = loss_text(FOUND, range(4), limit=6.0)
    heat = next(trace for trace in figure.data if isinstance(trace, go.Heatmap))
    row = heat.z[0]
    assert np.isnan(row[:5]).all() and row[5] == 0 and set(row[6:11]) == {2.0} and set(row[11:13]) == {9.5}
    assert (heat.zmin, heat.zmax) == (0.0, 6.0) and "> 6" in heat.colorbar.ticktext[-1]


def test_the_hover_tells_probability_rank_and_what_was_likeliest():
    first, sure, odd, last = told(loss_text(FOUND, range(4), limit=6.0))
    assert first.endswith("nothing predicts it") and "&lt;BOS&gt;" in first
    assert sure.endswith("probability 1.000 · rank 1<br>loss 0.000 nats")
    assert '2 "&lt;b&gt;&#36;x"' in odd and "probability 0.135 · rank 4" in odd
    assert 'likeliest: "&lt;i&gt;"' in odd
    assert "probability 7.5e-5 · rank 1,234" in last


@pytest.mark.parametrize("shown", [range(2, 4), range(1, 2)])
def test_a_part_keeps_its_positions(shown):
    figure = loss_text(FOUND, shown, limit=6.0)
    assert told(figure)[0].startswith(f"{shown.start} ")
    assert figure.layout.yaxis.ticktext[0] == str(shown.start)

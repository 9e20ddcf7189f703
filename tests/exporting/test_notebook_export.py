"""`mta_viz.export` writes what the suffix says, never over a file unasked."""

import plotly.graph_objects as go
import pytest

import mta_viz
from mta_viz.errors import MtaVizError

FIGURE = go.Figure(go.Heatmap(z=[[0.0, 1.0]]), layout={"width": 300, "height": 200})


def test_a_page_is_written_once(tmp_path):
    path = mta_viz.export(FIGURE, tmp_path / "map.html")
    assert "Plotly.newPlot" in path.read_text("utf-8")
    with pytest.raises(MtaVizError, match=r"map\.html exists.*force=True"):
        mta_viz.export(FIGURE, path)
    assert mta_viz.export(FIGURE, path, force=True) == path


@pytest.mark.parametrize(("name", "says"), [("map.jpg", "none of .png"), ("no/map.html", "does not exist")])
def test_what_cannot_be_written_is_said(tmp_path, name, says):
    with pytest.raises(MtaVizError, match=says):
        mta_viz.export(FIGURE, tmp_path / name)

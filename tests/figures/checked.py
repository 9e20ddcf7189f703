"""Whether plotly takes a figure as it is: products draw without having their layouts checked."""

import json

import plotly.graph_objects as go


def assert_plotly_takes_it(figure: go.Figure) -> None:
    """Every part of the figure is valid, and plotly's checks change none of it."""
    drawn = json.loads(figure.to_json())
    assert json.loads(go.Figure(json.loads(figure.to_json())).to_json()) == drawn

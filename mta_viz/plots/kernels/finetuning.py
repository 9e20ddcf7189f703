"""A finetuning's loss and its right answers on held-out samples, over its steps, side by side."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from mta_viz.analysis.kernels.finetuning import FinetuningRun, HeldOut
from mta_viz.plots import theme
from mta_viz.plots.parts import Parts

_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 62, 14, 40, 50, 84


def finetuning_curves(run: FinetuningRun, *, size: tuple[int, int] = (940, 300)) -> go.Figure:
    """Loss at the left; at the right the share of right answers, with 95 % intervals.

    Grey: a few samples looked at on the way; coloured: all of them, of the base and of the result.
    """
    parts = Parts(size, {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    room = size[0] - _LEFT - _RIGHT
    left, right = (room - _GAP) / 2 / room, (room + _GAP) / 2 / room
    last = max(run.steps if run.state == "running" else run.step, 1)
    steps: dict[str, Any] = {"range": (-0.04 * last, 1.04 * last), "nticks": 6}
    parts.traces.append(_loss(run))
    parts.traces += _answers(run)
    parts.layout |= {
        "xaxis": theme.axis(domain=(0, left), **steps),
        "yaxis": theme.axis(rangemode="tozero"),
        "xaxis2": theme.axis(domain=(right, 1), anchor="y2", **steps),
        "yaxis2": theme.axis(range=(-0.03, 1.03), anchor="x2", tickvals=[0, 0.25, 0.5, 0.75, 1]),
        "dragmode": False,
    }
    for start, stop, title, unit in ((0.0, left, "Loss", "nats"), (right, 1.0, "Right answers", "share")):
        _add_words(parts, (start, stop), title, unit)
    if not run.loss:
        _say(parts, left / 2, "no step reported yet")
    if not (run.looks or run.before or run.after):
        _say(parts, (right + 1) / 2, "no held-out samples")
    return parts.figure()


def _loss(run: FinetuningRun) -> go.Scatter:
    x, y = zip(*run.loss, strict=True) if run.loss else ((), ())
    look = {"color": theme.SELECTED_COLOR, "width": 2}
    hover = [f"step {step:,}<br>loss {value:.4f}" for step, value in run.loss]
    return go.Scatter(x=x, y=y, mode="lines", line=look, **theme.hover(hover))


def _answers(run: FinetuningRun) -> list[go.Scatter]:
    traces = [_points(run.looks, theme.FRAME, 5, "lines+markers", "of the samples looked at on the way")]
    for held_out, color, words in (
        (run.before, theme.INCOMING_COLOR, "of all held-out samples: the base"),
        (run.after, theme.SELECTED_COLOR, "of all held-out samples: the result"),
    ):
        if held_out is not None:
            traces.append(_points((held_out,), color, 10, "markers", words))
    return traces


def _points(samples: Sequence[HeldOut], color: str, size: int, mode: str, words: str) -> go.Scatter:
    """Points with their intervals as bars."""
    ends = [each.interval for each in samples]
    hover = [
        f"step {each.step:,}: {each.right} of {each.n} {words}<br>95 % interval {low:.1%} to {high:.1%}"
        for each, (low, high) in zip(samples, ends, strict=True)
    ]
    return go.Scatter(
        x=[each.step for each in samples],
        y=[each.share for each in samples],
        xaxis="x2",
        yaxis="y2",
        mode=mode,
        line={"color": color, "width": 1},
        marker={"color": color, "size": size},
        error_y={
            "array": [high - each.share for each, (_, high) in zip(samples, ends, strict=True)],
            "arrayminus": [each.share - low for each, (low, _) in zip(samples, ends, strict=True)],
            "thickness": 1.5 if len(samples) == 1 else 0.7,
            "width": 4,
            "color": color,
        },
        **theme.hover(hover),
    )


def _add_words(parts: Parts, domain: tuple[float, float], title: str, unit: str) -> None:
    """A panel's heading and the titles of its axes."""
    heading = {"x": domain[0], "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": 4}
    parts.add_words(title, 13, **heading)
    below = {"x": sum(domain) / 2, "y": 0, "xanchor": "center", "yanchor": "bottom", "yshift": 2 - _BOTTOM}
    parts.add_words("training step", 12, **below)
    beside = {"x": domain[0], "y": 0.5, "xanchor": "left", "yanchor": "middle", "xshift": 1 - _LEFT}
    parts.add_words(unit, 12, textangle=-90, **beside)


def _say(parts: Parts, x: float, text: str) -> None:
    dark = {"size": 12, "color": theme.INK}  # the plotting area is white on a dark page too
    parts.add_words(text, 12, x=x, y=0.5, xanchor="center", yanchor="middle", font=dark)

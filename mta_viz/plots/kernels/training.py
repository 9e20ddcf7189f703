"""Trainings: named kernels in others and over the steps of their own, a finetuning's loss and answers.

Of named kernels there is a row for each, filled if so named.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.kernels.finetuning import FinetuningRun, HeldOut
from mta_viz.analysis.kernels.recurrence import Lasting, Match, Recurrence, Recurring, Training
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts

FILLED = [[0.0, "#FFFFFF"], [1.0, "#9CC9E6"]]  # dark letters stand on both
_ROW_PX, _COLUMN_PX, _LEFT, _TOP, _BOTTOM = 21, 180, 240, 100, 46  # the longest names fit
_STEP_PX = 900


def recurring_grid(recurring: Recurring, *, numbering: int = 0) -> go.Figure:
    """A column a training: which kernel each named one is matched with, and whether the name is the same.

    Clicks: the event's customdata is (layer, head).
    """
    named, trainings = recurring.named, recurring.trainings
    at = {match.kernel: row for row, match in enumerate(named)}
    same = np.full((len(named), len(trainings)), np.nan)
    texts = [["" for _ in trainings] for _ in named]
    for column, training in enumerate(trainings):
        for match in training.recurrence.matches:
            row = at[match.kernel]
            same[row, column] = match.same
            texts[row][column] = f"{_short(match)} {match.cosine:+.2f}"
    names = [at.name if len(at.name) <= 20 else f"…{at.name[-19:]}" for at in trainings]  # ends differ
    counts = [_counted(training.recurrence) for training in trainings]
    heads = [f"{theme.escape(name)}<br>{count}" for name, count in zip(names, counts, strict=True)]
    size = (_LEFT + _COLUMN_PX * len(trainings) + 14, _ROW_PX * max(len(named), 2) + _TOP + _BOTTOM)
    parts = Parts(size, {"l": _LEFT, "r": 14, "t": _TOP, "b": _BOTTOM})
    parts.traces += [_filled(same, texts), _rows_to_click(named, trainings, numbering)]
    labels = [f"{match.kernel.name(numbering)}  {match.shape}" for match in named]
    parts.layout |= {
        "xaxis": theme.listed(heads, side="top"),
        "yaxis": theme.listed(labels, down=True),
        "dragmode": False,
    }
    return parts.figure(
        "The kernels in other trainings",
        "matched within layer and place:<br>name, cosine",
    )


def _short(match: Match) -> str:
    return f"<b>{match.other_shape}</b>" if match.same else theme.cut(match.other_shape, 14)


def _counted(matched: Recurrence) -> str:
    return f"{matched.same} of {matched.n_named}, chance {matched.expected:.1f}<br>p = {matched.p:.2g}"


def _filled(same: np.ndarray, texts: Sequence[Sequence[str]] | None = None) -> go.Heatmap:
    words = {"texttemplate": "%{text}", "textfont": {"size": 10, "color": theme.INK}}
    look = {} if texts is None else {"text": texts, **words}
    return go.Heatmap(
        z=same, zmin=0, zmax=1, colorscale=FILLED, showscale=False, xgap=1, ygap=1, hoverinfo="skip", **look
    )


def _rows_to_click(named: Sequence[Match], trainings: Sequence[Training], numbering: int) -> go.Scatter:
    """Targets over the cells, with both kernels in the hover."""
    x, y, texts, data = [], [], [], []
    by_kernel = [{match.kernel: match for match in training.recurrence.matches} for training in trainings]
    for row, first in enumerate(named):
        for column, matches in enumerate(by_kernel):
            match = matches[first.kernel]
            other = f"{match.other.name(numbering)}: {match.other_shape}, cosine {match.cosine:+.3f}"
            x.append(column)
            y.append(row)
            texts.append(f"{match.kernel.name(numbering)}: {match.shape}<br>there {other}")
            data.append((match.kernel.layer, match.kernel.head))
    made = cells.targets(np.array(x), np.array(y), 12.0, "%{text}", np.array(data, np.int16).reshape(-1, 2))
    return made.update(text=texts)


def lasting_rows(rows: Sequence[Lasting], steps: Sequence[int], *, numbering: int = 0) -> go.Figure:
    """A column a snapshot, filled where the kernel had the name that it has at the end.

    Clicks: the event's customdata is (layer, head).
    """
    borne = np.array([row.bears for row in rows], float).reshape(len(rows), len(steps))
    size = (_STEP_PX, _ROW_PX * max(len(rows), 2) + 44 + 44)
    parts = Parts(size, {"l": _LEFT, "r": 14, "t": 44, "b": 44})
    data = np.array([(row.kernel.layer, row.kernel.head) for row in rows], np.int16)
    y, x = np.indices(borne.shape).reshape(2, -1)
    names = [f"{row.kernel.name(numbering)}  {row.shape}" for row in rows]
    hover = [
        f"{names[row]}<br>step {steps[column]:,}: "
        f"{'this name' if borne[row, column] else 'another name, or none'}"
        for row, column in zip(y.tolist(), x.tolist(), strict=True)
    ]
    targets = cells.targets(x, y, 9.0, "%{text}", data[y] if len(rows) else data.reshape(0, 2))
    parts.traces += [_filled(borne), targets.update(text=hover)]
    every = theme.tick_positions(0, len(steps), (_STEP_PX - _LEFT) // 4, [len(steps) - 1])
    parts.layout |= {
        "xaxis": theme.axis(
            range=(-0.5, len(steps) - 0.5), **theme.ticks({at: f"{steps[at]:,}" for at in every})
        ),
        "yaxis": theme.listed(names, down=True),
        "dragmode": False,
    }
    return parts.figure(
        "Since when each named kernel has had its name", "training step of the snapshot (not to scale)"
    )


_PANEL_LEFT, _RIGHT, _PANEL_TOP, _PANEL_BOTTOM, _GAP = 62, 14, 40, 50, 84
_FALLEN, _LEAST_SHARE = 2.0, 0.01  # of the least loss; of the largest, on either side of the middle


def finetuning_curves(run: FinetuningRun) -> go.Figure:
    """Loss, and beside it, of a task with answers, the share of right ones, with 95 % intervals.

    Grey: a few samples looked at on the way; coloured: all of them, of the base and of the result.
    """
    parts = Parts((940, 300), {"l": _PANEL_LEFT, "r": _RIGHT, "t": _PANEL_TOP, "b": _PANEL_BOTTOM})
    room = parts.size[0] - _PANEL_LEFT - _RIGHT
    answered = bool(run.looks or run.before or run.after)
    left, right = ((room - _GAP) / 2 / room, (room + _GAP) / 2 / room) if answered else (1.0, 1.0)
    last = max(run.steps if run.state == "running" else run.step, 1)
    steps: dict[str, Any] = {"range": (-0.04 * last, 1.04 * last), "nticks": 6}
    parts.traces.append(_loss(run))
    scale, unit = _loss_scale([loss for _, loss in run.loss])
    parts.layout |= {
        "xaxis": theme.axis(domain=(0, left), **steps),
        "yaxis": theme.axis(**scale),
        "dragmode": False,
    }
    _add_words(parts, (0.0, left), "Loss", unit)
    if answered:
        parts.traces += _answers(run)
        parts.layout |= {
            "xaxis2": theme.axis(domain=(right, 1), anchor="y2", **steps),
            "yaxis2": theme.axis(range=(-0.03, 1.03), anchor="x2", tickvals=[0, 0.25, 0.5, 0.75, 1]),
        }
        _add_words(parts, (right, 1.0), "Right answers", "share")
    if not run.loss:
        dark = {"size": 12, "color": theme.INK}  # the plotting area is white on a dark page too
        middle = {"x": left / 2, "y": 0.5, "xanchor": "center", "yanchor": "middle"}
        parts.add_words("no step reported yet", 12, font=dark, **middle)
    return parts.figure()


def _loss_scale(losses: Sequence[float]) -> tuple[dict[str, Any], str]:
    """The range of the axis and its unit: logarithmic where the start would press the rest flat.

    Else it holds the losses, and is never so narrow that noise looks like learning.
    """
    low, high = min(losses, default=0.0), max(losses, default=0.0)
    if high > _FALLEN * low > 0:
        return {"type": "log"}, "nats, log scale"
    middle, half = (low + high) / 2, max(0.55 * (high - low), _LEAST_SHARE * abs(high))
    return ({"range": (middle - half, middle + half)} if half else {}), "nats"


def _loss(run: FinetuningRun) -> go.Scatter:
    x, y = zip(*run.loss, strict=True) if run.loss else ((), ())
    color = theme.SELECTED_COLOR
    look = {"mode": "lines" if len(run.loss) > 1 else "markers", "line": {"color": color, "width": 2}}
    hover = [f"step {step:,}<br>loss {value:.4f}" for step, value in run.loss]
    return go.Scatter(x=x, y=y, marker={"color": color}, **look, **theme.hover(hover))


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
    shares, thickness = [each.share for each in samples], 1.5 if len(samples) == 1 else 0.7
    return go.Scatter(
        x=[each.step for each in samples],
        y=shares,
        xaxis="x2",
        yaxis="y2",
        mode=mode,
        line={"color": color, "width": 1},
        marker={"color": color, "size": size},
        error_y=theme.whiskers(shares, ends, thickness=thickness, width=4, color=color),
        **theme.hover(hover),
    )


def _add_words(parts: Parts, domain: tuple[float, float], title: str, unit: str) -> None:
    """A panel's heading and the titles of its axes."""
    heading = {"x": domain[0], "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": 4}
    parts.add_words(title, 13, **heading)
    below = {"y": 0, "xanchor": "center", "yanchor": "bottom", "yshift": 2 - _PANEL_BOTTOM}
    parts.add_words("training step", 12, x=sum(domain) / 2, **below)
    beside = {"x": domain[0], "y": 0.5, "xanchor": "left", "yanchor": "middle", "xshift": 1 - _PANEL_LEFT}
    parts.add_words(unit, 12, textangle=-90, **beside)

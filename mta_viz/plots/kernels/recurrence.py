"""Named kernels in other trainings and over the steps of their own: a row a kernel, filled if so named."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.kernels.recurrence import Lasting, Match, Recurrence, Recurring, Training
from mta_viz.plots import cells, theme
from mta_viz.plots.parts import Parts

FILLED = [[0.0, "#FFFFFF"], [1.0, "#9CC9E6"]]  # dark letters stand on both
_ROW_PX, _COLUMN_PX, _LEFT, _TOP, _BOTTOM = 21, 136, 210, 100, 34
_STEP_PX = 900


def recurring_grid(recurring: Recurring, *, numbering_from: int = 0) -> go.Figure:
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
    heads = [
        f"{theme.escape(_end_of(training.name))}<br>{_counted(training.recurrence)}" for training in trainings
    ]
    size = (_LEFT + _COLUMN_PX * len(trainings) + 14, _ROW_PX * max(len(named), 2) + _TOP + _BOTTOM)
    parts = Parts(size, {"l": _LEFT, "r": 14, "t": _TOP, "b": _BOTTOM})
    parts.traces += [_filled(same, texts), _rows_to_click(named, trainings, numbering_from)]
    labels = [f"{match.kernel.name(numbering_from)}  {match.shape}" for match in named]
    parts.layout |= {
        "xaxis": theme.listed(heads, side="top"),
        "yaxis": theme.listed(labels, down=True),
        "dragmode": False,
    }
    return parts.figure(
        "The named kernels in other trainings",
        "other training: name of the kernel matched within layer and place, cosine",
    )


def _end_of(name: str) -> str:
    """Names of trainings differ at their ends."""
    return name if len(name) <= 20 else f"…{name[-19:]}"


def _short(match: Match) -> str:
    return f"<b>{match.other_shape}</b>" if match.same else theme.cut(match.other_shape, 14)


def _counted(matched: Recurrence) -> str:
    return f"{matched.same} of {len(matched.matches)}, chance {matched.expected:.1f}<br>p = {matched.p:.2g}"


def _filled(same: np.ndarray, texts: Sequence[Sequence[str]] | None = None) -> go.Heatmap:
    look = (
        {}
        if texts is None
        else {"text": texts, "texttemplate": "%{text}", "textfont": {"size": 10, "color": theme.INK}}
    )
    return go.Heatmap(
        z=same, zmin=0, zmax=1, colorscale=FILLED, showscale=False, xgap=1, ygap=1, hoverinfo="skip", **look
    )


def _rows_to_click(named: Sequence[Match], trainings: Sequence[Training], numbering_from: int) -> go.Scatter:
    """Targets over the cells, with both kernels in the hover."""
    x, y, texts, data = [], [], [], []
    by_kernel = [{match.kernel: match for match in training.recurrence.matches} for training in trainings]
    for row, first in enumerate(named):
        for column, matches in enumerate(by_kernel):
            match = matches[first.kernel]
            other = f"{match.other.name(numbering_from)}: {match.other_shape}, cosine {match.cosine:+.3f}"
            x.append(column)
            y.append(row)
            texts.append(f"{match.kernel.name(numbering_from)}: {match.shape}<br>there {other}")
            data.append((match.kernel.layer, match.kernel.head))
    made = cells.targets(np.array(x), np.array(y), 12.0, "%{text}", np.array(data, np.int16).reshape(-1, 2))
    return made.update(text=texts)


def lasting_rows(rows: Sequence[Lasting], steps: Sequence[int], *, numbering_from: int = 0) -> go.Figure:
    """A column a snapshot, filled where the kernel had the name that it has at the end.

    Clicks: the event's customdata is (layer, head).
    """
    borne = np.array([row.bears for row in rows], float).reshape(len(rows), len(steps))
    size = (_STEP_PX, _ROW_PX * max(len(rows), 2) + 44 + 44)
    parts = Parts(size, {"l": _LEFT, "r": 14, "t": 44, "b": 44})
    data = np.array([(row.kernel.layer, row.kernel.head) for row in rows], np.int16)
    y, x = np.indices(borne.shape).reshape(2, -1)
    names = [f"{row.kernel.name(numbering_from)}  {row.shape}" for row in rows]
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

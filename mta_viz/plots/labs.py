"""Accuracies of a sweep as the paper draws them: depth x length as a map, needles as lines with bands.

The conjunction test as a layer x head map: what two words together give beyond the sum of both.
A text whose tokens stand on the colours of their losses: what a model expected, and what not.
Kernels of several shapes that were trained alike: how often each is right, with its seeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.attention.heads import Score
from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.labs.cards import ArmRun, Arms, pooled
from mta_viz.analysis.labs.conjunction import Conjunction, Effects, Measure, measure_there, p_values, score_of
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.analysis.labs.text import TextLosses
from mta_viz.config import Head
from mta_viz.plots import cells, theme
from mta_viz.plots.attention import text as text_cells
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.attention.text import Coloring
from mta_viz.plots.cause import sweep_map
from mta_viz.plots.parts import Number, Parts
from mta_viz.printed import probability_text
from mta_viz.tasks.intervals import level_text

DASHES = ("solid", "dash", "dot", "dashdot")
_ROW_PX, _LEFT, _RIGHT, _TOP, _BOTTOM = 44, 66, 12, 66, 44
CHART_PX, _LEAST_PX, _LINES_HEIGHT = 440, 130, 320


def accuracy_map(
    scores: Mapping[tuple[float | int, int], NeedleScore],
    depths: Sequence[float | int],
    lengths: Sequence[int],
    title: str,
) -> go.Figure:
    """Depths down, lengths across, 0 to 1; each cell has its share, 95 % interval and number of samples.

    `scores` by (depth in per cent, length in tokens); combinations without samples are hatched.
    """
    height = max(_ROW_PX * len(depths), _LEAST_PX) + _TOP + _BOTTOM
    parts = Parts((CHART_PX, height), {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    rows_of_scores = [[scores.get((depth, length)) for length in lengths] for depth in depths]
    words = [
        ["" if score is None else score_words(score).replace(" [", "<br>[") for score in row]
        for row in rows_of_scores
    ]
    colored = cells.grid(
        np.array([[np.nan if score is None else score.accuracy for score in row] for row in rows_of_scores]),
        1.0,
        signed=False,
        colorbar=theme.color_bar(1.0, signed=False),
        text=words,
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        xgap=1,
        ygap=1,
    )
    empty = [
        (y, x, 1, 1) for y, row in enumerate(rows_of_scores) for x, score in enumerate(row) if score is None
    ]
    parts.traces += [colored, *cells.hatched_boxes(empty)]
    parts.layout |= {
        "xaxis": theme.listed([f"{n:,}" for n in lengths]),
        "yaxis": theme.listed([f"{depth:g} %" for depth in depths], down=True),
        "dragmode": False,
    }
    return parts.figure(theme.escape(title), "length in tokens", "depth of the asked needle")


def score_words(score: NeedleScore) -> str:
    """`0.94 [0.88, 0.97] n=120`."""
    low, high = score.interval
    return f"{score.accuracy:.2f} [{low:.2f}, {high:.2f}] n={score.n}"


def accuracy_lines(
    models: Mapping[str, Mapping[int, NeedleScore]], ticks: Sequence[int], title: str
) -> go.Figure:
    """A line a model over the numbers `ticks`, bands and bars for its 95 % intervals; at most four models."""
    parts = Parts((CHART_PX, _LINES_HEIGHT), {"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM})
    for (name, scores), color, dash in zip(models.items(), theme.LINE_COLORS, DASHES, strict=False):
        parts.traces += _band_and_line(name, scores, color, dash)
    parts.layout |= {
        "xaxis": theme.axis(
            range=(min(ticks) - 0.5, max(ticks) + 0.5), **theme.ticks({tick: f"{tick}" for tick in ticks})
        ),
        "yaxis": theme.axis(range=(-0.02, 1.02), tickvals=[0, 0.25, 0.5, 0.75, 1]),
        **{"showlegend": True, "legend": theme.LEGEND, "dragmode": False},
    }
    return parts.figure(theme.escape(title), "needles in the prompt", "share of right answers")


def _band_and_line(
    name: str, scores: Mapping[int, NeedleScore], color: str, dash: str
) -> tuple[go.Scatter, go.Scatter]:
    shares, ends = zip(*((score.accuracy, score.interval) for score in scores.values()), strict=True)
    band = go.Scatter(
        x=[*scores, *reversed(list(scores))],
        y=[*(low for low, _ in ends), *(high for _, high in reversed(ends))],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=color,
        opacity=0.18,
        showlegend=False,
        hoverinfo="skip",
    )
    line = go.Scatter(
        x=list(scores),
        y=shares,
        name=theme.escape(name),
        mode="lines+markers",
        line={"color": color, "width": 2, "dash": dash},
        marker={"size": 7},
        error_y=theme.whiskers(shares, ends, thickness=1, width=4),
        text=[f"{theme.escape(name)}<br>{score_words(score)}" for score in scores.values()],
        hovertemplate="%{text}<extra></extra>",
    )
    return band, line


_ROUNDING = 1e-5  # what float32 leaves of a sum of four that is 0
_LEAST = 0.1  # the end of the smallest scale: noise is not painted at full strength


def interaction_map(
    test: Conjunction, measure: Measure, *, limit: float | None = None, **options: Any
) -> go.Figure:
    """Mean I of every head: green above 0 (more than the sum), brown below.

    A dot stands where the interval of I's median covers 0; one sample has no interval and no dot. A stage the
    whole model lacks is the last one before it. `limit` as of `shared_interaction_limit`; the rest, and
    clicks, as in `value_map`.
    """
    there = measure_there(test, measure)
    score, effects = score_of(there), test.effects(there)
    over = effects.interaction
    mean = over.mean.numpy()
    covers = (over.median_low <= _ROUNDING) & (over.median_high >= -_ROUNDING)
    unsure = [(layer, head) for layer, head in np.argwhere(covers.numpy()).tolist()]
    return sweep_map(
        score.name,
        mean,
        unit=score.unit,
        limit=shared_interaction_limit([test], measure) if limit is None else limit,
        hover={place: _hover(score, effects, test, there, place) for place in np.ndindex(mean.shape)},
        unsure=unsure if test.n > 1 else (),
        **options,
    )


def shared_interaction_limit(tests: Iterable[Conjunction], measure: Measure) -> float:
    """The end of a colour scale for several models: the largest |I|, at least 0.1."""
    sizes = [test.effects(measure_there(test, measure)).interaction.mean.numpy() for test in tests]
    return round_up(max([_LEAST, *map(cells.largest, sizes)]))


def _hover(score: Score, effects: Effects, test: Conjunction, measure: Measure, place: Head) -> str:
    parts = [value_text(score, float(values[place])) for values in effects.means]
    words = "both {}, A only {}, B only {}, neither {}".format(*parts)
    over = effects.interaction
    ends = (over.median, over.median_low, over.median_high, over.low, over.high)
    middle, *of_median, low, high = (float(end[place]) for end in ends)
    if math.isnan(of_median[0]):
        return f"{words}<br>one sample, no interval" if test.n < 2 else words
    texts = [value_text(score, end) for end in (middle, *of_median)]
    words += "<br>median of I {}, {} interval {} to {}".format(texts[0], level_text(over.level), *texts[1:])
    if not math.isnan(low):
        words += f"<br>95 % interval of the mean {value_text(score, low)} to {value_text(score, high)}"
    p = p_values(test).get(measure)
    words += f"<br>{test.n:,} samples"
    if p is None:
        return words
    if math.isnan(p[place]):
        return f"{words}<br>not tested"
    return f"{words}<br>p {float(p[place]):.2g}, corrected for all heads and stages"


def loss_text(result: TextLosses, shown: range, *, limit: float) -> go.Figure:
    """The tokens `shown` in monospaced lines on their losses in nats, 0 light to `limit` dark.

    Hatched: nothing predicts the token. The hover tells its probability, rank and loss, and which token
    was the likeliest instead. Numbers at the left are the first token of each line.
    """
    part = slice(shown.start, shown.stop)
    pieces, ranks = result.tokens.pieces[part], result.ranks[part].tolist()
    losses = result.losses[part].numpy().astype(np.float32)
    text, parts = text_cells.written(pieces, losses)
    hidden = np.array(ranks)[text.token] == 0
    text_cells.add_cells(parts, text, Coloring(theme.MASS_SCALE, limit, signed=False), hidden)
    names = text_cells.hover_names(text, pieces, shown.start)
    hovers = map(_loss_hover, losses.tolist(), ranks, result.expected[part])
    words = [f"{name}<br>{line}" for name, line in zip(names, hovers, strict=True)]
    data = np.stack([shown.start + text.token, np.nan_to_num(text.values)], 1)
    parts.traces.append(text_cells.targets(text, np.ones(len(text.glyphs), bool), words, "%{text}", data))
    text_cells.add_axes(parts, text, theme.FRAME, shown.start)
    return parts.figure(f"Loss in nats · tokens {shown.start:,} to {shown.stop - 1:,}")


def _loss_hover(loss: float, rank: int, expected: str) -> str:
    if not rank:
        return "nothing predicts it"
    line = f"probability {probability_text(math.exp(-loss))} · rank {rank:,}<br>loss {loss:.3f} nats"
    return line if rank == 1 else f'{line}<br>likeliest: "{theme.escape(expected)}"'


_ARMS_LEFT, _ARMS_TOP, _ARM_PX = 96, 58, 40


def arms_chart(arms: Arms) -> go.Figure:
    """An arm a line: all its answers as a bar for the exact interval, under it its seeds as points.

    The dashed line is the base's share of right answers.
    """
    names, base = list(arms.by_name), pooled(arms.runs, before=True).accuracy
    size = 560, _ARM_PX * len(names) + _ARMS_TOP + _BOTTOM
    parts = Parts(size, {"l": _ARMS_LEFT, "r": 2 * _RIGHT, "t": _ARMS_TOP, "b": _BOTTOM})
    together = [(place, (*arms.by_name[name],), f"{name}, all seeds") for place, name in enumerate(names)]
    seeds = [(names.index(run.arm) + 0.25, (run,), f"{run.arm}, seed {run.seed}") for run in arms.runs]
    parts.traces += [
        _arm_points(together, "all seeds, 95 %", theme.SELECTED_COLOR, bars=True),
        _arm_points(seeds, "a seed", theme.INCOMING_COLOR, bars=False),
    ]
    parts.add_line((base, base), (-0.5, len(names) - 0.5), {"color": theme.INK, "dash": "dash"})
    parts.layout |= {
        "xaxis": theme.axis(range=(-0.02, 1.02), tickvals=[0, 0.25, 0.5, 0.75, 1]),
        "yaxis": theme.listed(list(map(theme.escape, names)), down=True),
        **{"showlegend": True, "legend": theme.LEGEND, "dragmode": False},
    }
    return parts.figure("Kernel shapes, trained alike", "share of right answers to held-out questions", "arm")


def _arm_points(
    points: Sequence[tuple[Number, Sequence[ArmRun], str]], name: str, color: str, *, bars: bool
) -> go.Scatter:
    scores = [pooled(runs) for _, runs, _ in points]
    shares = [score.accuracy for score in scores]
    ends = theme.whiskers(shares, [score.interval for score in scores], thickness=2, width=6)
    hover = [
        f"{theme.escape(words)}<br>{score_words(score)}"
        for (*_, words), score in zip(points, scores, strict=True)
    ]
    return go.Scatter(
        x=shares,
        y=[place for place, *_ in points],
        mode="markers",
        name=name,
        marker={"color": color, "size": 9 if bars else 7},
        error_x=ends if bars else None,
        **theme.hover(hover),
    )

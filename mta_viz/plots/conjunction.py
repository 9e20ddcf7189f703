"""The conjunction test as a layer x head map: what two words together give beyond the sum of both."""

import math
from collections.abc import Iterable

import numpy as np
import plotly.graph_objects as go

from mta_viz.analysis.labs.conjunction import Conjunction, Effects, Measure, measure_there, score_of
from mta_viz.analysis.maps import round_up
from mta_viz.analysis.score_definitions import Score
from mta_viz.plots.head_tiles import value_text
from mta_viz.plots.sweep import Place, sweep_map

_ROUNDING = 1e-5  # what float32 leaves of a sum of four that is 0
_LEAST = 0.1  # the end of the smallest scale: noise is not painted at full strength


def interaction_map(
    found: Conjunction,
    measure: Measure,
    *,
    limit: float | None = None,
    numbering_from: int = 0,
    selected: Place | None = None,
    width: int = 460,
) -> go.Figure:
    """I of every head: green above 0 (more than the sum), brown below; a dot where its interval covers 0.

    A stage the whole model lacks is the last one before it. With one sample there is no interval and no
    dot. `limit` as of `shared_interaction_limit`; clicks as in `value_map`.
    """
    there = measure_there(found, measure)
    score, effects = score_of(there), found.effects(there)
    values = effects.interaction.mean.numpy()
    return sweep_map(
        score.name,
        values.round(3) + 0.0,  # no -0.0
        unit=score.unit,
        limit=shared_interaction_limit([found], measure) if limit is None else limit,
        told={place: _told(score, effects, found.n, place) for place in np.ndindex(values.shape)},
        unsure=_unsure(effects) if found.n > 1 else (),
        numbering_from=numbering_from,
        selected=selected,
        width=width,
    )


def shared_interaction_limit(found: Iterable[Conjunction], measure: Measure) -> float:
    """The end of a colour scale for several models: the largest |I|, at least 0.1."""
    sizes = [one.effects(measure_there(one, measure)).interaction.mean.abs().numpy() for one in found]
    largest = [float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes]
    return round_up(max([_LEAST, *largest]))


def _unsure(effects: Effects) -> list[Place]:
    score = effects.interaction
    covers = (score.low <= _ROUNDING) & (score.high >= -_ROUNDING)
    return [(layer, head) for layer, head in np.argwhere(covers.numpy()).tolist()]


def _told(score: Score, effects: Effects, n: int, place: Place) -> str:
    parts = [value_text(score, float(values[place])) for values in effects.means]
    said = "both {}, A only {}, B only {}, neither {}".format(*parts)
    low, high = (float(end[place]) for end in (effects.interaction.low, effects.interaction.high))
    if math.isnan(low):
        return f"{said}<br>one sample, no interval" if n < 2 else said
    ends = f"{value_text(score, low)} to {value_text(score, high)}"
    return f"{said}<br>95 % interval of I {ends}, {n:,} samples"

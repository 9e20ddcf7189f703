"""The numbers behind every chart as CSV: full precision, tokens with positions, masked cells said.

Positions, layers and heads count from 0 here, whatever the page shows.

The numbers behind the explorer's tables and lines as CSV; maps and kernels are `data.py`'s.
"""

import csv
import io
from collections.abc import Iterable, Sequence

from mta_viz.analysis.attention.heads import HeadScores
from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.cause.effects import Effects, kernel_of
from mta_viz.analysis.cause.sweeps import SweepRow
from mta_viz.tokenizers.base import Tokens

Row = Sequence[object]


def map_csv(attention: AttentionMap, tokens: Tokens) -> str:
    """As the map's table."""
    return attention.table(tokens).csv()


def number(value: float) -> str:
    """Nine digits give a float32 back bit for bit."""
    return f"{value:.9g}"


def table(header: Row, rows: Iterable[Row]) -> str:
    """CSV with one header line; every line ends with a newline."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def scores_csv(scores: HeadScores) -> str:
    """As the scores' table."""
    return scores.table().csv()


def effects_csv(effects: Effects) -> str:
    """One line a kernel (a target's row of head mixing): accuracy, and both changes with their intervals."""
    rows = []
    for effect in effects.effects:
        kernel, changes = kernel_of(effect), (effect.accuracy_change, effect.log_probability_change)
        if kernel is not None:
            ends = [number(end) for change in changes for end in (change.value, change.low, change.high)]
            rows.append((kernel.layer, kernel.head, kernel.where, number(effect.accuracy), *ends))
    measured = ("accuracy_change", "log_probability_change")
    names = [f"{name}{end}" for name in measured for end in ("", "_low", "_high")]
    return table(("layer", "head", "where", "accuracy", *names), rows)


def sweep_csv(rows: Sequence[SweepRow]) -> str:
    """One line an intervention: its words, log-probability of the answer under it, and the change (nats)."""
    lines = [(row.intervention.text(), number(row.log_probability), number(row.change)) for row in rows]
    return table(("intervention", "log_probability", "change"), lines)

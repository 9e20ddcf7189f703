"""The numbers behind every chart as CSV: full precision, tokens with positions, masked cells said.

Positions, layers and heads count from 0 here, whatever the page shows.

The numbers behind the explorer's tables and lines as CSV; maps and kernels are `data.py`'s.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.attention.heads import HeadScores
from mta_viz.analysis.attention.maps import AttentionMap
from mta_viz.analysis.kernels.kernels import LayerKernelSet, MixPlace, Offsets, Place
from mta_viz.analysis.kernels.probes import ProbeResult
from mta_viz.analysis.kernels.table import KernelCurves
from mta_viz.tokenizers.base import Tokens

Row = Sequence[object]


def map_csv(attention: AttentionMap, tokens: Tokens) -> str:
    """As the map's table."""
    return attention.table(tokens).csv()


def kernels_csv(kernels: LayerKernelSet) -> str:
    """All kernels of a layer: a line a tap (offsets) and a line a mixing weight (target, source)."""
    header = ("kind", "head", "query_offset", "key_offset", "target_head", "source_head", "value")
    places: tuple[Place, ...] = ("pre", "post")
    mixes: tuple[MixPlace, ...] = ("head_pre", "head_post")
    rows = [row for place in places for row in _tap_rows(kernels, place)]
    return table(header, [*rows, *(row for place in mixes for row in _mixing_rows(kernels, place))])


def _tap_rows(kernels: LayerKernelSet, place: Place) -> Iterable[Row]:
    taps, offsets = kernels.taps(place), kernels.offsets(place)
    if taps is None or not isinstance(offsets, Offsets):
        return
    for head, kernel in enumerate(taps.tolist()):
        for query, row in zip(offsets.query, kernel, strict=True):
            for key, value in zip(offsets.key, row, strict=True):
                yield (place, head, query, key, "", "", number(value))


def _mixing_rows(kernels: LayerKernelSet, place: MixPlace) -> Iterable[Row]:
    mixing = kernels.mixing(place)
    if mixing is None:
        return
    size = mixing.shape[1]
    for group, matrix in enumerate(mixing.tolist()):
        for target, row in enumerate(matrix):
            for source, value in enumerate(row):
                yield (place, "", "", "", group * size + target, group * size + source, number(value))


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


def taps_csv(taps: Float[np.ndarray, "c_q c_k"], offsets: Offsets) -> str:
    """One line a tap of one kernel."""
    rows = [
        (query, key, number(float(taps[a, b])))
        for a, query in enumerate(offsets.query)
        for b, key in enumerate(offsets.key)
    ]
    return table(("query_offset", "key_offset", "value"), rows)


def kernel_scores_csv(row: Mapping[str, object]) -> str:
    """One line a column of the kernel table that means something for this kernel."""
    return table(("name", "value"), [(name, value) for name, value in row.items() if value is not None])


def probe_csv(result: ProbeResult) -> str:
    """One line a cell of a probe's map: the score before and after the kernel."""
    rows = [
        (query, key, number(float(before)), number(float(after)))
        for (query, key), before, after in zip(
            np.ndindex(result.before.shape), result.before.flat, result.after.flat, strict=True
        )
    ]
    return table(("row", "column", "before", "after"), rows)


def curves_csv(curves: KernelCurves) -> str:
    """One line a head and snapshot, a column for each score."""
    rows = [
        (head, step, *(number(float(values[head, at])) for values in curves.values.values()))
        for head in range(len(next(iter(curves.values.values()))))
        for at, step in enumerate(curves.steps)
    ]
    return table(("head", "step", *curves.values), rows)

"""The numbers behind the explorer's tables and lines as CSV; maps and kernels are `data.py`'s."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.cross_sections import CrossSection
from mta_viz.analysis.effects import Effects, kernel_of
from mta_viz.analysis.head_scores import HeadScores
from mta_viz.analysis.history import KernelCurves
from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.predictions import LogitLens
from mta_viz.analysis.score_definitions import SCORES
from mta_viz.analysis.shapes.probes import ProbeResult
from mta_viz.analysis.stage_statistics import HeadStatistics
from mta_viz.analysis.sweeps import SweepRow
from mta_viz.analysis.thumbnails import Thumbnails
from mta_viz.analysis.top_cells import TopCell
from mta_viz.exporting.data import number, table
from mta_viz.tokenizers.base import Tokens


def statistics_csv(found: HeadStatistics, tokens: Tokens) -> str:
    """One line a query and stage: row sum, negative and cancelled share, effective keys, entropy."""
    header = ("layer", "head", "stage", "query", "query_token", "row_sum", "negative", "cancelled")
    rows = []
    for stage, one in found.stages.items():
        entropies = [math.nan] * len(one.row_sums) if one.entropy is None else one.entropy.tolist()
        columns = (one.row_sums, one.negative_shares, one.cancelled_shares, one.effective_keys)
        facts = zip(*(column.tolist() for column in columns), entropies, strict=True)
        for query, values in enumerate(facts):
            where = (found.layer, found.head, stage.value.hook, query, tokens.pieces[query])
            rows.append((*where, *map(number, values)))
    return table((*header, "effective_keys", "entropy_nats"), rows)


def section_csv(section: CrossSection, tokens: Tokens) -> str:
    """One line a token and stage of a query's row or a key's column."""
    other = "query" if section.along == "keys" else "key"
    rows = [
        (
            section.layer,
            section.head,
            stage.value.hook,
            section.position,
            place,
            tokens.pieces[place],
            number(value),
        )
        for stage, values in section.values.items()
        for place, value in enumerate(values.tolist(), start=section.start)
    ]
    return table(("layer", "head", "stage", other, "position", "token", "value"), rows)


def cells_csv(cells: Sequence[TopCell], tokens: Tokens) -> str:
    """One line a cell, in the order shown."""
    rows = [
        (
            one.query, tokens.pieces[one.query], one.key, tokens.pieces[one.key], number(one.value),
            *("" if fact is None else number(fact) for fact in (one.before, one.contribution)),
        )
        for one in cells
    ]  # fmt: skip
    header = ("query", "query_token", "key", "key_token", "value", "value_before", "contribution")
    return table(header, rows)


def scores_csv(scores: HeadScores) -> str:
    """One line a head, one column a score; NaN where a head has none."""
    there = [score.key for score in SCORES if score.key in scores.values]
    n_layers, n_heads = scores.values[there[0]].shape
    rows = [
        (layer, head, *(number(float(scores.values[key][layer, head])) for key in there))
        for layer in range(n_layers)
        for head in range(n_heads)
    ]
    return table(("layer", "head", *there), rows)


def lens_csv(lens: LogitLens) -> str:
    """One line a depth and chosen token: logit, probability, rank. Depth 0 is the embedding."""
    rows = [
        (depth, token, number(logit), number(probability), int(rank))
        for depth, parts in enumerate(zip(lens.logits, lens.probabilities, lens.ranks, strict=True))
        for token, logit, probability, rank in zip(lens.ids, *(part.tolist() for part in parts), strict=True)
    ]
    return table(("depth", "token_id", "logit", "probability", "rank"), rows)


def tiles_csv(found: Thumbnails) -> str:
    """One line a block of every head's thumbnail: first query and key of the block, largest |x| with sign."""
    rows = [
        (layer, head, found.stage.value.hook, row * found.block, column * found.block, number(value))
        for layer, heads in zip(found.layers, found.values.tolist(), strict=True)
        for head, cells in enumerate(heads)
        for row, values in enumerate(cells)
        for column, value in enumerate(values[: row + 1])
    ]
    return table(("layer", "head", "stage", "first_query", "first_key", "largest"), rows)


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

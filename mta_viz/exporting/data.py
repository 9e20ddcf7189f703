"""The numbers behind every chart as CSV: full precision, tokens with positions, masked cells said.

Positions, layers and heads count from 0 here, whatever the page shows.

The numbers behind the explorer's tables and lines as CSV; maps and kernels are `data.py`'s.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.attention.cells import TopCell
from mta_viz.analysis.attention.changes import DifferenceMap, HeadStatistics
from mta_viz.analysis.attention.heads import SCORES, HeadScores
from mta_viz.analysis.attention.maps import AttentionMap, CrossSection
from mta_viz.analysis.attention.patterns import Thumbnails
from mta_viz.analysis.attention.predictions import LogitLens, Prediction
from mta_viz.analysis.attention.terms import Decomposition, Scored, Softmaxed
from mta_viz.analysis.cause.effects import Effects, kernel_of
from mta_viz.analysis.cause.sweeps import SweepRow
from mta_viz.analysis.kernels.kernels import LayerKernelSet, MixPlace, Offsets, Place
from mta_viz.analysis.kernels.probes import ProbeResult
from mta_viz.analysis.kernels.table import KernelCurves
from mta_viz.model.stages import Stage
from mta_viz.tokenizers.base import Tokens

Row = Sequence[object]
_WHICH = ("layer", "head", "stage")
_EXACT = ("query", "query_token", "key", "key_token", "value", "masked")
_POOLED = (
    "first_query",
    "last_query",
    "first_key",
    "last_key",
    "largest",
    "at_query",
    "at_key",
    "mean",
    "masked",
)


def map_csv(attention: AttentionMap, tokens: Tokens) -> str:
    """One line a cell. A pooled map gives its blocks: largest |x| with sign, where, and the mean."""
    if attention.pooled is None:
        return table((*_WHICH, *_EXACT), _exact_rows(attention, tokens))
    return table((*_WHICH, *_POOLED), _pooled_rows(attention, len(tokens)))


def stages_csv(maps: Mapping[Stage, AttentionMap], tokens: Tokens) -> str:
    """All stages of a head in one table, in the order they are computed; all exact or all pooled."""
    ordered = [maps[stage] for stage in Stage if stage in maps]
    rows = (row for one in ordered for row in _rows(one, tokens))
    return table((*_WHICH, *(_POOLED if ordered[0].pooled is not None else _EXACT)), rows)


def kernels_csv(kernels: LayerKernelSet) -> str:
    """All kernels of a layer: a line a tap (offsets) and a line a mixing weight (target, source)."""
    header = ("kind", "head", "query_offset", "key_offset", "target_head", "source_head", "value")
    places: tuple[Place, ...] = ("pre", "post")
    mixes: tuple[MixPlace, ...] = ("head_pre", "head_post")
    rows = [row for place in places for row in _tap_rows(kernels, place)]
    return table(header, [*rows, *(row for place in mixes for row in _mixing_rows(kernels, place))])


def decomposition_csv(found: Decomposition, tokens: Tokens) -> str:
    """Why a cell has its value: a line a term, largest |product| first, the cell itself in each.

    A value that is no sum of cells (softmax, raw score) is one line with what it was computed from.
    """
    cell = {
        "layer": found.layer,
        "head": found.head,
        "stage": found.stage.value.hook,
        "query": found.query,
        "query_token": tokens.pieces[found.query],
        "key": found.key,
        "key_token": tokens.pieces[found.key],
        "value": number(found.value),
        "residual": number(found.residual),
    }
    lines = [cell | line for line in (*_term_lines(found, tokens), *_fact_lines(found))]
    return table(tuple(lines[0]), (tuple(line.values()) for line in lines))


def predictions_csv(predictions: Sequence[Prediction]) -> str:
    """Rank (from 1), token id, token, probability."""
    rows = ((rank, one.id, one.piece, repr(one.probability)) for rank, one in enumerate(predictions, start=1))
    return table(("rank", "id", "token", "probability"), rows)


def _rows(attention: AttentionMap, tokens: Tokens) -> Iterable[Row]:
    if attention.pooled is None:
        return _exact_rows(attention, tokens)
    return _pooled_rows(attention, len(tokens))


def _exact_rows(attention: AttentionMap, tokens: Tokens) -> Iterable[Row]:
    which = _which(attention)
    keys = attention.keys.tolist()
    for query, values in zip(attention.queries.tolist(), attention.values.tolist(), strict=True):
        for key, value in zip(keys, values, strict=True):
            masked = key > query
            shown = "" if masked else number(value)
            yield (*which, query, tokens.pieces[query], key, tokens.pieces[key], shown, int(masked))


def _pooled_rows(attention: AttentionMap, n_tokens: int) -> Iterable[Row]:
    which, pooled = _which(attention), attention.pooled
    masked = attention.masked.tolist()
    for r, query in enumerate(attention.queries.tolist()):
        for c, key in enumerate(attention.keys.tolist()):
            ends = [min(start + attention.block, n_tokens) - 1 for start in (query, key)]
            where = (*which, query, ends[0], key, ends[1])
            if masked[r][c] or pooled is None:
                yield (*where, "", "", "", "", 1)
                continue
            cell = (pooled.values[r, c], pooled.peak_query[r, c], pooled.peak_key[r, c], pooled.means[r, c])
            value, at_query, at_key, mean = (entry.item() for entry in cell)
            yield (*where, number(value), at_query, at_key, number(mean), 0)


def _which(attention: AttentionMap) -> Row:
    stage = attention.stage.value.hook
    if isinstance(attention, DifferenceMap):
        stage = f"{stage} - {attention.before.value.hook}"
    return attention.layer, attention.head, stage


def _term_lines(found: Decomposition, tokens: Tokens) -> Iterable[dict[str, object]]:
    """What each term reads; there is no token outside the prompt."""
    for term in found.terms:
        inside = term.state != "outside"
        yield {
            "source_stage": found.stage_before.value.hook if found.stage_before else "",
            "source_head": term.head,
            "source_query": term.query,
            "source_query_token": tokens.pieces[term.query] if inside else "",
            "source_key": term.key,
            "source_key_token": tokens.pieces[term.key] if inside else "",
            "state": term.state,
            "weight": number(term.weight),
            "source": number(term.source),
            "product": number(term.product),
        }


def _fact_lines(found: Decomposition) -> Iterable[dict[str, object]]:
    if isinstance(found, Softmaxed):
        yield {
            "score": number(found.score),
            "log_normaliser": number(found.log_normaliser),
            "runner_up_key": "" if found.rival is None else found.rival,
            "margin_nats": "" if found.margin is None else number(found.margin),
        }
    if isinstance(found, Scored):
        yield {
            "query_norm": number(found.query_norm),
            "key_norm": number(found.key_norm),
            "cosine": number(found.cosine),
            "d_head": found.d_head,
        }


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

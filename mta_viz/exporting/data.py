"""The numbers behind every chart as CSV: full precision, tokens with positions, masked cells said.

Positions, layers and heads count from 0 here, whatever the page shows.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from mta_viz.analysis.differences import DifferenceMap
from mta_viz.analysis.kernels import LayerKernelSet, MixPlace, Offsets, Place
from mta_viz.analysis.maps import AttentionMap
from mta_viz.analysis.predictions import Prediction
from mta_viz.analysis.terms import Decomposition, Scored, Softmaxed
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

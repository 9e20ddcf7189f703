"""The numbers behind attribution and responsibility as CSV.

The tables of a comparison as CSV: predictions, needle shares by head, kernel distances.
"""

import numpy as np

from mta_viz.analysis.cause.attributed_heads import AttributedHeads
from mta_viz.analysis.cause.attributed_prompt import AttributedPrompt
from mta_viz.analysis.cause.responsibility import ResponsiblePrompt
from mta_viz.analysis.compare.comparing import Comparison, NeedleShares
from mta_viz.exporting.data import Row, number, table


def attribution_csv(found: AttributedPrompt) -> str:
    """One line a token: what it brings in nats, NaN where that was not measured."""
    rows = [
        (place, piece, number(value))
        for place, (piece, value) in enumerate(
            zip(found.tokens.pieces, found.by_token().tolist(), strict=True)
        )
    ]
    return table(("position", "token", "value"), rows)


def attributed_heads_csv(found: AttributedHeads) -> str:
    """One line a head: sum and sum of sizes over its map's cells, what is lost without it, the error."""
    rows = [
        (one.layer, head, found.stage.value.hook, *map(number, values), number(one.error or 0.0))
        for one in found.layers
        for head, values in enumerate(
            zip(one.sums.tolist(), one.sizes.tolist(), one.ablated.tolist(), strict=True)
        )
    ]
    return table(("layer", "head", "stage", "sum", "sum_of_sizes", "ablated", "completeness_error"), rows)


def responsibility_csv(found: ResponsiblePrompt) -> str:
    """One line a head: what comes through its softmax map, and what leaves at its output."""
    rows = [
        (one.layer, head, *map(number, values))
        for one in found.layers
        for head, values in enumerate(zip(one.sources.tolist(), one.heads.tolist(), strict=True))
    ]
    return table(("layer", "head", "as_source", "as_target"), rows)


def answers_csv(found: Comparison) -> str:
    """One line an answer (log-probability, nats), then one a next token (probability)."""
    rows: list[Row] = [
        ("answer", one.of, one.text, number(one.a), number(one.b), number(one.difference))
        for one in found.answers
    ]
    for token in found.top:
        values = (token.a, token.b, token.difference)
        rows.append(("next token", "", token.piece, *("" if one is None else number(one) for one in values)))
    return table(("kind", "of", "text", "a", "b", "a_minus_b"), rows)


def shares_csv(needle: NeedleShares, found: Comparison) -> str:
    """One line a head of A: its share, its partner in B, that one's share, the difference."""
    rows = []
    for layer, head in np.ndindex(needle.a.shape):
        other = found.pairs.of(layer, head)
        beside = ("", "", "") if other is None else (*other, number(float(needle.b[other])))
        difference = "" if other is None else number(float(needle.difference[layer, head]))
        likeness = found.pairs.r[layer, head]
        r = "" if np.isnan(likeness) else number(float(likeness))
        rows.append((layer, head, number(float(needle.a[layer, head])), *beside, difference, r))
    return table(("layer", "head", "a", "layer_b", "head_b", "b", "a_minus_b", "pair_r"), rows)


def kernel_pairs_csv(found: Comparison) -> str:
    """One line a kernel of A's head beside its partner's: the distance and both shapes."""
    rows = [
        (
            one.layer, one.head, one.where, one.layer_b, one.head_b, number(one.distance), number(one.off_a),
            number(one.off_b), one.shape_a, one.shape_b,
        )
        for one in found.kernels
    ]  # fmt: skip
    names = ("layer", "head", "where", "layer_b", "head_b", "distance", "a_from_identity", "b_from_identity")
    return table((*names, "shape_a", "shape_b"), rows)

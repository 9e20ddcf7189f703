"""The tables of a comparison as CSV: predictions, needle shares by head, kernel distances."""

import numpy as np

from mta_viz.analysis.comparing import Comparison, NeedleShares
from mta_viz.exporting.data import number, table


def answers_csv(found: Comparison) -> str:
    """One line an answer (log-probability, nats), then one a next token (probability)."""
    rows = [
        ("answer", one.of, one.text, number(one.a), number(one.b), number(one.difference))
        for one in found.answers
    ]
    for token in found.top:
        values = ["" if value is None else number(value) for value in (token.a, token.b)]
        apart = number(token.a - token.b) if token.a is not None and token.b is not None else ""
        rows.append(("next token", "", token.piece, values[0], values[1], apart))
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

"""The numbers behind attribution and responsibility as CSV."""

from mta_viz.analysis.attributed_heads import AttributedHeads
from mta_viz.analysis.attributed_prompt import AttributedPrompt
from mta_viz.analysis.responsible_prompt import ResponsiblePrompt
from mta_viz.exporting.data import number, table


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

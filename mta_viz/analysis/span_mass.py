"""How much of one query's row lies on a span, at every stage, and what each step adds to it."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.spans import Span
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage


def check_span(span: Span, query: int) -> None:
    """Raises PromptError unless the query sees keys of the span and others too."""
    if span.start > query:
        raise PromptError(
            f"the span {span.name!r} begins at token {span.start}, after query {query}, which never sees it; "
            "choose a later query"
        )
    if span.start == 0 and span.stop > query:
        raise PromptError(
            f"the span {span.name!r} holds every key that query {query} sees: nothing is left to compare it "
            "with; choose a shorter span or a later query"
        )


def log_odds(scores: Float[Tensor, "head key"], span: Span) -> Float[Tensor, " head"]:
    """logsumexp over the span less logsumexp over the other keys of the row, in nats.

    The logit of the span's share if the softmax came right here.
    """
    inside = _inside(scores, span)
    return scores[:, inside].double().logsumexp(-1) - scores[:, ~inside].double().logsumexp(-1)


def share_and_mass(
    weights: Float[Tensor, "head key"], span: Span
) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """sum_span |P| / sum |P|, and the signed sum_span P. The share of a row of zeros is NaN."""
    on_span = weights[:, _inside(weights, span)].double()
    return on_span.abs().sum(-1) / weights.double().abs().sum(-1), on_span.sum(-1)


def selectivity(
    weights: Float[Tensor, "head key"], asked: Span, needles: Sequence[Span]
) -> Float[Tensor, " head"]:
    """Share of `asked` over the sum of the shares of all `needles`, it among them; NaN when all are 0.

    A head that lights every needle is no finder: its selectivity is 1 / their number.
    """
    shares = torch.stack([share_and_mass(weights, needle)[0] for needle in needles])
    return share_and_mass(weights, asked)[0] / shares.sum(0)


def span_results(
    rows: Mapping[Stage, Float[Tensor, "head key"]], span: Span, steps: Sequence[tuple[Stage, Stage]]
) -> dict[str, Float[Tensor, " head"]]:
    """By score key: `span.STAGE` at each stage, `mass.STAGE` of weights, `gain.STAGE` of each step.

    `rows`: one query's row over the keys it sees, at every stage of the layer.
    """
    found: dict[str, Tensor] = {}
    for stage, row in rows.items():
        if stage.value.unit == "score":
            found[f"span.{stage.value.key}"] = log_odds(row, span)
        else:
            found[f"span.{stage.value.key}"], found[f"mass.{stage.value.key}"] = share_and_mass(row, span)
    for before, after in steps:
        gain = found[f"span.{after.value.key}"] - found[f"span.{before.value.key}"]
        found[f"gain.{after.value.key}"] = gain
    return found


def _inside(row: Tensor, span: Span) -> Tensor:
    keys = torch.arange(row.shape[1], device=row.device)
    return (keys >= span.start) & (keys < span.stop)

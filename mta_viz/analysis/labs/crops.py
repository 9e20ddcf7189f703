"""One head's maps before and after its convolutions, cropped to where asking queries meet the asked keys."""

from dataclasses import dataclass

from mta_viz.analysis.differences import DifferenceMap, subtract
from mta_viz.analysis.maps import AttentionMap, exact_map
from mta_viz.analysis.spans import Span
from mta_viz.analysis.steps import layer_steps
from mta_viz.errors import PromptError
from mta_viz.tracing import Trace


@dataclass(frozen=True)
class Region:
    """`asking` queries x `asked` keys, and the rows and columns shown: these with their neighbours."""

    asking: Span
    asked: Span
    queries: range
    keys: range


@dataclass(frozen=True)
class StepCrop:
    """One head's map on both sides of a convolution in a region.

    `sums`: of the values `before` and `after` over asking queries x asked keys; `last`: over the last
    asking query's row alone, which predicts the answer. Cells with key > query do not count.
    """

    region: Region
    before: AttentionMap
    after: AttentionMap
    sums: tuple[float, float]
    last: tuple[float, float]

    @property
    def difference(self) -> DifferenceMap:
        """After minus before."""
        return subtract(self.after, self.before)


def region(asking: Span, asked: Span, n_tokens: int, *, above: int, beside: int) -> Region:
    """With `above` rows over the asking queries and `beside` columns on both sides of the asked keys.

    Raises PromptError for a span that is not in the prompt.
    """
    outside = next((one for one in (asking, asked) if one.stop > n_tokens), None)
    if outside is not None:
        raise PromptError(f"{outside.name!r} ends at token {outside.stop}, the prompt at {n_tokens}")
    queries = range(max(asking.start - above, 0), asking.stop)
    keys = range(max(asked.start - beside, 0), min(asked.stop + beside, n_tokens))
    return Region(asking, asked, queries, keys)


def step_crops(trace: Trace, shown: Region, layer: int, head: int) -> tuple[StepCrop, ...]:
    """A crop for each key-query convolution of the layer, in order; none where it has none."""
    rows, columns = (slice(side.start, side.stop) for side in (shown.queries, shown.keys))
    found = []
    for step in layer_steps(trace.model.config.kernels(layer)):
        if step.operation == "convolution" and step.before is not None:
            before, after = (
                exact_map(trace, layer, stage, head, rows, columns) for stage in (step.before, step.after)
            )
            sums, last = (
                (_sum(before, shown, start), _sum(after, shown, start))
                for start in (shown.asking.start, shown.asking.stop - 1)
            )
            found.append(StepCrop(shown, before, after, sums, last))
    return tuple(found)


def _sum(drawn: AttentionMap, shown: Region, first_query: int) -> float:
    """Over asking queries from `first_query` on x asked keys."""
    rows = slice(first_query - drawn.query_start, shown.asking.stop - drawn.query_start)
    columns = slice(shown.asked.start - drawn.key_start, shown.asked.stop - drawn.key_start)
    cells = drawn.values.double().masked_fill(drawn.masked, 0.0)
    return float(cells[rows, columns].sum())

"""One head's maps before and after its convolutions, cropped to where asking queries meet the asked keys."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

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
    """One head's map on both sides of a convolution in a region."""

    region: Region
    before: AttentionMap
    after: AttentionMap

    @property
    def difference(self) -> DifferenceMap:
        """After minus before."""
        return subtract(self.after, self.before)

    @property
    def asked(self) -> tuple[AttentionMap, AttentionMap]:
        """Both maps in asking queries x asked keys alone."""
        return self._part(self.before), self._part(self.after)

    @property
    def sums(self) -> tuple[float, float]:
        """Of the asked cells before and after; cells with key > query do not count."""
        before, after = (_cells(one).sum() for one in self.asked)
        return float(before), float(after)

    @property
    def last(self) -> tuple[float, float]:
        """The same of the last asking query's row alone, which predicts the answer."""
        before, after = (_cells(one)[-1].sum() for one in self.asked)
        return float(before), float(after)

    def _part(self, one: AttentionMap) -> AttentionMap:
        asking, asked = self.region.asking, self.region.asked
        rows = slice(asking.start - one.query_start, asking.stop - one.query_start)
        columns = slice(asked.start - one.key_start, asked.stop - one.key_start)
        values = one.values[rows, columns]
        return replace(one, values=values, query_start=asking.start, key_start=asked.start, row_sums=None)


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
            found.append(StepCrop(shown, before, after))
    return tuple(found)


def _cells(one: AttentionMap) -> Float[Tensor, "query key"]:
    return one.values.double().masked_fill(one.masked, 0.0)

"""One query's row or one key's column of a head at every stage, without a whole map."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage, Unit
from mta_viz.tracing import Trace

Along = Literal["keys", "queries"]


@dataclass(frozen=True)
class CrossSection:
    """Values of a head along the keys of one query, or along the queries of one key.

    `position` is that query (key). Value c of a stage, float32 on the CPU, belongs to token
    `start + c`; the other tokens are masked: keys after the query, queries before the key.
    """

    layer: int
    head: int
    along: Along
    position: int
    start: int
    values: Mapping[Stage, Float[Tensor, " position"]]

    @property
    def stop(self) -> int:
        """One after the last token that has a value."""
        return self.start + len(next(iter(self.values.values())))

    def largest(self, unit: Unit, first_token: bool = True) -> float:
        """Largest finite |x| of the stages of a unit; without `first_token`, of later tokens if any."""
        skip = 1 if self.start == 0 and not first_token and self.stop > 1 else 0
        rows = [row[skip:] for stage, row in self.values.items() if stage.value.unit == unit]
        sizes = torch.cat([row[row.isfinite()].abs() for row in rows])
        return float(sizes.max()) if len(sizes) else 0.0


def query_row(trace: Trace, layer: int, head: int, query: int) -> CrossSection:
    """What `query` attends to, at every stage. Raises PromptError for what is not there."""
    _check(trace, layer, head, "query", query)
    ((_, slabs),) = trace.stage_slabs(layer, range(query, query + 1))
    values = {stage: slabs[stage][head, 0].detach().cpu().clone() for stage in Stage if stage in slabs}
    return CrossSection(layer, head, "keys", query, 0, values)


def key_column(trace: Trace, layer: int, head: int, key: int) -> CrossSection:
    """How all queries from `key` on attend to it, at every stage; one pass over the layer's rows."""
    _check(trace, layer, head, "key", key)
    parts: dict[Stage, list[Tensor]] = {}
    for _, slabs in trace.stage_slabs(layer, range(key, len(trace.tokens))):
        for stage, slab in slabs.items():
            column = slab[head, :, key].detach().cpu().clone()  # a view would keep the whole slab
            parts.setdefault(stage, []).append(column)
    values = {stage: torch.cat(parts[stage]) for stage in Stage if stage in parts}
    return CrossSection(layer, head, "queries", key, key, values)


def _check(trace: Trace, layer: int, head: int, name: str, position: int) -> None:
    config = trace.model.config
    counts = {"layer": (layer, config.n_layers), "head": (head, config.n_heads)}
    for word, (index, count) in (counts | {name: (position, len(trace.tokens))}).items():
        if not 0 <= index < count:
            raise PromptError(f"{word} {index} does not exist; there are {count}, counted from 0")

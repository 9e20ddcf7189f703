"""What one softmax cell adds directly to an answer's logit, beside everything else that makes the logit.

With it how the answer stands with the head's kernel and without its shape. Every number is that of a call of
its own: `direct_effect`, and an answer under a plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mta_viz.analysis.cause.answers import AnswerMeter, Standing
from mta_viz.analysis.cause.direct_effect import DirectEffects
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.tables import Table

CELL, HEAD, LAYER, REST = "this cell", "the head's other cells", "the layer's other heads", "everything else"


@dataclass(frozen=True)
class CellEffect:
    """`parts` sum to the logit of the token `explained`, which is written after `position`.

    `read`: whether the cell's row is read there; else its direct effect is 0. `standing`: of the whole
    answer; `without`: with the own tap of `kernel` alone, None where the head has no kernel.
    """

    explained: str
    position: int
    read: bool
    parts: Mapping[str, float]
    kernel: KernelId | None
    standing: Standing
    without: Standing | None

    def table(self) -> Table:
        """A row a part of the logit, and the answer's log-odds."""
        odds = {"with the kernel": self.standing}
        odds |= {} if self.without is None else {"own tap only": self.without}
        rows = [(part, value, "logit") for part, value in self.parts.items()]
        rows += [(f"log-odds of the answer, {state}", at.log_odds, "nats") for state, at in odds.items()]
        return Table.of(("part", "value", "unit"), rows)


def cell_effect(
    effects: DirectEffects, meter: AnswerMeter, place: tuple[int, int], cell: tuple[int, int]
) -> CellEffect:
    """Of the cell (query, key) of a head (layer, head); the kernel is the one before the softmax if any."""
    layer, head = place
    own, kernels = effects.layers[layer], meter.trace.model.config.kernels(layer)
    row, key = cell[0] - own.first_query, cell[1]
    read = 0 <= row < own.values.shape[1]
    added = float(own.values[head, row, key]) if read else 0.0
    source = float(own.sources[head])
    parts = {CELL: added, HEAD: source - added, LAYER: own.total - source, REST: effects.logit - own.total}
    kernel = KernelId(layer, head, "pre" if kernels.pre else "post") if kernels.pre or kernels.post else None
    alone = None if kernel is None else meter.standing((without(kernel, "own-tap"),))
    return CellEffect(effects.explained, own.position, read, parts, kernel, meter.standing(), alone)

"""What a logit loses when a softmax cell is removed from the run, beside the cell's direct effect on it.

Removing a cell sets its softmax weight to 0. The row is not renormalised, so its other weights stay as they
are; all that follows is computed anew. The direct effect holds the norms' scales as the run left them. A norm
divides by the size of what it gets: without the cell, what is left is scaled up, which the held scale hides.
So a cell stands with three numbers: direct with norms held, direct with norms free, and the whole model's.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.cause.answers import Answer
from mta_viz.analysis.cause.direct_effect import Cell, DirectEffects
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import Rerun, without_cell
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tables import Printed, Row, Table, number

WHOLE = 8  # cells that are removed in turn unless asked for more
DEFINITION = (
    "removed: the cell's softmax weight set to 0, the row not renormalised, all that follows computed anew; "
    "whole: the run's value less that without the cell"
)
COLUMNS = (
    *("layer", "head", "query", "key", "softmax", "direct_effect"),
    *("direct_norms_free", "whole_logit", "whole_log_p"),
)


@dataclass(frozen=True)
class RemovedCell(Cell):
    """A cell with what goes with it when it is removed: the run's value less that without it.

    `value`: its direct effect with the norms' scales and the gate held. `norms_free`: the logit's fall when
    what the layer adds changes, its group norm, gate and the final norm computed anew, and later layers add
    what they did. `whole_logit` and `whole_log_p` (nats): the fall when all later layers run again too.
    """

    norms_free: float
    whole_logit: float
    whole_log_p: float

    def row(self) -> tuple[Any, ...]:
        """In the order of `COLUMNS`."""
        return tuple(asdict(self).values())


@dataclass(frozen=True, repr=False)
class RemovedCells(Printed):
    """The cells of largest |direct effect|, each removed alone; of one layer, or (None) of all."""

    answer: Answer
    place: int
    layer: int | None
    cells: tuple[RemovedCell, ...]

    def table(self) -> Table:
        """A row a cell; direct effects and `whole_logit` in logit units, `whole_log_p` in nats."""
        return Table.of(COLUMNS, (cell.row() for cell in self.cells))

    def as_data(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        return {"definition": DEFINITION, "cells": self.table().records()}

    def _title(self) -> str:
        where = "all layers" if self.layer is None else f"layer {self.layer}"
        token = f"token {self.place} of {self.answer.words}"
        return f"Softmax cells of {where} removed in turn: what the logit of {token} loses"

    def _table(self) -> tuple[Row, Sequence[Row]]:
        rows = [
            (f"L{cell.layer} H{cell.head}", cell.query, cell.key, *map(number, cell.row()[5:]))
            for cell in self.cells
        ]
        return ("head", "query", "key", "direct", "norms free", "whole", "log p"), rows


def whole_effects(
    effects: DirectEffects, *, layer: int | None = None, count: int = WHOLE, progress: Progress = ignore
) -> RemovedCells:
    """The `count` cells of largest |direct effect| removed in turn, each by a run from its layer on.

    `layer`: only of that layer. Cells can stand in for each other, so single removals do not see what several
    together do. Raises PromptError for a layer that is not there.

    >>> mta_viz.whole_effects(mta_viz.direct_effect(model, trace.tokens), count=2).cells[0].layer < 4
    True
    """
    cells, runs = effects.largest(layer, count), dict[int, Rerun]()
    removed = []
    for at, cell in enumerate(cells):
        if cell.layer not in runs:
            runs[cell.layer] = without_cell(effects.trace, cell.layer, None, effects.position)
        removed.append(_removed(effects, cell, runs[cell.layer]))
        progress((at + 1) / len(cells))
    return RemovedCells(effects.answer, effects.place, layer, tuple(removed))


def _removed(effects: DirectEffects, cell: Cell, run: Rerun) -> RemovedCell:
    model, place = effects.trace.model, (cell.head, cell.query, cell.key)
    without = without_cell(effects.trace, cell.layer, place, effects.position)
    direct = run.leaving + without.added - run.added
    logits = _logits(model, torch.stack([run.leaving, direct, without.leaving]))
    (whole, free, gone), log_p = logits[:, effects.token].tolist(), logits.log_softmax(-1)[:, effects.token]
    return RemovedCell(
        **vars(cell),
        norms_free=whole - free,
        whole_logit=whole - gone,
        whole_log_p=float(log_p[0] - log_p[2]),
    )


def _logits(model: HookedMTA, resid: Float[Tensor, "run d_model"]) -> Float[Tensor, "run vocab"]:
    """In float64, whatever the model's dtype: small differences of large numbers are wanted."""
    norm = model.ln_final
    scaled = resid.double() * torch.rsqrt(resid.double().pow(2).mean(-1, keepdim=True) + norm.eps)
    return (scaled * norm.weight.double() * norm.factor) @ model.W_U.double()

"""What an answer rests on in every head's map at one stage: by integrated gradients and by ablation.

Owns the layers of a model side by side, and maps small enough to draw; one layer's maps cell by cell are
`attribution`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mta_viz.analysis.attention.maps import AttentionMap, Pooler
from mta_viz.analysis.cause.answers import Answer
from mta_viz.analysis.cause.attributed_prompt import Asked, ask, completeness
from mta_viz.analysis.cause.attribution import SECONDS, ablate_maps, integrated_gradients_of_maps
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import Printed, Row, number
from mta_viz.run.tracing import Trace
from mta_viz.tokenizers.base import Tokens

CELLS = 256


@dataclass(frozen=True)
class LayerAttribution:
    """One layer's maps, nats of log p(answer) a head. `maps`: integrated gradients, pooled beyond 256 tokens.

    `sums` and `sizes` [head]: of all cells' values, and of their sizes. `ablated` [head]: what is lost
    without the head's map. `error`, `reached`, `steps`: of the integral, as in `Attribution`.
    """

    layer: int
    maps: tuple[AttentionMap, ...]
    sums: Float[Tensor, " head"]
    sizes: Float[Tensor, " head"]
    ablated: Float[Tensor, " head"]
    error: float | None
    reached: bool | None
    steps: int | None

    def as_data(self) -> dict[str, Any]:
        """Plain values; the maps are left out."""
        numbers = {name: getattr(self, name).tolist() for name in ("sums", "sizes", "ablated")}
        facts = {"error": self.error, "reached": self.reached, "steps": self.steps}
        return {"layer": self.layer} | numbers | facts


@dataclass(frozen=True, repr=False)
class AttributedHeads(Printed):
    """`layers` in the order asked for. `trace`: of the prompt and the answer's tokens that are read."""

    trace: Trace
    answer: Answer
    stage: Stage
    layers: tuple[LayerAttribution, ...]

    def _title(self) -> str:
        error = max((one.error for one in self.layers if one.error is not None), default=None)
        return (
            f"log p({self.answer.text!r}): gradients of {self.stage.value.hook}, {len(self.layers)} layers"
            f"{completeness(error, self.reached)}"
        )

    def _table(self) -> tuple[Row, Sequence[Row]]:
        """Heads by the size of what their maps bring, in nats."""
        heads = [
            (brought, f"L{one.layer} H{head}", lost)
            for one in self.layers
            for head, (brought, lost) in enumerate(zip(one.sums.tolist(), one.ablated.tolist(), strict=True))
        ]
        largest = sorted(heads, key=lambda row: -abs(row[0]))
        rows = [(head, number(brought), number(lost)) for brought, head, lost in largest]
        return ("head", "nats", "lost without"), rows

    @property
    def reached(self) -> bool:
        """Whether the gradients of every layer are as complete as was asked for."""
        return all(one.reached for one in self.layers)

    @property
    def tokens(self) -> Tokens:
        """Those of the maps' axes."""
        return self.trace.tokens

    def of(self, layer: int) -> LayerAttribution | None:
        """One layer, if it is there."""
        return next((one for one in self.layers if one.layer == layer), None)

    def as_data(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        return {
            "tokens": list(self.tokens.pieces),
            "answer": vars(self.answer) | {"ids": list(self.answer.ids)},
            "stage": self.stage.value.hook,
            "layers": [one.as_data() for one in self.layers],
        }


def attribute_heads(
    model: HookedMTA,
    prompt: str | Tokens | Sequence[int],
    stage: Stage,
    *,
    answer: str | None = None,
    position: int | None = None,
    layers: Sequence[int] | None = None,
    max_seconds: float = SECONDS,
    progress: Callable[[float], None] | None = None,
    keep: Callable[[AttributedHeads], None] | None = None,
) -> AttributedHeads:
    """What log p(answer) after `position` rests on in each head's map at `stage`, layer by layer.

    Gradients run from maps of zeros, at most about `max_seconds` a layer; what enters a layer is held as it
    was. `layers`: None is all that have the stage. `keep` is told the layers so far. Raises PromptError for
    layers without the stage, and as `attribute` does.

    >>> final = mta_viz.Stage.PATTERN
    >>> found = mta_viz.attribute_heads(model, trace.tokens, final, layers=[3], max_seconds=1.0)
    >>> found.of(3).sums.shape
    torch.Size([2])
    """
    there = [at for at in range(model.config.n_layers) if stage in layer_stages(model.config.kernels(at))]
    wanted = there if layers is None else list(layers)
    if not wanted or set(wanted) - set(there):
        raise PromptError(f"the stage {stage.value.hook} exists in the layers {there}; asked for: {wanted}")
    asked = ask(model, prompt, answer, position)
    whole = asked.whole()
    found = AttributedHeads(whole, asked.answer, stage, ())
    work = [model.config.n_layers - layer for layer in wanted]
    for place, layer in enumerate(wanted):
        told = _part(progress, sum(work[:place]) / sum(work), work[place] / sum(work))
        one = _layer(asked, whole, layer, stage, max_seconds, told)
        found = AttributedHeads(whole, asked.answer, stage, (*found.layers, one))
        if keep is not None:
            keep(found)
    return found


def _part(
    progress: Callable[[float], None] | None, start: float, share: float
) -> Callable[[float], None] | None:
    return None if progress is None else lambda done: progress(start + share * done)


def _layer(
    asked: Asked,
    whole: Trace,
    layer: int,
    stage: Stage,
    max_seconds: float,
    progress: Callable[[float], None] | None,
) -> LayerAttribution:
    found = integrated_gradients_of_maps(
        whole, layer, stage, asked.question, max_seconds=max_seconds, progress=progress
    )
    ablated = ablate_maps(whole, layer, stage, asked.question)
    cells = found.values.double().flatten(1)
    return LayerAttribution(
        layer,
        tuple(_drawn(layer, head, stage, values) for head, values in enumerate(found.values)),
        cells.sum(1).float(),
        cells.abs().sum(1).float(),
        ablated.values,
        found.error,
        found.reached,
        found.steps,
    )


def _drawn(layer: int, head: int, stage: Stage, values: Float[Tensor, "query key"]) -> AttentionMap:
    block = -(-len(values) // CELLS)
    if block == 1:
        return AttentionMap(layer, head, stage, values.clone(), 0, 0)
    pooler = Pooler(block, len(values))
    pooler.add(values)
    pooled = pooler.result()
    return AttentionMap(layer, head, stage, pooled.values, 0, 0, block, pooled=pooled)

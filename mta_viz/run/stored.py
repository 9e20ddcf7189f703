"""A run that came from a file: a `Trace` whose stored maps are read, not recomputed.

With the checkpoint's weights every other stage is recomputed from the residuals; without them it says
which stages the file holds. Reading the file is `files.py`'s.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model.attention import QueryKeyValue
from mta_viz.model.stages import Stage
from mta_viz.run.about import About, Place
from mta_viz.run.trace import EVERYTHING, Trace

SLAB_ROWS = 256


@dataclass(frozen=True, repr=False)
class StoredTrace(Trace):
    """A saved run. `maps_in_file[layer, stage]` [head, query, key] float32, `about` what the file says.

    `model` has the run's interventions; without the checkpoint it has shapes and no weights.
    """

    about: About
    maps_in_file: Mapping[Place, Float[Tensor, "head query key"]] = field(repr=False, compare=False)

    @property
    def recomputes(self) -> bool:
        """Whether the checkpoint is here, and with it every stage."""
        return not self.model.kernels_only

    def has(self, layer: int, stage: Stage) -> bool:
        """Without the checkpoint, whether the file holds the map."""
        return super().has(layer, stage) and (self.recomputes or (layer, stage) in self.maps_in_file)

    def _slabs(
        self, layer: int, wanted: set[Stage], queries: range | None
    ) -> Iterator[tuple[int, dict[Stage, Tensor]]]:
        read = {stage for stage in wanted if (layer, stage) in self.maps_in_file}
        if read == wanted:
            rows = range(len(self.tokens)) if queries is None else queries
            for start in range(rows.start, rows.stop, SLAB_ROWS):
                yield start, self._rows(layer, read, start, min(start + SLAB_ROWS, rows.stop))
            return
        self._check_weights(f"layer {layer}'s {', '.join(one.value.hook for one in wanted - read)}")
        for start, found in super()._slabs(layer, wanted, queries):
            stop = start + next(iter(found.values())).shape[1]
            yield start, found | self._rows(layer, read, start, stop)

    def _rows(self, layer: int, stages: set[Stage], start: int, stop: int) -> dict[Stage, Tensor]:
        return {stage: self.maps_in_file[layer, stage][:, start:stop, :stop] for stage in stages}

    def lens(self, depth: int, positions: slice = EVERYTHING) -> Float[Tensor, "position vocab"]:
        """As of every trace. Raises PromptError without the checkpoint."""
        self._check_weights("the logits")
        return super().lens(depth, positions)

    def project(self, layer: int) -> QueryKeyValue:
        """As of every trace. Raises PromptError without the checkpoint."""
        self._check_weights("queries, keys and values")
        return super().project(layer)

    def _check_weights(self, what: str) -> None:
        if not self.recomputes:
            raise PromptError(
                f"this saved run does not hold {what}. It holds the maps of {self.about.stored_words()}. For "
                f"all others open it with its checkpoint, {self.about.checkpoint}: "
                "open_trace(file, model=load(checkpoint))"
            )

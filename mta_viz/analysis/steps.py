"""Which stage of a layer comes from which, and by what operation.

`model.stages` owns the list of stages; this adds what lies between two of them.
"""

from dataclasses import dataclass
from typing import Literal

from mta_viz.config import LayerKernels
from mta_viz.model.stages import Stage, layer_stages

Operation = Literal["product", "convolution", "mixing", "softmax", "nothing"]


@dataclass(frozen=True)
class Step:
    """`operation` makes stage `after` from stage `before` (None: from queries and keys)."""

    before: Stage | None
    after: Stage
    operation: Operation

    @property
    def same_unit(self) -> bool:
        """Whether both stages have one unit and differ, so that their difference means something."""
        return self.operation in ("convolution", "mixing")


def layer_steps(kernels: LayerKernels) -> tuple[Step, ...]:
    """One step for every stage the layer computes, in order."""
    stages = layer_stages(kernels)
    made: dict[Stage, Operation] = {
        Stage.RAW: "product",
        Stage.KQ: "convolution",
        Stage.MIX: "mixing",
        Stage.SOFTMAX: "softmax",
        Stage.SOFTMAX_KQ: "convolution",
        Stage.PATTERN: "mixing" if kernels.head_post else "nothing",
    }
    return tuple(
        Step(before, after, made[after]) for before, after in zip((None, *stages), stages, strict=False)
    )


def difference_steps(kernels: LayerKernels) -> tuple[tuple[Stage, Stage], ...]:
    """(before, after) of each convolution and head mixing: the steps whose change can be looked at."""
    steps = layer_steps(kernels)
    return tuple((step.before, step.after) for step in steps if step.before is not None and step.same_unit)

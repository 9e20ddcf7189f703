"""The one list of the T x T attention stages: order, hook names, words on screen, and units."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from mta_viz.config import LayerKernels, ModelConfig
from mta_viz.errors import PromptError

Unit = Literal["score", "weight"]


@dataclass(frozen=True)
class StageInfo:
    """What is true of one stage in every layer.

    `key` is the URL's word, `hook` the hook point under `blocks.{layer}.attn.`.
    """

    key: str
    hook: str
    short: str
    long: str
    unit: Unit


class Stage(Enum):
    """The stages in the order they are computed (paper section 3); second ones are DIFF Transformer's.

    Its `RAW` and `SOFTMAX` are those of the first half of a head, its `PATTERN` is their signed difference.
    """

    RAW = StageInfo("raw", "hook_attn_scores", "raw", "raw scores q·k/√d", "score")
    RAW_2 = StageInfo(
        "raw2", "hook_attn_scores_2", "raw 2", "raw scores of the second half, q₂·k₂/√d", "score"
    )
    KQ = StageInfo("kq", "hook_scores_kq", "kq", "after key-query conv", "score")
    MIX = StageInfo("mix", "hook_scores_mixed", "mix", "after head mixing", "score")
    SOFTMAX = StageInfo("sm", "hook_softmax", "sm", "softmax", "weight")
    SOFTMAX_2 = StageInfo("sm2", "hook_softmax_2", "sm 2", "second softmax (subtracted)", "weight")
    SOFTMAX_KQ = StageInfo("kq2", "hook_softmax_kq", "kq'", "after 2nd key-query conv", "weight")
    PATTERN = StageInfo("final", "hook_pattern", "final", "final weights (multiply v)", "weight")

    @property
    def is_second(self) -> bool:
        """Whether it is of the half that DIFF Transformer subtracts, beside the line of the other stages."""
        return self in (Stage.RAW_2, Stage.SOFTMAX_2)

    @classmethod
    def from_key(cls, key: str) -> "Stage":
        """The stage of a URL word such as `kq`. Raises PromptError where there is none."""
        stages = {stage.value.key: stage for stage in cls}
        if key not in stages:
            raise PromptError(f"there is no stage {key!r}; there are {', '.join(stages)}")
        return stages[key]

    def hook_name(self, layer: int) -> str:
        """Full TransformerLens-style name, e.g. `blocks.1.attn.hook_scores_kq`."""
        return f"blocks.{layer}.attn.{self.value.hook}"


def layer_stages(kernels: LayerKernels) -> tuple[Stage, ...]:
    """The stages a layer computes, in order. Raw, softmax and pattern exist in every layer."""
    present: dict[Stage, object] = {
        **{Stage.KQ: kernels.pre, Stage.MIX: kernels.head_pre, Stage.SOFTMAX_KQ: kernels.post},
        **dict.fromkeys((Stage.RAW_2, Stage.SOFTMAX_2), kernels.differential),
    }
    return tuple(stage for stage in Stage if stage not in present or present[stage])


def is_distribution(stage: Stage, kernels: LayerKernels) -> bool:
    """Whether rows of this stage are probabilities: the softmax, or a pattern equal to it."""
    if stage is Stage.PATTERN:
        return not (kernels.post or kernels.head_post or kernels.differential)
    return stage in (Stage.SOFTMAX, Stage.SOFTMAX_2)


def linear_from(kernels: LayerKernels) -> Stage:
    """The map from which on all is linear in its cells: the softmax, or the difference of two."""
    return Stage.PATTERN if kernels.differential else Stage.SOFTMAX


def model_stages(config: ModelConfig) -> tuple[tuple[Stage, ...], ...]:
    """`layer_stages` of every layer."""
    return tuple(layer_stages(config.kernels(layer)) for layer in range(config.n_layers))

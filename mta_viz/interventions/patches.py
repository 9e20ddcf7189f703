"""Activation patching, as a value: one head at one stage gets what it holds in another prompt's run.

Owns what a patch says; `analysis.patching` runs the other prompt, `model.editing` puts its rows in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mta_viz.config import ModelConfig
from mta_viz.interventions.kinds import Intervention

# A stage's word in addresses -> its hook point, and what a layer must have to compute it.
HOOKS = {
    "raw": ("hook_attn_scores", None),
    "kq": ("hook_scores_kq", "pre"),
    "mix": ("hook_scores_mixed", "head_pre"),
    "sm": ("hook_softmax", None),
    "kq2": ("hook_softmax_kq", "post"),
    "final": ("hook_pattern", None),
    "z": ("hook_z", None),
}
SHOWN = 24  # characters of the other prompt


@dataclass(frozen=True)
class PatchHead(Intervention):
    """A head's map at a stage, or its weighted values (`z`), as in the run of `prompt` (text or ids).

    The other run is the original model's. Both prompts must have the same number of tokens, since
    position takes the place of position.
    """

    head: int
    stage: str
    prompt: str | tuple[int, ...]

    kind = "patch_head"

    @classmethod
    def value_problems(cls, values: Mapping[str, Any]) -> list[str]:
        """As of every intervention; stage and prompt must be what they can be."""
        problems, stage, prompt = super().value_problems(values), values["stage"], values["prompt"]
        if not (isinstance(stage, str) and stage in HOOKS):
            problems.append(f"stage is {stage!r}; expected one of {', '.join(HOOKS)}")
        ids = isinstance(prompt, tuple) and all(type(one) is int and one >= 0 for one in prompt)
        if not (ids or isinstance(prompt, str)) or not prompt:
            problems.append("prompt is neither a text nor a list of token ids, or it is empty")
        elif isinstance(prompt, str) and not _is_unicode(prompt):
            problems.append("prompt holds halves of characters; expected a text that can be written as UTF-8")
        return problems

    @property
    def hook(self) -> str:
        """The hook point under `blocks.{layer}.attn.`."""
        return HOOKS[self.stage][0]

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        needed = HOOKS[self.stage][1]
        if needed is None or getattr(config.kernels(self.layer), needed):
            return []
        return [f"layer {self.layer} does not compute the stage {self.stage!r}"]

    def _place(self, numbering_from: int) -> str:
        return f"{super()._place(numbering_from)} {self.stage}"

    def _change(self, numbering_from: int) -> str:
        if isinstance(self.prompt, tuple):
            return f"as in a run of {len(self.prompt)} token ids"
        shown = self.prompt if len(self.prompt) <= SHOWN else f"…{self.prompt[1 - SHOWN :]}"
        return f"as in “{shown}”"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

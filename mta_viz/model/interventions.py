"""What can be changed in a model, as values, one intervention each.

Owns what an intervention says and whether a model has what it names; `model.editing` applies it.
Layers and heads count from 0. A kernel cannot be transposed: its rows reach back only, its columns
to both sides, so the transpose of one is in general no kernel. What can be turned is the key offset
(`MirrorKernel`). Activation patching is a value too: one head at one stage gets what it holds in another
prompt's run.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, PlainValidator

from mta_viz.checkpoint.validate import value_problems
from mta_viz.config import KernelPlace, MixingPlace, ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.printed import short_repr

LARGEST = (2 - 2**-23) * 2.0**127  # of float32, in which models compute and addresses are written
Index = Annotated[int, Field(ge=0)]


def _is_tap(value: float) -> float:
    if not abs(value) <= LARGEST:
        raise ValueError(f"is {value:g}; expected a finite number of 32 bits")
    return value


Tap = Annotated[float, AfterValidator(_is_tap)]


def _is_table(taps: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    if not taps or not taps[0] or len(set(map(len, taps))) > 1:
        raise ValueError("is no table; expected rows of one length, at least one tap")
    return taps


Taps = Annotated[tuple[tuple[Tap, ...], ...], AfterValidator(_is_table)]


@dataclass(frozen=True)
class Intervention:
    """One change of a layer: its `kind` in JSON, `change` in words; ConfigError lists values out of range."""

    layer: Index

    kind: ClassVar[str]
    change: ClassVar[str]

    def __post_init__(self) -> None:
        if problems := value_problems(type(self), vars(self)):
            raise ConfigError(problems, subject=f"The intervention {self.kind!r}")

    def text(self, numbering: int = 0) -> str:
        """In words, such as `L2 H1 pre -> identity`; labels count from `numbering`."""
        return f"{self._place(numbering)} -> {self._change(numbering)}"

    def problems(self, config: ModelConfig) -> list[str]:
        """Why it cannot be done to a model: every reason, each with what the model has."""
        if self.layer >= config.n_layers:
            return [f"layer {self.layer} does not exist; the model has {config.n_layers}, counted from 0"]
        problems = [
            f"head {head} does not exist; the model has {config.n_heads}, counted from 0"
            for head in (getattr(self, name, None) for name in ("head", "source"))
            if head is not None and head >= config.n_heads
        ]
        return problems + self._layer_problems(config)

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        where = getattr(self, "where", None)
        if where is None or getattr(config.kernels(self.layer), where) is not None:
            return []
        what = "kernel" if where in ("pre", "post") else "mixing"
        having = [at for at in range(config.n_layers) if getattr(config.kernels(at), where)]
        there = f"layers with one: {', '.join(map(str, having))}" if having else "no layer has one"
        return [f"layer {self.layer} has no {where} {what}; {there}"]

    def _place(self, numbering: int) -> str:
        head = getattr(self, "head", None)
        parts = [f"L{self.layer + numbering}", "" if head is None else f"H{head + numbering}"]
        return " ".join(part for part in [*parts, getattr(self, "where", "")] if part)

    def _change(self, numbering: int) -> str:
        """`change`, unless it depends on values."""
        return self.change


@dataclass(frozen=True)
class OfKernel(Intervention):
    """A change of one head's key-query kernel, before (`pre`) or after (`post`) the softmax."""

    head: Index
    where: KernelPlace


@dataclass(frozen=True)
class KernelToIdentity(OfKernel):
    """The own tap 1, all others 0: each map passes unchanged."""

    kind, change = "kernel_to_identity", "identity"


@dataclass(frozen=True)
class KernelToOwnTap(OfKernel):
    """All taps but the own one 0: the kernel's shape goes, its gain and its sign stay."""

    kind, change = "kernel_to_own_tap", "own tap only"


@dataclass(frozen=True)
class KernelToZero(OfKernel):
    """Every tap 0. Before the softmax the row becomes uniform, after it the head attends to nothing."""

    kind, change = "kernel_to_zero", "zero"


@dataclass(frozen=True)
class ReplaceKernel(OfKernel):
    """Other taps, [c_q][c_k] as the kernel's own: rows from the earliest query to the query itself."""

    taps: Taps
    kind = "replace_kernel"

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        if problems := super()._layer_problems(config):
            return problems
        _, c_q, c_k = getattr(config.kernels(self.layer), self.where)
        if (len(self.taps), len(self.taps[0])) == (c_q, c_k):
            return []
        return [
            f"{len(self.taps)} x {len(self.taps[0])} taps are given; "
            f"layer {self.layer}'s {self.where} kernels are {c_q} x {c_k}"
        ]

    def _change(self, numbering: int) -> str:
        return f"given {len(self.taps)} x {len(self.taps[0])} taps"


@dataclass(frozen=True)
class KernelFrom(OfKernel):
    """The kernel that head `source` of the same layer has at the same place."""

    source: Index
    kind = "kernel_from"

    def _change(self, numbering: int) -> str:
        return f"kernel of H{self.source + numbering}"


@dataclass(frozen=True)
class MirrorKernel(OfKernel):
    """Earlier and later keys change places: a diagonal becomes an anti-diagonal. The own tap stays."""

    kind, change = "mirror_kernel", "mirrored"

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        if problems := super()._layer_problems(config):
            return problems
        _, _, c_k = getattr(config.kernels(self.layer), self.where)
        left = config.key_pad_left(c_k)
        if 2 * left + 1 == c_k:
            return []
        return [f"its kernels reach {left} keys back and {c_k - 1 - left} ahead; mirrored they do not fit"]


@dataclass(frozen=True)
class ScaleTowardsIdentity(OfKernel):
    """(1 - strength) x kernel + strength x identity; 0 changes nothing, 1 is the identity."""

    strength: Annotated[float, Field(ge=0, le=1)]
    kind = "scale_towards_identity"

    def _change(self, numbering: int) -> str:
        return f"{self.strength:.0%} towards identity"


@dataclass(frozen=True)
class MixingToIdentity(Intervention):
    """Head `head` receives itself only (its row of the mixing), or every head does (None)."""

    where: MixingPlace
    head: Index | None = None
    kind, change = "mixing_to_identity", "identity"


@dataclass(frozen=True)
class MixingToOwnWeight(Intervention):
    """Head `head` receives itself only, times its own weight, or every head does (None)."""

    where: MixingPlace
    head: Index | None = None
    kind, change = "mixing_to_own_weight", "own weight only"


@dataclass(frozen=True)
class AblateHead(Intervention):
    """Nothing of the head's output reaches the residual stream; its maps are computed all the same."""

    head: Index
    kind, change = "ablate_head", "off"


@dataclass(frozen=True)
class BypassGroupNorm(Intervention):
    """The weighted values go on as they are: no norm, no weight, no depth scale."""

    kind, change = "bypass_group_norm", "no group norm"

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        return [] if config.mta.group_norm else ["the model has no group norm to bypass"]


@dataclass(frozen=True)
class BypassGate(Intervention):
    """The gate is held open: every head's output passes whole."""

    kind, change = "bypass_gate", "gate open"

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        return [] if config.mta.gate else ["the model has no gate to bypass"]


# What can be patched -> its hook point: the stages, and the weighted values, which every layer has.
HOOKS = {stage.value.key: stage.value.hook for stage in Stage} | {"z": "hook_z"}
SHOWN = 24  # characters of the other prompt


def _is_stage(stage: str) -> str:
    if stage not in HOOKS:
        raise ValueError(f"is {short_repr(stage)}; expected one of {', '.join(HOOKS)}")
    return stage


def _is_prompt(prompt: object) -> object:
    ids = isinstance(prompt, tuple) and all(type(token) is int and token >= 0 for token in prompt)
    if not prompt or not (ids or isinstance(prompt, str)):
        raise ValueError("is neither a text nor a list of token ids, or it is empty")
    try:
        return prompt.encode() and prompt if isinstance(prompt, str) else prompt
    except UnicodeEncodeError:
        raise ValueError("holds halves of characters; expected a text") from None


@dataclass(frozen=True)
class PatchHead(Intervention):
    """A head's map at a stage, or its weighted values (`z`), as in the run of `prompt` (text or ids).

    The other run is the original model's. Both prompts must have the same number of tokens, since
    position takes the place of position.
    """

    head: Index
    stage: Annotated[str, AfterValidator(_is_stage)]
    prompt: Annotated[str | tuple[int, ...], PlainValidator(_is_prompt)]
    kind = "patch_head"

    @property
    def hook(self) -> str:
        """The hook point under `blocks.{layer}.attn.`."""
        return HOOKS[self.stage]

    def _layer_problems(self, config: ModelConfig) -> list[str]:
        if self.stage in ("z", *(stage.value.key for stage in layer_stages(config.kernels(self.layer)))):
            return []
        return [f"layer {self.layer} does not compute the stage {self.stage!r}"]

    def _place(self, numbering: int) -> str:
        return f"{super()._place(numbering)} {self.stage}"

    def _change(self, numbering: int) -> str:
        if isinstance(self.prompt, tuple):
            return f"as in a run of {len(self.prompt)} token ids"
        shown = self.prompt if len(self.prompt) <= SHOWN else f"…{self.prompt[1 - SHOWN :]}"
        return f"as in “{shown}”"

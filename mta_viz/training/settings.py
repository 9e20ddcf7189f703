"""Settings of training runs: what every recipe has, what each has of its own, and TOML files over both.

Imports no torch, so that the command line reads and refuses settings quickly.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from mta_viz.checkpoint import door
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError
from mta_viz.tasks.needles import MAX_NEEDLES

VARIANTS = ("mta", "transformer", "differential")
CHARACTERS = 32  # tokens of the character tokenizer
FFN_MULTIPLE = 256
SHORTEST = 64  # tokens; holds two needles, the question and a sentence or two
Settings = TypeVar("Settings", bound="TrainerSettings")


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """AdamW with warm-up, a decaying learning rate and gradient clipping.

    Kernels and head mixing take `learning_rate` * `kernel_rate` and, like all vectors, no weight
    decay. `snapshots` of the kernels are taken on the way. Raises `ConfigError` listing every value
    out of range.
    """

    subject: ClassVar[str] = "The training settings"
    least: ClassVar[dict[str, int]] = {"steps": 1, "warmup_steps": 0, "snapshots": 2}

    steps: int = 10_000
    learning_rate: float = 1e-3
    warmup_steps: int = 1000
    kernel_rate: float = 1.0
    weight_decay: float = 0.0
    clip: float = 1.0
    snapshots: int = 48

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise ConfigError(problems, subject=self.subject)

    def problems(self) -> list[str]:
        """Every value out of range, a sentence each."""
        problems = [
            f"{name} is {getattr(self, name)}; expected at least {low}"
            for name, low in self.least.items()
            if not getattr(self, name) >= low
        ]
        problems += [
            f"{name} is {getattr(self, name)}; expected a positive, finite number"
            for name in ("learning_rate", "kernel_rate", "clip")
            if not 0 < getattr(self, name) < math.inf
        ]
        if not 0 <= self.weight_decay < math.inf:
            problems.append(f"weight_decay is {self.weight_decay}; expected a finite number of 0 or more")
        return problems

    @property
    def clock(self) -> float | None:
        """Seconds of training at which the whole run ends before its last step; None: no such limit."""
        return None

    def left(self, step: int, seconds: float = 0.0) -> float:
        """Share (1..0) of the run that is to come, by steps or by the clock, whichever ends it first."""
        by_steps = 1.0 - step / self.steps
        return by_steps if self.clock is None else max(min(by_steps, 1.0 - seconds / self.clock), 0.0)

    def rate_factor(self, step: int, seconds: float = 0.0) -> float:
        """Share of the learning rate that step `step` (from 0) uses, begun after `seconds` of training."""
        return min(1.0, (step + 1) / max(1, self.warmup_steps)) * self.decay(self.left(step, seconds))

    @property
    def rates(self) -> tuple[float, float, float]:
        """What matrices, vectors and kernels take, as multiples of `learning_rate`."""
        return 1.0, 1.0, self.kernel_rate

    def decay(self, left: float) -> float:
        """Share of the rate when `left` (1..0) of the run is to come: whole for half, then to 0 linearly."""
        return min(1.0, 2.0 * left)

    @property
    def report_every(self) -> int:
        """Steps between two reports of progress."""
        return max(1, min(25, self.steps // 4))


@dataclass(frozen=True, kw_only=True)
class RunSettings(TrainerSettings, ABC):
    """A run of any recipe: the trainer's settings, the seed of data and weights, and how it is evaluated."""

    least: ClassVar[dict[str, int]] = TrainerSettings.least | {"evaluation_samples": 1}
    most: ClassVar[dict[str, int]] = {"evaluation_samples": 100_000}

    seed: int = 0
    evaluation_samples: int = 1000
    evaluation_seed: int = 0

    def problems(self) -> list[str]:
        """Those of the trainer, of the seeds, and what is too much."""
        problems = [
            f"{name} is {getattr(self, name)}; expected at most {high:,}"
            for name, high in self.most.items()
            if getattr(self, name) > high
        ]
        problems += [
            f"{name} is {getattr(self, name)}; expected a whole number of at most 64 bits"
            for name in ("seed", "evaluation_seed")  # torch's generators take no more
            if not -(2**63) <= getattr(self, name) < 2**64
        ]
        return super().problems() + problems

    @abstractmethod
    def command(self, device: str) -> str:
        """The command that repeats the run."""


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(RunSettings):
    """A run that trains a model of its own: the model's shape beside the rest."""

    task: ClassVar[str]
    arguments: ClassVar[str] = ""  # that the command needs
    flags: ClassVar[tuple[str, ...]] = ("variant", "seed", "steps")
    least: ClassVar[dict[str, int]] = RunSettings.least | dict.fromkeys(("d_model", "n_layers", "n_heads"), 1)

    variant: str = "mta"
    d_model: int = 256
    n_layers: int = 4
    n_heads: int = 2
    kernel: tuple[int, ...] | None = None

    def problems(self) -> list[str]:
        """What is wrong with the settings, the model's shape included."""
        problems = super().problems()
        if self.kernel is not None and len(self.kernel) != 2:
            sizes = list(self.kernel)
            problems.append(f"kernel is {sizes}; expected two sizes, of query and key, such as [2, 9]")
        if self.variant not in VARIANTS:
            problems.append(f"variant is {self.variant!r}; expected {' or '.join(map(repr, VARIANTS))}")
        if self.differential and self.n_heads % 2:
            problems.append(f"n_heads {self.n_heads} is odd; differential heads are two of these each")
        if self.n_heads >= 1 and self.d_model % (2 * self.n_heads):
            problems.append(f"d_model {self.d_model} is not a multiple of 2 * n_heads ({2 * self.n_heads})")
        return problems

    @property
    def differential(self) -> bool:
        """Whether it is a DIFF Transformer, which has half as many heads, twice as wide."""
        return self.variant == "differential"

    @abstractmethod
    def model_config(self) -> ModelConfig:
        """The model these settings describe. Raises `ConfigError` where there is none."""

    def model_of(self, vocab_size: int, n_ctx: int, mta: MTAOptions) -> ModelConfig:
        """A tied model of this shape, with as wide an MLP as Lingua's default."""
        n_heads = self.n_heads // 2 if self.differential else self.n_heads
        return ModelConfig(
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=self.d_model // n_heads,
            d_mlp=-(-(8 * self.d_model // 3) // FFN_MULTIPLE) * FFN_MULTIPLE,
            vocab_size=vocab_size,
            n_ctx=n_ctx,
            tied=True,
            mta=mta,
            differential=self.differential,
        )

    def command(self, device: str) -> str:
        """The command that repeats the run; fields without a flag go into a TOML file."""
        flags: dict[str, Any] = {name: getattr(self, name) for name in self.flags}
        command = f"python -m mta_viz train {self.task}{self.arguments}"
        if type(self)(**flags) != self:
            command += f" --config {self.task}.toml (the fields under config)"
        flags["device"] = device
        return command + "".join(f" --{name.replace('_', '-')} {value}" for name, value in flags.items())


@dataclass(frozen=True, kw_only=True)
class BlocksConfig(RecipeSettings):
    """A block-finding run. `kernel` None means (n_query, 2 * n_letters - 1): a block to both sides.

    The sequences of a step all have one number of blocks, drawn from `block_mixture`; `n_blocks` is
    the full length, used for evaluation. The defaults follow the paper's toy task but for the rate,
    its decay and the mixture of lengths, without which 100,000 steps are needed.
    """

    subject: ClassVar[str] = "The block-finding recipe"
    task: ClassVar[str] = "blocks"
    least: ClassVar[dict[str, int]] = RecipeSettings.least | {"batch_size": 1}

    output: str = "all"
    n_letters: int = 5
    n_query: int = 2
    n_blocks: int = 52
    block_mixture: tuple[int, ...] = (8, 16, 32, 52, 52)
    batch_size: int = 64

    def problems(self) -> list[str]:
        """Those of every recipe, and a mixture without blocks."""
        mixture = self.block_mixture
        few = not mixture or min(mixture) < 1
        wrong = [f"block_mixture is {mixture}; expected numbers of blocks of at least 1"] if few else []
        return super().problems() + wrong

    @property
    def kernel_size(self) -> tuple[int, int] | None:
        """(c_q, c_k) of every layer's kernels; None for other variants."""
        if self.variant != "mta":
            return None
        return cast("tuple[int, int] | None", self.kernel) or (self.n_query, 2 * self.n_letters - 1)

    def model_config(self) -> ModelConfig:
        """The model: kernels before the softmax, long enough for a full sequence."""
        n_ctx = 1 + self.n_blocks * (self.n_letters + 1) + self.n_query + self.n_letters
        normed = self.differential
        options = MTAOptions(pre_kernel=self.kernel_size, group_norm=normed, depth_scale=normed)
        return self.model_of(CHARACTERS, n_ctx, options)


@dataclass(frozen=True, kw_only=True)
class NeedleConfig(RecipeSettings):
    """A needle run. All sequences of a step have one length, drawn from `length_mixture`.

    A step holds about `tokens_per_step` tokens. Half of its sequences are plain text, half needles;
    half of all text comes from the books, half from the grammar. `answer_weight` and
    `haystack_weight` are what the loss counts a needle sequence's tokens. Of the needles' cities
    about `made_up_share` come from `made_up_cities` invented names (0: known cities alone), so that
    the model learns to match any name. `kernel_layers` have key-query kernels, counted from 0 (None:
    all). The plain twin has no kernels and no head mixing, and the rest unchanged. The evaluation's
    samples are numbered from `evaluation_seed`.
    """

    subject: ClassVar[str] = "The needle recipe"
    task: ClassVar[str] = "needle"
    arguments: ClassVar[str] = " --corpus CORPUS"
    flags: ClassVar[tuple[str, ...]] = (*RecipeSettings.flags, "learning_rate")
    least: ClassVar[dict[str, int]] = RecipeSettings.least | {
        "vocab_size": 600,
        "grammar_sentences": 100,
        "tokenizer_sentences": 100,
        "evaluation_sentences": 1,
        "n_ctx": 512,
    }

    n_layers: int = 6
    n_heads: int = 8
    kernel: tuple[int, ...] = (6, 11)
    kernel_layers: tuple[int, ...] | None = None
    vocab_size: int = 4096
    n_ctx: int = 1024
    length_mixture: tuple[int, ...] = (64, 128, 256, 512, 512, 1024)
    tokens_per_step: int = 8192
    answer_weight: float = 8.0
    haystack_weight: float = 0.2
    made_up_cities: int = 20_000
    made_up_share: float = 0.5
    grammar_sentences: int = 100_000
    tokenizer_sentences: int = 20_000
    steps: int = 4000
    warmup_steps: int = 200
    kernel_rate: float = 10.0
    weight_decay: float = 0.05
    evaluation_samples: int = 200
    evaluation_sentences: int = 2000

    def problems(self) -> list[str]:
        """Those of every recipe, and those of layers, names and lengths."""
        problems, layers, lengths = super().problems(), self.kernel_layers, self.length_mixture
        if layers is not None and not (layers and set(layers) <= set(range(self.n_layers))):
            last = self.n_layers - 1
            problems.append(f"kernel_layers is {list(layers)}; expected at least one of 0 to {last}")
        if self.made_up_cities != 0 and not self.made_up_cities >= MAX_NEEDLES:
            problems.append(f"made_up_cities is {self.made_up_cities}; expected 0 or at least {MAX_NEEDLES}")
        if not 0 <= self.made_up_share <= 1:
            problems.append(f"made_up_share is {self.made_up_share}; expected a share from 0 to 1")
        if not lengths or min(lengths) < SHORTEST or max(lengths) > self.n_ctx:
            expected = f"lengths from {SHORTEST} to n_ctx {self.n_ctx}"
            problems.append(f"length_mixture is {lengths}; expected {expected}")
        elif self.tokens_per_step < 2 * max(lengths):
            expected = f"at least two sequences of {max(lengths)}"
            problems.append(f"tokens_per_step is {self.tokens_per_step}; expected {expected}")
        return problems

    def decay(self, left: float) -> float:
        """A cosine from the start."""
        return 0.5 * (1.0 - math.cos(math.pi * left))

    def model_config(self) -> ModelConfig:
        """The paper's language models in small: kernels and head mixing on both sides, group norm, gate."""
        mta, kernel = self.variant == "mta", cast("tuple[int, int]", self.kernel)
        options = MTAOptions(
            pre_kernel=kernel if mta else None,
            post_kernel=kernel if mta else None,
            mta_layers=self.kernel_layers if mta else None,
            head_pre=mta,
            head_post_group=self.n_heads if mta else None,
            group_norm=True,
            depth_scale=self.differential,
            gate=None if self.differential else "1d",
        )
        return self.model_of(self.vocab_size, self.n_ctx, options)


def recipe_config(kind: type[Settings], path: Path | None = None, **changes: Any) -> Settings:
    """The defaults, overridden by a TOML file's fields, overridden by `changes` that are not None.

    Raises `ConfigError` naming every unknown field and every value of another kind or out of range.
    """
    fields = door.read_toml(path) if path else {}
    fields |= {name: value for name, value in changes.items() if value is not None}
    if not fields:
        return kind()
    from mta_viz.checkpoint.validate import from_data  # only a recipe that differs needs the library

    return from_data(kind, vars(kind()) | fields, f"The configuration {path or ''}".strip())


def snapshot_steps(steps: int, count: int) -> tuple[int, ...]:
    """Up to `count` strictly increasing steps from 0 to `steps`, about evenly spaced in log(step)."""
    chosen, wanted = [0], min(count, steps + 1)
    for left in range(wanted - 1, 0, -1):
        last = max(chosen[-1], 1)
        spaced = round(last * (steps / last) ** (1 / left))
        chosen.append(min(max(chosen[-1] + 1, spaced), steps - left + 1))
    return tuple(chosen)

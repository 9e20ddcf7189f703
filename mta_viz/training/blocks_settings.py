"""What a block-finding run is: the defaults that were seen to work, and the model they describe.

Imports no torch. The defaults follow the paper's toy task (4 layers, 2 heads, width 256, kernels
2 x (2N - 1) before the softmax) but for the rate, its decay and the mixture of lengths, without
which 100,000 steps are needed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mta_viz.checkpoint import door
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError
from mta_viz.training.settings import TrainerSettings, kernel_problems, override, seed_problems

VARIANTS = ("mta", "transformer")
VOCAB_SIZE = 32  # of the character tokenizer
FFN_MULTIPLE = 256


@dataclass(frozen=True)
class BlocksConfig:
    """A block-finding run. `kernel` None means (n_query, 2 * n_letters - 1): a block to both sides.

    The sequences of a step all have one number of blocks, drawn from `block_mixture`; `n_blocks` is
    the full length, used for evaluation.
    Raises `ConfigError` listing every value out of range.
    """

    variant: str = "mta"
    output: str = "all"
    n_letters: int = 5
    n_query: int = 2
    n_blocks: int = 52
    block_mixture: tuple[int, ...] = (8, 16, 32, 52, 52)
    d_model: int = 256
    n_layers: int = 4
    n_heads: int = 2
    kernel: tuple[int, ...] | None = None
    seed: int = 0
    steps: int = 10_000
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 1000
    kernel_rate: float = 1.0
    weight_decay: float = 0.0
    clip: float = 1.0
    snapshots: int = 48
    evaluation_samples: int = 1000
    evaluation_seed: int = 0

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ConfigError(problems, subject="The block-finding recipe")

    @property
    def kernel_size(self) -> tuple[int, int] | None:
        """(c_q, c_k) of every layer's kernels; None for the plain transformer."""
        if self.variant == "transformer":
            return None
        return cast("tuple[int, int] | None", self.kernel) or (self.n_query, 2 * self.n_letters - 1)

    def model_config(self) -> ModelConfig:
        """The model: tied, as wide an MLP as Lingua's default, long enough for a full sequence."""
        return ModelConfig(
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_heads,
            d_head=self.d_model // self.n_heads,
            d_mlp=-(-(8 * self.d_model // 3) // FFN_MULTIPLE) * FFN_MULTIPLE,
            vocab_size=VOCAB_SIZE,
            n_ctx=1 + self.n_blocks * (self.n_letters + 1) + self.n_query + self.n_letters,
            tied=True,
            mta=MTAOptions(pre_kernel=self.kernel_size),
        )

    def trainer_settings(self) -> TrainerSettings:
        """The trainer's part: linear decay over the second half of the run."""
        return TrainerSettings(
            steps=self.steps,
            learning_rate=self.learning_rate,
            warmup_steps=self.warmup_steps,
            kernel_rate=self.kernel_rate,
            weight_decay=self.weight_decay,
            clip=self.clip,
            snapshots=self.snapshots,
            report_every=max(1, min(25, self.steps // 4)),
        )


def blocks_config(path: Path | None = None, **changes: Any) -> BlocksConfig:
    """The defaults, overridden by a TOML file's fields, overridden by `changes` that are not None."""
    from_file = door.read_toml(path) if path else {}
    given = {name: value for name, value in changes.items() if value is not None}
    return override(BlocksConfig(), from_file | given, f"The configuration {path or ''}".strip())


def _problems(config: BlocksConfig) -> list[str]:
    least = ("steps", "batch_size", "d_model", "n_layers", "n_heads", "evaluation_samples")
    problems = [
        f"{name} is {getattr(config, name)}; expected at least 1"
        for name in least
        if not getattr(config, name) >= 1
    ]
    problems += [*seed_problems(config, "seed", "evaluation_seed"), *kernel_problems(config.kernel)]
    if config.variant not in VARIANTS:
        names = " or ".join(map(repr, VARIANTS))
        problems.append(f"variant is {config.variant!r}; expected {names}")
    if not config.block_mixture or min(config.block_mixture) < 1:
        problems.append(f"block_mixture is {config.block_mixture}; expected numbers of blocks of at least 1")
    if config.n_heads >= 1 and config.d_model % (2 * config.n_heads):
        problems.append(f"d_model {config.d_model} is not a multiple of 2 * n_heads ({2 * config.n_heads})")
    return problems

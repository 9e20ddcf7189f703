"""What a needle run is: the defaults, and the model they describe. Imports no torch.

The model follows the paper's language models in small: kernels 6 x 11 before and after the softmax,
mixing of all heads before and after, group norm and gate; here in every layer.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mta_viz.checkpoint import door
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import ConfigError
from mta_viz.tasks.needles import MAX_NEEDLES
from mta_viz.training.settings import TrainerSettings, kernel_problems, override, seed_problems

VARIANTS = ("mta", "transformer")
FFN_MULTIPLE = 256
SHORTEST = 64  # tokens; holds two needles, the question and a sentence or two


@dataclass(frozen=True)
class NeedleConfig:
    """A needle run. All sequences of a step have one length, drawn from `length_mixture`.

    A step holds about `tokens_per_step` tokens. Half of its sequences are plain text, half needles;
    half of all text comes from the books, half from the grammar. `answer_weight` and
    `haystack_weight` are what the loss counts a needle sequence's tokens. Of the needles' cities
    about `made_up_share` come from `made_up_cities` invented names (0: known cities alone), so that
    the model learns to match any name. `kernel_layers` have key-query kernels, counted from 0 (None:
    all). The plain twin has no kernels and no head mixing, and the rest unchanged. The evaluation's
    samples are numbered from `evaluation_seed`.
    Raises `ConfigError` listing every value out of range.
    """

    variant: str = "mta"
    d_model: int = 256
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
    seed: int = 0
    steps: int = 4000
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    kernel_rate: float = 10.0
    weight_decay: float = 0.05
    clip: float = 1.0
    snapshots: int = 48
    evaluation_samples: int = 200
    evaluation_seed: int = 0
    evaluation_sentences: int = 2000

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ConfigError(problems, subject="The needle recipe")

    def model_config(self, vocab_size: int | None = None) -> ModelConfig:
        """The model, tied; `vocab_size` is the trained tokenizer's (default: the one asked for)."""
        mta, kernel = self.variant == "mta", cast("tuple[int, int]", self.kernel)
        return ModelConfig(
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_heads,
            d_head=self.d_model // self.n_heads,
            d_mlp=-(-(8 * self.d_model // 3) // FFN_MULTIPLE) * FFN_MULTIPLE,
            vocab_size=vocab_size or self.vocab_size,
            n_ctx=self.n_ctx,
            tied=True,
            mta=MTAOptions(
                pre_kernel=kernel if mta else None,
                post_kernel=kernel if mta else None,
                mta_layers=self.kernel_layers if mta else None,
                head_pre=mta,
                head_post_group=self.n_heads if mta else None,
                group_norm=True,
                gate="1d",
            ),
        )

    def trainer_settings(self) -> TrainerSettings:
        """The trainer's part: cosine decay."""
        return TrainerSettings(
            steps=self.steps,
            learning_rate=self.learning_rate,
            warmup_steps=self.warmup_steps,
            schedule="cosine",
            kernel_rate=self.kernel_rate,
            weight_decay=self.weight_decay,
            clip=self.clip,
            snapshots=self.snapshots,
        )


def needle_config(path: Path | None = None, **changes: Any) -> NeedleConfig:
    """The defaults, overridden by a TOML file's fields, overridden by `changes` that are not None."""
    from_file = door.read_toml(path) if path else {}
    given = {name: value for name, value in changes.items() if value is not None}
    return override(NeedleConfig(), from_file | given, f"The configuration {path or ''}".strip())


def most_needles(length: int) -> int:
    """How many needles a training sequence of `length` tokens may hold, leaving room for text."""
    return max(1, min(MAX_NEEDLES, length // 32 - 1))


def _problems(config: NeedleConfig) -> list[str]:
    least = {
        "steps": 1,
        "d_model": 1,
        "n_layers": 1,
        "n_heads": 1,
        "evaluation_samples": 1,
        "vocab_size": 600,
    }
    least |= {"grammar_sentences": 100, "tokenizer_sentences": 100, "evaluation_sentences": 1, "n_ctx": 512}
    problems = [
        f"{name} is {getattr(config, name)}; expected at least {low}"
        for name, low in least.items()
        if not getattr(config, name) >= low
    ]
    problems += [*seed_problems(config, "seed", "evaluation_seed"), *kernel_problems(config.kernel)]
    problems += [*_layer_problems(config), *_name_problems(config)]
    if config.variant not in VARIANTS:
        problems.append(f"variant is {config.variant!r}; expected {' or '.join(map(repr, VARIANTS))}")
    lengths = config.length_mixture
    if not lengths or min(lengths) < SHORTEST or max(lengths) > config.n_ctx:
        problems.append(
            f"length_mixture is {lengths}; expected lengths from {SHORTEST} to n_ctx {config.n_ctx}"
        )
    elif config.tokens_per_step < 2 * max(lengths):
        problems.append(
            f"tokens_per_step is {config.tokens_per_step}; expected at least two sequences of {max(lengths)}"
        )
    if config.n_heads >= 1 and config.d_model % (2 * config.n_heads):
        problems.append(f"d_model {config.d_model} is not a multiple of 2 * n_heads ({2 * config.n_heads})")
    return problems


def _layer_problems(config: NeedleConfig) -> list[str]:
    layers = config.kernel_layers
    if layers is None or (layers and set(layers) <= set(range(config.n_layers))):
        return []
    return [f"kernel_layers is {list(layers)}; expected at least one of 0 to {config.n_layers - 1}"]


def _name_problems(config: NeedleConfig) -> list[str]:
    problems = []
    if config.made_up_cities != 0 and not config.made_up_cities >= MAX_NEEDLES:
        problems.append(f"made_up_cities is {config.made_up_cities}; expected 0 or at least {MAX_NEEDLES}")
    if not 0 <= config.made_up_share <= 1:
        problems.append(f"made_up_share is {config.made_up_share}; expected a share from 0 to 1")
    return problems

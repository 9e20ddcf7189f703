"""The trainer's settings, and how a TOML file overrides a recipe's.

Owns no training code and imports no torch, so that the command line can read it quickly.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeVar

from mta_viz.errors import ConfigError

SCHEDULES = ("linear", "cosine")
Config = TypeVar("Config")


@dataclass(frozen=True)
class TrainerSettings:
    """AdamW with warm-up, a decaying learning rate and gradient clipping.

    `linear` holds the rate for half of the run and brings it to 0 over the second half; `cosine`
    decays from the start. Kernels and head mixing take `learning_rate` * `kernel_rate` and, like
    all vectors, no weight decay. `bfloat16` is autocast on CUDA only. `report_every` and
    `save_seconds` change what is said and kept, never what is trained.
    Raises `ConfigError` listing every value out of range.
    """

    steps: int
    learning_rate: float = 1e-3
    warmup_steps: int = 1000
    schedule: str = "linear"
    kernel_rate: float = 1.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    bfloat16: bool = True
    snapshots: int = 48
    report_every: int = 25
    save_seconds: float = 120.0

    def __post_init__(self) -> None:
        problems = _trainer_problems(self)
        if problems:
            raise ConfigError(problems, subject="The training settings")

    def rate_factor(self, step: int) -> float:
        """Share of the learning rate that step `step` (from 0) uses."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        left = 1.0 - step / self.steps
        if self.schedule == "linear":
            return warm * min(1.0, 2.0 * left)
        return warm * 0.5 * (1.0 - math.cos(math.pi * left))


def snapshot_steps(steps: int, count: int) -> tuple[int, ...]:
    """Up to `count` strictly increasing steps from 0 to `steps`, about evenly spaced in log(step)."""
    chosen, wanted = [0], min(count, steps + 1)
    for left in range(wanted - 1, 0, -1):
        last = max(chosen[-1], 1)
        spaced = round(last * (steps / last) ** (1 / left))
        chosen.append(min(max(chosen[-1] + 1, spaced), steps - left + 1))
    return tuple(chosen)


def override(config: Config, changes: dict[str, Any], subject: str) -> Config:
    """A copy of a dataclass value with fields replaced; lists become tuples.

    Raises `ConfigError` naming every unknown field and every value of another kind or out of range.
    """
    from mta_viz.checkpoint.validate import from_data  # only a recipe that differs needs the library

    return from_data(type(config), vars(config) | changes, subject)


def seed_problems(config: object, *names: str) -> list[str]:
    """Faults of a recipe's seeds, which torch's generators take up to 64 bits wide."""
    return [
        f"{name} is {getattr(config, name)}; expected a whole number of at most 64 bits"
        for name in names
        if not -(2**63) <= getattr(config, name) < 2**64
    ]


def kernel_problems(kernel: tuple[int, ...] | None) -> list[str]:
    """Faults in the number of a kernel's sizes; their values are `ModelConfig`'s to check."""
    if kernel is None or len(kernel) == 2:
        return []
    return [f"kernel is {list(kernel)}; expected two sizes, of query and key, such as [2, 9]"]


def _trainer_problems(settings: TrainerSettings) -> list[str]:
    least = {"steps": 1, "warmup_steps": 0, "snapshots": 2, "report_every": 1, "save_seconds": 0}
    problems = [
        f"{name} is {getattr(settings, name)}; expected at least {low}"
        for name, low in least.items()
        if not getattr(settings, name) >= low
    ]
    positive = ("learning_rate", "kernel_rate", "clip")
    problems += [
        f"{name} is {getattr(settings, name)}; expected a positive, finite number"
        for name in positive
        if not 0 < getattr(settings, name) < math.inf
    ]
    if not 0 <= settings.weight_decay < math.inf:
        problems.append(f"weight_decay is {settings.weight_decay}; expected a finite number of 0 or more")
    if settings.schedule not in SCHEDULES:
        problems.append(f"schedule is {settings.schedule!r}; expected {' or '.join(SCHEDULES)}")
    return problems

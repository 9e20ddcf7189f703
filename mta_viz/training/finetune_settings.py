"""Settings of finetuning: what is put into a base, what of it is trained, on which task, and what is kept.

Imports no torch, so that the command line reads and refuses settings quickly.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mta_viz.checkpoint import door
from mta_viz.config import DTYPES, LARGEST_KERNEL, kernel_problems
from mta_viz.errors import ConfigError
from mta_viz.tasks.needles import MAX_SIDE
from mta_viz.tasks.words import stream_seed
from mta_viz.training.settings import RunSettings

TRAINED = ("kernels", "kernels+norms", "norms", "all")
TASKS = ("pairs", "needle", "text")
KEPT = ("text", "base", "none")
JSONL = ".jsonl"
SETTINGS = "finetune.toml"
UNTIL_THE_CLOCK = 100_000  # steps, where a run is to end by the clock alone


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunSettings):
    """Training kernels into the model at `base`, whose own weights stay as they are unless `train` is "all".

    `layers` (from 0; none: `usual_layers`) get kernels of the size `kernel`, at the identity. `train`:
    "kernels", "kernels+norms" (with the gains before the attention of these layers), "norms" (these gains
    alone, no kernels: a control) or "all" parameters. `task`: "pairs" of `names` x `cities` facts, in the
    known cities and `made_up_cities` invented ones, with a share `single_key` of the steps that ask needles;
    "needle"; "text", the corpus alone; or a file of JSON lines. Prompts have `lengths` tokens, one of them a
    step.

    `keep`: what holds the model to where it was, `keep_weight` times: "text" (the loss of `text_rows` pieces
    of the corpus), "base" (how far the next-token distribution is there from the base's own: Kullback-Leibler
    divergence) or "none". Pieces have `text_lengths` tokens, one of them a step, fewer pieces where it is
    longer (none: as long as the prompts). `corpus`: a folder of plain-text files, None for the grammar.

    The learning rate is that of kernels; `norm_rate` and `matrix_rate` are what vectors and matrices take
    of it. It falls to 0 over the run, which ends after `steps` or `max_seconds`, whichever comes first.
    """

    subject: ClassVar[str] = "The finetuning"
    least: ClassVar[dict[str, int]] = RunSettings.least | {
        "made_up_cities": 0,
        "batch_size": 1,
        "text_rows": 1,
        "evaluation_tokens": 2,
        "names": 1,
        "cities": 1,
    }
    most: ClassVar[dict[str, int]] = RunSettings.most | {
        "learning_rate": 1,  # a tap of an identity is 1 at most
        "names": MAX_SIDE,
        "cities": MAX_SIDE,
        "made_up_cities": 10_000,
        "evaluation_tokens": 1_000_000,
    }

    base: str
    layers: tuple[int, ...] = ()
    kernel: tuple[int, ...] = (6, 11)
    train: str = "kernels"
    task: str = "pairs"
    names: int = 3
    cities: int = 3
    made_up_cities: int = 0
    single_key: float = 0.25
    lengths: tuple[int, ...] = (256, 320, 384)
    batch_size: int = 16
    keep: str = "text"
    keep_weight: float = 1.0
    corpus: str | None = None
    text_rows: int = 6
    text_lengths: tuple[int, ...] = ()
    dtype: str = "float32"
    steps: int = 600
    max_seconds: float | None = None
    learning_rate: float = 1e-2
    norm_rate: float = 0.3
    matrix_rate: float = 0.003
    warmup_steps: int = 20
    evaluation_samples: int = 100
    evaluation_tokens: int = 4096

    def problems(self) -> list[str]:
        """Those of every run, of the words, of layers and sizes, and of the two losses together."""
        return [*super().problems(), *self._word_problems(), *self._size_problems(), *self._loss_problems()]

    def _word_problems(self) -> list[str]:
        choices = {"train": TRAINED, "keep": KEPT, "dtype": DTYPES}
        problems = [
            f"{name} is {getattr(self, name)!r}; expected {', '.join(words)}"
            for name, words in choices.items()
            if getattr(self, name) not in words
        ]
        if self.task not in TASKS and not self.task.endswith(JSONL):
            tasks = ", ".join(TASKS)
            problems.append(f"task is {self.task!r}; expected {tasks}, or a file of JSON lines (*{JSONL})")
        return problems

    def _size_problems(self) -> list[str]:
        problems = []
        if not self.lengths or min(self.lengths) < 1:
            problems.append(f"lengths is {list(self.lengths)}; expected numbers of tokens")
        if min(self.text_lengths, default=2) < 2:
            problems.append(f"text_lengths is {list(self.text_lengths)}; expected at least 2 tokens each")
        # a kernel no longer than a piece of text
        most = LARGEST_KERNEL if problems else min(LARGEST_KERNEL, *self.piece_lengths)
        problems += kernel_problems("kernel", self.kernel, "both", most)
        for name in ("norm_rate", "matrix_rate"):
            if not 0 < getattr(self, name) < math.inf:
                problems.append(f"{name} is {getattr(self, name)}; expected a positive, finite number")
        if self.max_seconds is not None and not 0 < self.max_seconds < math.inf:
            problems.append(f"max_seconds is {self.max_seconds}; expected a number of seconds above 0")
        return problems

    def _loss_problems(self) -> list[str]:
        problems = []
        if not 0 <= self.single_key <= 1:
            problems.append(f"single_key is {self.single_key}; expected a share from 0 to 1")
        if not 0 < self.keep_weight < math.inf:
            problems.append(f"keep_weight is {self.keep_weight}; expected a positive, finite number")
        return problems

    @property
    def clock(self) -> float | None:
        """Seconds of training after which the run ends."""
        return self.max_seconds

    def decay(self, left: float) -> float:
        """Linearly to nothing, from the start on."""
        return left

    @property
    def rates(self) -> tuple[float, float, float]:
        """Pretrained matrices and gains take small steps, kernels at the identity large ones."""
        return self.matrix_rate, self.norm_rate, self.kernel_rate

    @property
    def report_every(self) -> int:
        """Steps between two reports: whoever watches wants one every few seconds."""
        return max(1, min(5, self.steps // 4))

    @property
    def usual_length(self) -> int:
        """The middle one of the lengths, on which the model is measured."""
        return sorted(self.lengths)[len(self.lengths) // 2]

    @property
    def piece_lengths(self) -> tuple[int, ...]:
        """Tokens of a piece of running text, one of them a step."""
        return self.text_lengths or (self.usual_length,)

    def n_pieces(self, length: int) -> int:
        """Pieces of so many tokens a step: together as long as `text_rows` of the shortest, at least one."""
        return max(1, self.text_rows * min(self.piece_lengths) // length)

    def pieces(self, step: int) -> tuple[int, int]:
        """How many pieces of text a step reads, and the tokens of each."""
        lengths = self.piece_lengths
        length = lengths[stream_seed("finetuning piece length", self.seed, step) % len(lengths)]
        return self.n_pieces(length), length

    @property
    def with_kernels(self) -> bool:
        """Whether kernels are put into the base."""
        return self.train != "norms" and bool(self.layers)

    def command(self, device: str) -> str:
        """The command that repeats the run; all settings stand in the file."""
        return f"python -m mta_viz finetune --config {SETTINGS} --device {device} (the fields under config)"


def finetune_config(path: Path | None = None, **changes: Any) -> FinetuneConfig:
    """The defaults, overridden by a TOML file's fields, overridden by `changes` that are not None.

    A run with a time limit and no number of steps goes on until the limit. Raises `ConfigError` naming
    every unknown field and every value of another kind or out of range.
    """
    fields = door.read_toml(path) if path else {}
    fields |= {name: value for name, value in changes.items() if value is not None}
    if not fields.get("base"):
        raise ConfigError(
            ["no base is named; give the model to put kernels into, or base = ... in the configuration"],
            FinetuneConfig.subject,
        )
    if fields.get("max_seconds") is not None and "steps" not in fields:
        fields["steps"] = UNTIL_THE_CLOCK
    from mta_viz.checkpoint.validate import from_data

    return from_data(FinetuneConfig, fields, f"The configuration {path or ''}".strip())

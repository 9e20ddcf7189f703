"""The tasks a command or a page is told by name, and the file a task may stand in.

`needle`, `pairs`, or a JSON Lines file of prompts and answers. Owns which samples of a task everything is
measured on; the tasks themselves are `mta_viz.tasks`'s.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from mta_viz.checkpoint import door
from mta_viz.checkpoint.validate import from_lines
from mta_viz.errors import ConfigError, PromptError
from mta_viz.tasks.facts import DEPTHS, NeedleSample, Task, in_turn
from mta_viz.tasks.needles import NEEDLES, NeedleTask, PairsTask
from mta_viz.tasks.written import WrittenSample, WrittenTask
from mta_viz.tokenizers.base import Tokenizer

LIMIT = 64 * door.MIB  # of a file of prompts
ENDING = ".jsonl"
TaskName = Literal["needle", "pairs", "file"]
REMEDY = 'A line is a sample: {"prompt": "...", "answer": "..."}, with "spans" where you mark some.'


@dataclass(frozen=True)
class Series:
    """The samples of a task that everything is measured on.

    `setting`: what a sample is, in words. `tasks` give one each in turn. `most`: how many samples there are,
    None without an end.
    """

    name: TaskName
    setting: str
    tasks: tuple[Task, ...]
    most: int | None = None

    def count(self, wanted: int | None, usual: int, seed: int = 0) -> int:
        """How many to take from number `seed` on: as `wanted`, else as `usual`, or all where there are fewer.

        Raises PromptError where more are wanted than there are.
        """
        there = usual if self.most is None else max(self.most - seed, 0)
        if self.most is not None and (wanted or 1) > there:
            raise PromptError(
                f"{wanted or 1} samples from number {seed} on are asked for; of {self.setting} there are "
                f"{self.most}, counted from 0. Ask for fewer, or for lower numbers"
            )
        return wanted or min(usual, there)

    def samples(self, tokenizer: Tokenizer, samples: int, seed: int) -> list[NeedleSample]:
        """`samples` from number `seed` on. Raises PromptError and TokenizerError as the task does."""
        return in_turn(tokenizer, self.tasks, samples, seed)


def task_name(task: str) -> TaskName:
    """What a task is called in a result: by its name, or as one from a file."""
    names: dict[str, TaskName] = {"needle": "needle", "pairs": "pairs"}
    return names.get(task, "file")


def series_of(task: str | WrittenTask, length: int) -> Series:
    """The samples of a task by its name or its file, prompts of `length` tokens where it has a length.

    Raises PromptError for a name that is no task's, and as `read_task` does.
    """
    if isinstance(task, str):
        if (name := task_name(task)) != "file":
            return _hidden(name, length)
        if not task.endswith(ENDING):
            raise PromptError(
                f"{task!r} is no task; expected needle, pairs, or a file of prompts (*{ENDING})"
            )
        task = read_task(Path(task))
    setting = f"prompts of {task.name} (sha256 {task.digest})"
    return Series("file", setting, (task,), len(task.samples))


def _hidden(name: Literal["needle", "pairs"], length: int) -> Series:
    tasks: Sequence[Task]
    if name == "needle":
        words = f"{NEEDLES} needles in {length} tokens, the asked one"
        tasks = [NeedleTask(NEEDLES, length, depth) for depth in DEPTHS]
    else:
        grid = PairsTask()
        words = f"{grid.n_names} names x {grid.n_cities} cities in {length} tokens, the asked sentence"
        tasks = [PairsTask(length=length, depth=depth) for depth in DEPTHS]
    return Series(name, f"{words} at {', '.join(map(str, DEPTHS))} % in turn", tuple(tasks))


def read_task(file: Path) -> WrittenTask:
    """The samples of a file. Raises FileError where it cannot be opened and ConfigError as `parse_task`."""
    return parse_task(door.read_bytes(file, LIMIT), file.name)


def read_divisible(file: Path) -> WrittenTask:
    """The same, of which a part can be held out. Raises ConfigError for a single sample as well."""
    task = read_task(file)
    if not task.n_trained:
        problem = f"{task.name} has one sample; give at least two, so that one can be held out"
        raise ConfigError([problem], "The task")
    return task


@lru_cache(maxsize=4)  # a page asks for it again and again
def written_task(lines: str) -> WrittenTask:
    """The samples of a file that stand in `lines`. Raises ConfigError as `parse_task` does."""
    return parse_task(lines.encode("utf-8", "surrogatepass"), "the file")


def parse_task(content: bytes, name: str) -> WrittenTask:
    """The samples in the content of the file `name`. Raises ConfigError listing what is wrong, by line."""
    samples = from_lines(WrittenSample, content, f"The task in {name}", REMEDY)
    return WrittenTask(name, hashlib.sha256(content).hexdigest()[:12], samples)

"""Commands killed at any time, on a full disk, and in a place that cannot be written to: `make faults`.

What stands under a file's own name afterwards is the old file or a whole new one, a refusal is one line, and
the same command then does what it does without a fault.
"""

import csv
import importlib
import io
import json
import multiprocessing
import os
import pkgutil
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors import safe_open

import mta_viz
from benchmarks.tables import replace_table
from mta_viz.cli import main
from tests.tiny_models import write_models

SEED, KILLS = 0, 5
FULL = 50  # bytes that a file may have, fewer than any answer has: a disk that is full soon
TASK = ("--task", "blocks", "--samples", "4")
COMMANDS: dict[str, tuple[str, ...]] = {
    "story": ("story", "tiny-mta", "--prompt", "a city and a number", "--out", "out/story.json", "--force"),
    "trace": ("trace", "tiny-mta", "--prompt", "a" * 60, "--out", "out/run.safetensors", "--force"),
    "needle": (*("needle", "tiny-mta", "--task", "pairs", "--needles", "1", "--lengths", "128"),
               *("--samples", "1", "--out", "out/needle.json")),
    "effects": ("effects", "tiny-blocks", *TASK, "--edit", "zero", "--out", "out/effects.json"),
    "report": ("report", "tiny-blocks", "--prompt", "abcde.fghij#ca", "--out", "out/report.html", "--force"),
    "paper-figures": (*("paper-figures", "tiny-mta", "--format", "html", "--which", "head-ratio"),
                      *("--out", "out/figures", "--force")),
    "convert": ("convert", "tiny-mta", "--to", "lingua", "--out", "out/lingua"),
    "insert": ("insert", "tiny-plain", "--layers", "0", "--out", "out/inserted.safetensors", "--force"),
    "finetune": (*("finetune", "tiny-plain", "--layers", "0", "--steps", "3", "--lengths", "256"),
                 *("--pairs", "2x2", "--batch-size", "1", "--evaluation-samples", "2", "--out", "out/tuned")),
    "questions": (*("questions", "tiny-mta", "--task", "qa1", "--length", "0", "--samples", "2"),
                  *("--out", "out/answers.csv", "--force")),
    "perplexity --last-word": (*("perplexity", "tiny-mta", "--last-word", "--prompt", "a city and a number"),
                               *("--csv", "out/words.csv", "--force")),
    "conjunction": ("conjunction", "tiny-blocks", "--samples", "4", "--out", "out/two.json", "--force"),
}  # fmt: skip


def run(
    name: str, root: Path, kill_after: float | None = None, n_bytes: int | None = None
) -> tuple[int, str]:
    """(status, stderr) of the command in `root`: killed after so many seconds, no file over `n_bytes`."""
    flags = ("--resume",) if (root / "out" / "tuned" / "training_state.pt").exists() else ()
    ours, its = os.pipe()  # for its words: the limit is one of files
    target = multiprocessing.get_context("fork").Process(
        target=_child, args=([*COMMANDS[name], *flags], root, its, n_bytes)
    )
    target.start()
    os.close(its)
    with open(ours, encoding="utf-8", errors="replace") as words, ThreadPoolExecutor(1) as reader:
        read = reader.submit(words.read)  # beside it: a full pipe would hold the command
        target.join(kill_after)
        target.kill()
        target.join()
        return target.exitcode or 0, read.result()


def _child(command: list[str], root: Path, words: int, n_bytes: int | None) -> None:
    os.chdir(root)
    sys.stdout, sys.stderr = io.StringIO(), open(words, "w", buffering=1)  # noqa: SIM115
    if n_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    os._exit(main(command))


def damaged(folder: Path) -> Iterator[str]:
    """What stands under its own name and cannot be read to its end."""
    for file in sorted(folder.rglob("[!.]*")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if not hidden and file.is_file() and file.suffix in CHECKS:
            try:
                CHECKS[file.suffix](file)
            except Exception as error:
                yield f"{file.name} is damaged: {error}"


def _html(file: Path) -> None:
    if not file.read_text("utf-8").rstrip().endswith("</html>"):
        raise ValueError("it has no end")


def _csv(file: Path) -> None:
    with file.open(encoding="utf-8", newline="") as opened:
        if len({len(row) for row in csv.reader(opened)}) != 1:
            raise ValueError("its rows are not of one length")


def _safetensors(file: Path) -> None:
    with safe_open(file, "pt") as opened:
        for name in list(opened.keys()):
            opened.get_tensor(name)


CHECKS: dict[str, Callable[[Path], object]] = {
    ".json": lambda file: json.loads(file.read_text("utf-8")),
    ".csv": _csv,
    ".html": _html,
    ".safetensors": _safetensors,
    ".pth": lambda file: torch.load(file, weights_only=True),
    ".pt": lambda file: torch.load(file, weights_only=True),
}


def kills(name: str, root: Path, seconds: float, numbers: random.Random) -> tuple[int, list[str]]:
    """(how many of `KILLS` kills met it at work, what was wrong): every other one in an empty folder."""
    problems, met = list[str](), 0
    for at in range(KILLS):
        if at % 2 == 0:
            _empty(root / "out")
        status, _ = run(name, root, kill_after=seconds * numbers.uniform(0.1, 1.0))
        met += status == -signal.SIGKILL
        problems += damaged(root / "out")
    return met, problems + _fails(name, root)


def _fails(name: str, root: Path) -> list[str]:
    status, words = run(name, root)
    if status == 2 and (
        "exists" in words or "already there" in words
    ):  # of a training that had nothing to go on from
        _empty(root / "out")
        status, words = run(name, root)
    return [] if status == 0 else [f"afterwards it fails: {words[-300:]}"]


def refusals(name: str, root: Path) -> list[str]:
    """What was wrong on a full disk, and with a file where the folder should be."""
    _empty(root / "out")
    problems = [*_one_line(*run(name, root, n_bytes=FULL)), *damaged(root / "out"), *_fails(name, root)]
    shutil.rmtree(root / "out")
    (root / "out").write_text("a file")
    problems += _one_line(*run(name, root))
    (root / "out").unlink()
    return problems


def _one_line(status: int, words: str) -> list[str]:
    said = [line for line in words.splitlines() if line.startswith("error:")]
    fine = status == 2 and len(said) == 1 and words.endswith(f"{said[0]}\n") and "Traceback" not in words
    return [] if fine else [f"status {status}: {words[-300:]}"]


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def try_all() -> int:
    """Try every command; returns how many failed."""
    for module in pkgutil.walk_packages(mta_viz.__path__, "mta_viz."):  # what no child need import then
        if not module.name.startswith(("mta_viz.ui", "mta_viz.__main__", "mta_viz.model.fused")):
            importlib.import_module(module.name)
    numbers, rows, failed = random.Random(SEED), [], 0
    with tempfile.TemporaryDirectory() as folder:
        root = write_models(Path(folder))
        for name in COMMANDS:
            _empty(root / "out")
            start = time.monotonic()
            problems = _fails(name, root)
            met, after_kills = kills(name, root, time.monotonic() - start, numbers)
            problems += after_kills + refusals(name, root)
            print(name, *problems, sep="\n", file=sys.stderr)
            failed += bool(problems)
            rows.append((f"`{name}`", KILLS, met, 2, len(problems)))
    replace_table(
        "faults",
        f"Killed at random times (seed {SEED}), then run again; a full disk; a file in the folder's place",
        ("command", "kills", "met it at work", "refusals", "failed"),
        rows,
    )
    return failed


if __name__ == "__main__":
    sys.exit(try_all())

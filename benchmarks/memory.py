"""Time and peak memory of `capture` beside keeping every stage of every layer, on the CPU.

    python -m benchmarks.memory CHECKPOINT [--tokens 512 1024 2048 4096]

Each case runs in a process of its own. Memory is the largest resident set seen during the run,
sampled every few milliseconds, above the one just before it (model loaded, one short run done).
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
LENGTHS = (512, 1024, 2048, 4096)
METHODS = ("capture", "all stages")
SAMPLE_SECONDS = 0.002
MIB = 2**20


class PeakMemory:
    """Context manager: `mib` is how far the resident set rose above its start, in MiB."""

    def __enter__(self) -> "PeakMemory":
        self._process, self._done = psutil.Process(), threading.Event()
        self._start = self._peak = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()
        self.mib = (self._peak - self._start) / MIB

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, self._process.memory_info().rss)


def measure(checkpoint: Path, method: str, n_tokens: int) -> dict[str, float]:
    """Seconds and MiB of one case in this process, in float32; ids are spread over the vocabulary."""
    import torch

    from mta_viz.model.stages import model_stages
    from mta_viz.run.tracing import capture, load, run_hooks

    model = load(checkpoint, dtype=torch.float32)
    stages = model_stages(model.config)
    names = [stage.hook_name(layer) for layer, present in enumerate(stages) for stage in present]
    run = {"capture": capture, "all stages": lambda model, ids: run_hooks(model, ids, names)}[method]
    ids = [(7 * position) % model.config.vocab_size for position in range(n_tokens)]
    run(model, ids[:16])
    with PeakMemory() as memory:
        start = time.perf_counter()
        kept = run(model, ids)
        seconds = time.perf_counter() - start
    del kept
    return {"seconds": seconds, "mib": memory.mib}


def measure_apart(checkpoint: Path, method: str, n_tokens: int) -> dict[str, float]:
    """`measure` in a new process."""
    case = [sys.executable, "-m", "benchmarks.memory", str(checkpoint.resolve()), "--case", method]
    answer = subprocess.run(
        [*case, "--tokens", str(n_tokens)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if answer.returncode:
        sys.exit(answer.stderr)
    return json.loads(answer.stdout)


def print_table(checkpoint: Path, lengths: list[int]) -> None:
    """One row per length: both methods, and capture as a share of the other."""
    print(f"{checkpoint.name}: capture | every stage of every layer kept | capture / kept")
    print(f"{'tokens':>7} | {'s':>7} {'MiB':>8} | {'s':>7} {'MiB':>8} | {'time':>6} {'memory':>6} | growth")
    last = None
    for n_tokens in lengths:
        ours, kept = (measure_apart(checkpoint, method, n_tokens) for method in METHODS)
        growth = f"{ours['mib'] / last:.2f}" if last else ""
        last = ours["mib"]
        print(
            f"{n_tokens:>7} | {ours['seconds']:7.2f} {ours['mib']:8.1f}"
            f" | {kept['seconds']:7.2f} {kept['mib']:8.1f}"
            f" | {ours['seconds'] / kept['seconds']:6.2f} {ours['mib'] / kept['mib']:6.3f} | {growth}",
            flush=True,
        )


def main() -> None:
    """Print the table, or with --case measure one case and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--case", choices=METHODS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.checkpoint, arguments.case, arguments.tokens[0])))
    else:
        print_table(arguments.checkpoint, arguments.tokens)


if __name__ == "__main__":
    main()

"""How many needle samples a second a sweep answers, beside calling `generate` for each sample.

    python -m benchmarks.needle_rate CHECKPOINT [--length 512] [--samples 8] [--device cuda]

`generate` makes as many tokens as the longest number has, and one more that must not be a digit.
The plain way, running prompt and answer anew for every token, stands beside both.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path


def print_rates(checkpoint: Path, length: int, samples: int, device: str) -> None:
    """One line a way: samples a second, and how many times the rate of `generate`."""
    import torch

    from mta_viz.analysis.labs.sweep import Sweep, run_sweep
    from mta_viz.run.tracing import generate, load, score

    model = load(checkpoint, device=device, dtype=torch.float32)
    sweep = Sweep((4,), (length,), (50,), samples)
    made = [sweep.task(setting).sample(model.tokenizer, seed) for setting, seed in sweep.keys]
    new = max(len(sample.answer_ids) for sample in made) + 1

    def anew() -> None:
        for sample in made:
            ids = list(sample.tokens.ids)
            for _ in range(new):
                ids.append(int(score(model, torch.tensor([ids]))[0, -1].argmax()))

    ways = {
        "a sweep": lambda: run_sweep(model, sweep),
        "generate": lambda: [generate(model, sample.tokens, new) for sample in made],
        "every token anew": anew,
    }
    for way in ways.values():  # once unmeasured: the first calls of a process are slow
        way()
    seconds = {name: _seconds(way) for name, way in ways.items()}
    for name, spent in seconds.items():
        print(
            f"{checkpoint.name}, {length} tokens, {device}, {name}: {samples / spent:.2f} samples a second, "
            f"{seconds['generate'] / spent:.2f} x generate",
            flush=True,
        )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    print_rates(arguments.checkpoint, arguments.length, arguments.samples, arguments.device)


if __name__ == "__main__":
    main()

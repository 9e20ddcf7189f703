"""The time the app says a prompt will take, beside the time it takes, on the CPU.

    python -m benchmarks.estimate CHECKPOINT [--tokens 512 2048]

The estimate comes first, as in the app: it must not profit from the run it foretells.
"""

import argparse
import time
from pathlib import Path

LENGTHS = (512, 2048)


def print_ratios(checkpoint: Path, lengths: list[int]) -> None:
    """One line per length: estimated and measured seconds of a capture in float32, and their ratio."""
    import torch

    from mta_viz.run.tracing import capture, estimate_seconds, load

    model = load(checkpoint, dtype=torch.float32)
    for n_tokens in lengths:
        estimate = estimate_seconds(model, n_tokens)
        ids = [(7 * position) % model.config.vocab_size for position in range(n_tokens)]
        start = time.perf_counter()
        capture(model, ids)
        measured = time.perf_counter() - start
        print(
            f"{checkpoint.name}, {n_tokens} tokens: estimated {estimate:.2f} s, measured {measured:.2f} s,"
            f" ratio {estimate / measured:.2f}",
            flush=True,
        )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(LENGTHS))
    arguments = parser.parse_args()
    print_ratios(arguments.checkpoint, arguments.tokens)


if __name__ == "__main__":
    main()

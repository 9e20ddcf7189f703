"""What handing out work on Ray costs: tiny tasks through `run.jobs`, as if there were many workers.

    python -m benchmarks.scheduler [--tasks 10000] [--workers 2,100,1000]

Two worker processes on this machine stand for all of them: each has so many tasks at a time that as many are
out as that many workers would have. Only the driver's side is measured that way, which is what a cluster
of that size shares. Needs Ray (pip install -e '.[ray]').
"""

import argparse
import os
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mta_viz.cli.values import number_list

CHECKPOINT = Path(__file__).parents[1] / "assets" / "needle-mta"
PROCESSES = 2


@dataclass
class Nothing:
    """A task that answers with what it got."""

    model: Any

    def __call__(self, item: int) -> int:
        """The item."""
        return item


def print_costs(n_tasks: int, workers: tuple[int, ...]) -> None:
    """One line a number of workers: milliseconds of the driver a task, and workers it can keep busy."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    from mta_viz.run import jobs
    from mta_viz.run.tracing import load

    model = load(CHECKPOINT)
    size = len(pickle.dumps(model))
    ray.init("local", num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False)
    started = time.perf_counter()
    actors, shared = jobs.started(ray, Nothing(model), PROCESSES)
    list(jobs.mapped(ray, actors, shared, range(PROCESSES)))
    spent = time.perf_counter() - started
    print(
        f"{CHECKPOINT.name}: {size / 2**20:.1f} MiB as an object; {PROCESSES} workers begun in {spent:.1f} s"
    )
    for n in workers:
        started = time.perf_counter()
        slots = actors * (n // PROCESSES)
        answers = sorted(jobs.mapped(ray, slots, shared, range(n_tasks)))
        spent = (time.perf_counter() - started) / n_tasks
        assert answers == [(at, at) for at in range(n_tasks)]
        print(
            f"{n_tasks:,} tasks, {n:,} out at a time: {1000 * spent:.2f} ms a task; "
            f"{n:,} workers stay busy with tasks of {n * spent:.1f} s or more",
            flush=True,
        )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=number_list, default=(2, 100, 1000))
    arguments = parser.parse_args()
    print_costs(arguments.tasks, arguments.workers)


if __name__ == "__main__":
    main()

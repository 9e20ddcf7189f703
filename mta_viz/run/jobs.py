"""One function over many independent work items: in this process, or on Ray with a worker a device.

The items, so their batches, are the caller's, and workers take its number of threads: a result has the same
last digit wherever it was computed, and however often it was begun. Ray is an extra (`pip install
'mta-viz[ray]'`). Owns what happens when a worker is lost; results are kept by the caller.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch

from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.devices import all_threads
from mta_viz.run.tracing import Progress, ignore, progress_within

LOCAL = "ray"  # the cluster of this machine, started where there is none
TRIES = 2  # more for an item whose worker was lost; one that ends every worker must end


class Work(Protocol):
    """What is done with an item: the result depends on the item alone. It can be pickled."""

    @property
    def device(self) -> torch.device:
        """Where items are computed."""

    def to(self, device: str, /) -> None:
        """Compute there from now on."""

    def __call__(self, item: Any, /) -> Any:
        """The item's result."""


class OfModel:
    """The part of `Work` that knows where its model is."""

    model: HookedMTA

    @property
    def device(self) -> torch.device:
        """The model's."""
        return self.model.device

    def to(self, device: str, /) -> None:
        """Move the model."""
        self.model.to(device)


class Divided(Work, Protocol):
    """Work whose items take a while: it says how far it is with one, and ends by what that raises."""

    def __call__(self, item: Any, progress: Progress = ..., /) -> Any:
        """The item's result."""


Spread = Callable[[Iterable[Any]], Iterator[tuple[int, Any]]]


@contextmanager
def workers(work: Work, on: str | None = None, most: int | None = None) -> Iterator[Spread]:
    """Gives what maps items to (place of the item, its result), as they are ready.

    Here in order, or `on` Ray ("ray", "ray://HOST:PORT") on at most `most` workers: each has a copy of the
    work, on a device of its own of the same kind; `work` itself is moved to the CPU for good. An
    item whose worker is lost is run again. What an item raises ends all of it. Raises MtaVizError without
    Ray, without a device for a worker, and for an item that no worker survives.
    """
    if on is None:
        yield lambda items: ((at, work(item)) for at, item in enumerate(items))
        return
    ray = _ray()
    if not ray.is_initialized():
        _join(ray, on)
    actors, shared = started(ray, work, most)
    try:
        yield partial(mapped, ray, actors, shared)
    finally:
        for actor in actors:
            ray.kill(actor)  # Ray itself ends with this process: the next checkpoint has it at once


def spread(work: Work, items: Sequence[Any], on: str | None = None) -> Iterator[tuple[int, Any]]:
    """All items of a job that has no other, as `workers` maps them."""
    with workers(work, on if items else None, len(items)) as run:
        yield from run(items)


def gathered(
    work: Divided,
    items: Sequence[Any],
    on: str | None = None,
    *,
    kept: MutableMapping[int, Any] | None = None,
    progress: Progress = ignore,
) -> Iterator[list[Any]]:
    """The results so far, in the order of `items`, whenever there is one more.

    `kept` gets each by its item's place, and what it holds already is not computed again. `progress` gets
    the share of all items done; here also of the one at work, on Ray of whole ones alone.
    """
    kept = {} if kept is None else kept
    missing, n = [at for at in range(len(items)) if at not in kept], len(items)
    if len(missing) < n:
        yield [kept[at] for at in sorted(kept)]

    def computed() -> Iterator[tuple[int, Any]]:
        if on is None:
            for at in missing:
                yield at, work(items[at], progress_within(progress, len(kept) / n, 1 / n))
            return
        for place, result in spread(work, [items[at] for at in missing], on):
            yield missing[place], result

    for at, result in computed():
        kept[at] = result
        yield [kept[place] for place in sorted(kept)]
        progress(len(kept) / n)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
    try:
        import ray
    except ImportError:
        raise MtaVizError(
            "Ray is not installed, and --on needs it: pip install 'mta-viz[ray]', or leave --on out"
        ) from None
    return ray


def _join(ray: Any, on: str) -> None:
    """Connect to the cluster; stdout is the answer's, so nothing of the workers is printed."""
    try:
        ray.init(None if on == LOCAL else on, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
        raise MtaVizError(
            f"no Ray cluster answers at {on} ({error}); look there with: ray status. One with a token wants "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here"
        ) from error


def started(ray: Any, work: Work, most: int | None) -> tuple[list[Any], Any]:
    """A worker for each place of the cluster, and what holds the work for them."""
    gpu, threads = work.device.type == "cuda", all_threads()
    work.to("cpu")
    if gpu:
        torch.cuda.empty_cache()  # a worker may be on the same device
    device, needed = ("cuda", {"CPU": 1, "GPU": 1}) if gpu else ("cpu", {"CPU": threads})
    options = {"num_cpus": needed["CPU"], "num_gpus": int(gpu), "max_restarts": -1}
    actor = ray.remote(max_task_retries=TRIES, **options)(Worker)
    shared = ray.put(work)  # once a machine, however many workers it has
    n_workers = min(_places(ray, needed), most or sys.maxsize)
    return [actor.remote(device, threads) for _ in range(n_workers)], shared


def mapped(ray: Any, actors: list[Any], shared: Any, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """(place of the item, its result), as they are ready; a worker that stands twice has two at a time."""
    from ray.util import ActorPool

    pool = ActorPool(actors)
    try:
        run = lambda worker, pair: worker.run.remote([shared], *pair)  # noqa: E731
        pairs: Any = enumerate(items)  # Ray says a list, and walks along it once
        yield from pool.map_unordered(run, pairs)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MtaVizError):
            raise error.cause from None
        raise MtaVizError(f"a worker failed: {type(error.cause).__name__}: {error.cause}") from error
    except ray.exceptions.RayActorError as error:
        raise MtaVizError(
            f"an item's workers ended {TRIES + 1} times, perhaps for want of memory; what is done is kept, "
            f"and the same command goes on ({error})"
        ) from error


def _places(ray: Any, needed: dict[str, int]) -> int:
    """How many workers the cluster has room for. Raises MtaVizError for none."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(int(min(node.get(kind, 0) // n for kind, n in needed.items())) for node in nodes)
    if not places:
        words = " and ".join(f"{n} {kind}" for kind, n in needed.items())
        raise MtaVizError(
            f"a worker needs {words}, and no machine of the Ray cluster has that; compute on cpu, or with "
            "fewer threads (OMP_NUM_THREADS)"
        )
    return places


class Worker:
    """Runs items in a process of its own."""

    def __init__(self, device: str, threads: int) -> None:
        torch.set_num_threads(threads)
        all_threads.cache_clear()  # the job's, not this process's own
        all_threads()
        self.device = device
        self.work: Work | None = None

    def run(self, shared: list[Any], at: int, item: Any) -> tuple[int, Any]:
        """The item's place and its result; `shared` refers to the work, which is fetched once."""
        if self.work is None:
            import ray

            self.work = ray.get(shared)[0]
            self.work.to(self.device)
        return at, self.work(item)

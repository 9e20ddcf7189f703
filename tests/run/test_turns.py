"""A model's lock: long runs give way, hooks meet nobody, who waits hears it and can be stopped."""

import copy
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch

from mta_viz.errors import Cancelled
from mta_viz.model import turns
from mta_viz.model.attention import Attention
from mta_viz.model.transformer import HookedMTA
from mta_viz.model.turns import TurnLock, heard_by, pause
from mta_viz.run.scoring import self_check
from mta_viz.run.tracing import capture, generate, run_hooks
from tests.tiny_models import TWO_HEADS, random_weights

PROMPT = [1, 5, 2, 7, 3, 10, 0, 4]
SOON = 20.0  # seconds after which a test gives up


def begun(do: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()


def waiting(lock: TurnLock, do: Callable[[], object]) -> threading.Thread:
    """A thread that waits for the lock, which somebody holds, and then does something with it."""
    heard = threading.Event()

    def wait() -> None:
        with heard_by(lambda n: n and heard.set()), lock:
            do()

    thread = begun(wait)
    assert heard.wait(SOON)
    return thread


def test_a_long_run_lets_all_of_a_short_one_go_first(monkeypatch):
    monkeypatch.setattr(turns, "QUANTUM", 0.0)
    lock, log = TurnLock(), list[str]()
    holding, asked = threading.Event(), threading.Event()

    def long() -> None:
        with lock.in_turns():
            holding.set()
            assert asked.wait(SOON)
            for _ in range(5):
                log.append("slab")
                pause()

    def short() -> None:
        asked.set()
        for _ in range(10):
            with lock:
                log.append("short")

    thread = begun(long)
    assert holding.wait(SOON)
    waits = waiting(lock, lambda: log.append("first"))
    ended(begun(short), waits, thread)
    assert log.index("first") == 1 and log[-1] == "slab" and log.count("short") == 10


@pytest.mark.parametrize("within", ["nothing", "turns", "another model"])
def test_who_holds_it_alone_never_gives_way(monkeypatch, within):
    """Nor in turns within another hold, where hooks may be on."""
    monkeypatch.setattr(turns, "QUANTUM", 0.0)
    lock, log = TurnLock(), list[str]()
    holds = {
        "nothing": [lock],
        "turns": [lock.in_turns(), lock],
        "another model": [TurnLock(), lock.in_turns()],
    }
    with ExitStack() as stack:
        for hold in holds[within]:
            stack.enter_context(hold)
        thread = waiting(lock, lambda: log.append("other"))
        pause()
        log.append("own")
    ended(thread)
    assert log == ["own", "other"]


def test_they_come_in_their_order_and_hear_how_many_are_before_them():
    lock, log, heard = TurnLock(), list[int](), [set[int](), set[int]()]

    def wait(at: int) -> None:
        with heard_by(heard[at].add), lock:
            log.append(at)

    with lock:
        first = begun(lambda: wait(0))
        while not heard[0]:
            time.sleep(0.01)
        second = begun(lambda: wait(1))
        while not heard[1]:
            time.sleep(0.01)
    ended(first, second)
    assert log == [0, 1] and 1 in heard[0] and 2 in heard[1]


@pytest.mark.parametrize("paused", [False, True])
def test_who_waits_can_be_stopped_and_leaves_nothing_behind(monkeypatch, paused):
    """Also a run that gave way: the lock it does not hold at that moment is another's."""
    monkeypatch.setattr(turns, "QUANTUM", 0.0)
    lock, stopped, errors = TurnLock(), threading.Event(), list[Exception]()
    holding, go = threading.Event(), threading.Event()

    def hear(n_before: int) -> None:
        if stopped.is_set():
            raise Cancelled("stopped")

    def run() -> None:
        try:
            with heard_by(hear), lock.in_turns():
                holding.set()
                assert go.wait(SOON)
                pause()
        except Cancelled as error:
            errors.append(error)

    if paused:
        thread = begun(run)
        assert holding.wait(SOON)
        other = waiting(lock, lambda: (stopped.set(), ended(thread)))
        go.set()
        ended(other)
    else:
        with lock:
            thread = begun(run)
            stopped.set()
            ended(thread)
    assert len(errors) == 1
    ended(begun(lambda: lock.acquire(timeout=0.0) or errors.append(ValueError("held"))))
    assert len(errors) == 1


def test_it_is_reentrant_and_only_its_holder_lets_go():
    lock, other = TurnLock(), list[bool]()
    with lock, lock:
        pass
    with lock:
        ended(begun(lambda: other.append(lock.acquire(timeout=0.05))))
    ended(begun(lambda: other.append(lock.acquire(blocking=False) and lock.release() is None)))
    assert other == [False, True]
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()


def test_a_copied_model_has_a_lock_of_its_own():
    lock = TurnLock()
    with lock:
        for other in (copy.deepcopy(lock), pickle.loads(pickle.dumps(lock))):
            assert other is not lock
            ended(begun(lambda other=other: other.acquire() and other.release()))


def test_runs_that_give_way_all_the_time_are_the_same_as_alone(monkeypatch):
    """Captures, checks, continuations and hooked runs of several threads at once, a row or two a turn."""
    monkeypatch.setattr(turns, "QUANTUM", 0.0)
    monkeypatch.setattr(turns, "GRACE", 0.001)
    monkeypatch.setattr(Attention, "slab_rows", lambda *_: 2)
    model, hook = HookedMTA(TWO_HEADS).requires_grad_(False), "blocks.0.attn.hook_pattern"
    model.load_state_dict(random_weights(model.config))
    runs = (
        lambda: capture(model, PROMPT).residuals,
        lambda: torch.tensor(generate(model, PROMPT, 4)),
        lambda: run_hooks(model, PROMPT, [hook])[hook],
        lambda: torch.tensor(self_check(capture(model, PROMPT)).residual_error),
    )
    alone, wrong = [run() for run in runs], list[int]()

    def repeat(at: int) -> None:
        for _ in range(2):
            wrong.extend([at] * (not torch.equal(runs[at](), alone[at])))

    ended(*(begun(lambda at=at: repeat(at)) for at in (0, 1, 2, 3, 2)))
    assert wrong == [] and not any(point._forward_hooks for point in model.hook_dict.values())

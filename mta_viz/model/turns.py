"""A model's lock: who may run it, in which order, and when a long run lets others go first.

What it protects: hooks are state on a model's modules, and whatever runs through a module while a hook is on
it fires it. Whoever runs a part of a model holds its lock. Who sets hooks holds it alone, `with model.lock:`,
from before they are set until they are gone. A run without hooks of its own holds it
`with model.lock.in_turns():` and gives way at `pause()`, which the model calls after each slab of rows and
each half of a layer: hooks of others come and go meanwhile, and none is left when it goes on. An edited model
is another module with a lock of its own; tensors, which they share, are never written to.

Who comes anew goes before runs that gave way, these in their order: a short run beside a long one waits for a
slab. A run that gave way waits a moment for more of who came anew, since a page asks for many small things
one after another, but not longer than `PATIENCE`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

QUANTUM = 0.2  # seconds a run goes on before it gives way
GRACE = 0.03  # seconds after a short hold in which the same reader may ask again
PATIENCE = 2.0  # seconds that a run which gave way lets newer ones go first
TICK = 0.1  # seconds between two looks at whether who waits was stopped
Listener = Callable[[int], None]


@dataclass(eq=False)
class _Hold:
    """A thread's hold of a lock, or its place in the queue for it; `began` is its last turn's or wait's."""

    in_turns: Callable[[], object] | None = None  # what to do at the begin of each turn; None: it holds alone
    paused: bool = False
    lost: bool = False  # it was stopped while it gave way
    began: float = 0.0


class _Thread(threading.local):
    """What a thread holds, outermost first, and who hears of its waiting."""

    def __init__(self) -> None:
        self.holds: list[tuple[TurnLock, _Hold]] = []
        self.listener: Listener | None = None


_thread = _Thread()


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """In this thread, tell `listener` how many are before it while it waits for a model, and 0 at each pause.

    What it raises ends the waiting or the run.
    """
    before, _thread.listener = _thread.listener, listener
    try:
        yield
    finally:
        _thread.listener = before


def tell(n_before: int) -> None:
    """Tell this thread's listener; for whoever waits for something else than a lock."""
    if _thread.listener is not None:
        _thread.listener(n_before)


def pause() -> None:
    """Let others go first, where this thread runs a model in turns and has run it for a while."""
    tell(0)
    if len(_thread.holds) == 1:  # within another hold hooks may be on
        lock, hold = _thread.holds[0]
        if hold.in_turns is not None:
            lock._give_way(hold)


class TurnLock:
    """A lock a thread may take several times; who waits comes in order. A copy is a lock of its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: int | None = None
        self._depth = 0
        self._new: list[_Hold] = []
        self._paused: list[_Hold] = []
        self._freed = 0.0  # when one that never gave way let go of it

    def __reduce__(self) -> Any:
        return TurnLock, ()

    def acquire(self, blocking: bool = True, timeout: float | int = -1) -> bool:
        """Hold it alone; False where that took longer than `timeout` seconds."""
        return self._acquire(_Hold(), float(timeout) if blocking else 0.0)

    def release(self) -> None:
        """Let go of it once. Raises RuntimeError in a thread that does not hold it."""
        if self._holder != threading.get_ident():
            raise RuntimeError("this thread does not hold the model's lock")
        hold = self._pop()
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._let_go(hold)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    @contextmanager
    def in_turns(self, begin: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Hold it for a run without hooks, which gives way at `pause()`; `begin()` starts each turn."""
        hold = _Hold(begin)
        self._acquire(hold)
        try:
            begin()
            yield
        finally:
            if hold.lost:
                self._pop()
            else:
                self.release()

    def _acquire(self, hold: _Hold, timeout: float = -1.0) -> bool:
        if self._holder == threading.get_ident():
            self._depth += 1
        elif not self._wait(hold, self._new, timeout):
            return False
        _thread.holds.append((self, hold))
        return True

    def _pop(self) -> _Hold:
        """This thread's innermost hold of this lock, which ends."""
        at = max(index for index, (lock, _) in enumerate(_thread.holds) if lock is self)
        return _thread.holds.pop(at)[1]

    def _wait(self, hold: _Hold, queue: list[_Hold], timeout: float = -1.0) -> bool:
        hold.began = start = time.monotonic()
        with self._changed:
            queue.append(hold)
            try:
                while not self._may_go(hold):
                    if 0 <= timeout <= time.monotonic() - start:
                        return False
                    self._changed.wait(GRACE if hold.paused else TICK)
                    tell(0 if hold.paused else queue.index(hold) + 1)
                tell(0)
                self._holder, self._depth, hold.began = threading.get_ident(), 1, time.monotonic()
                return True
            finally:
                queue.remove(hold)
                self._changed.notify_all()

    def _may_go(self, hold: _Hold) -> bool:
        if self._holder is not None:
            return False
        now = time.monotonic()
        if self._paused and (now - self._paused[0].began > PATIENCE or not self._new):
            patient = now - self._paused[0].began <= PATIENCE and now - self._freed < GRACE
            return hold is self._paused[0] and not patient
        return hold is self._new[0]

    def _give_way(self, hold: _Hold) -> None:
        if time.monotonic() - hold.began < QUANTUM or not (self._new or self._paused):
            return
        with self._changed:
            hold.paused = hold.lost = True
            self._let_go(hold)
        self._wait(hold, self._paused)
        hold.lost = False
        if hold.in_turns is not None:
            hold.in_turns()

    def _let_go(self, hold: _Hold) -> None:
        self._holder = None
        if not hold.paused:
            self._freed = time.monotonic()
        self._changed.notify_all()

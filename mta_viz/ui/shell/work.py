"""Work beside the page: the one controller of everything that takes long.

A `Work` is one thread: it says what it does, how far it is and how long it still takes, and can be stopped.
A session has one work for each name; starting another stops it. Each has an owner, "page" or "model": leaving
the page stops what the page owns, another model or an opened session stops everything.
"""

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from typing import Any, Literal

import streamlit as st

from mta_viz.errors import Cancelled
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import BoundedStore, stores
from mta_viz.ui.shell.widgets import Window, plain

QUIET_SECONDS = 0.4  # work shorter than this shows no progress bar
Owner = Literal["page", "model"]


class Work:
    """Something done in a thread: `do(work)` reports through `work.report` and may raise."""

    def __init__(self, do: Callable[["Work"], Any], key: Hashable = None, owner: Owner = "page") -> None:
        self.key, self.owner = key, owner
        self.stage, self.fraction = "Starting", 0.0
        self.error: Exception | None = None
        self._expected: float | None = None
        self._started, self._stopped, self._done = time.monotonic(), threading.Event(), threading.Event()
        threading.Thread(target=self._run, args=(do,), daemon=True).start()

    def _run(self, do: Callable[["Work"], Any]) -> None:
        try:
            do(self)
        except Exception as error:  # handed to the page, which owns how it is said
            self.error = error
        finally:
            self._done.set()

    def begin(self, stage: str, expected: float | None = None) -> None:
        """Name what happens from now on, for `expected` seconds if that is known; the clock starts again."""
        self.report(0.0)
        self.stage, self._started, self._expected = stage, time.monotonic(), expected

    def report(self, fraction: float) -> None:
        """Progress 0..1 of the current stage. Raises Cancelled after `stop`."""
        if self._stopped.is_set():
            raise Cancelled("stopped")
        self.fraction = min(max(fraction, 0.0), 1.0)

    def stop(self) -> None:
        """Ask it to stop at its next report."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the work is done, at most so long; whether it is."""
        return self._done.wait(seconds)

    @property
    def running(self) -> bool:
        """Whether it is not through yet."""
        return not self._done.is_set()

    @property
    def stopped(self) -> bool:
        """Whether it ended because it was stopped."""
        return isinstance(self.error, Cancelled)

    @property
    def failure(self) -> Exception | None:
        """What went wrong, if anything did; to be stopped is no failure."""
        return None if self.stopped else self.error

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the progress so far, else from what was expected; None without either."""
        spent = time.monotonic() - self._started
        if self.fraction < 0.02 or spent < 1.0:
            return None if self._expected is None else max(self._expected - spent, 0.0)
        return spent * (1.0 - self.fraction) / self.fraction


class _Desk(dict[str, Work]):
    """This session's work by name."""


def start(name: str, key: Hashable, do: Callable[[Work], Any], owner: Owner = "page") -> Work:
    """New work of this name, also where work for `key` was stopped; what it did before is stopped."""
    forget(name)
    work = state.part(_Desk)[name] = Work(do, key, owner)
    return work


def current(name: str, key: Hashable) -> Work | None:
    """This session's work of this name, running or through, if it is for `key`."""
    work = state.part(_Desk).get(name)
    return work if work is not None and work.key == key else None


def running(name: str, key: Hashable) -> Work | None:
    """The same, only while it runs."""
    work = current(name, key)
    return work if work is not None and work.running else None


def forget(name: str) -> None:
    """Stop the work of this name; `finished` starts anew."""
    work = state.part(_Desk).pop(name, None)
    if work is not None:
        work.stop()


def stop_all(*owners: Owner) -> None:
    """Stop everything of these owners: nobody will look at what it finds."""
    for name in [name for name, work in state.part(_Desk).items() if work.owner in owners]:
        forget(name)


def finished(
    name: str, key: Hashable, do: Callable[[Work], Any], store: BoundedStore | None = None
) -> Any | None:
    """What `do(work)` gives for `key`, kept in `store` or with the figures, or raises; None after Stop."""
    kept, place = (
        store or stores().drawn,
        st.empty(),
    )  # there every time, so that what follows stays in its place
    result = kept.get(key)
    if result is not None:
        return result
    work = current(name, key)
    if work is None or (not work.running and work.error is None):  # or its result went for newer ones
        work = start(name, key, lambda work: kept.get_or_make(key, lambda: do(work)))
    show_until_done(name, work, place)
    if work.stopped:
        st.info("Stopped. Run it again, or choose something smaller.")
        return None
    if work.error is not None:
        raise work.error
    return kept.get(key)


def show_until_done(name: str, work: Work, place: Any, button: Any = None) -> None:
    """Progress in `place`, and Stop (in the place `button`, if given), of work that takes a while."""
    if work.wait(QUIET_SECONDS):
        return
    with place.container():
        with button or nullcontext():
            draw_stop(name, work, width="content" if button is None else "stretch")
        bar = st.empty()
        while not work.wait(0.1):
            bar.progress(work.fraction, text=progress_text(work))
    place.empty()


def draw_stop(name: str, work: Work, **look: Any) -> None:
    """The one button that stops work."""
    st.button("Stop", key=f"stop.{name}", icon=":material/stop:", on_click=work.stop, **look)


def watch(work: Work) -> None:
    """The bar of work that runs, drawn in a fragment; when it is through the page is drawn anew.

    That would close a window over the page, so that it waits until a visitor has closed it.
    """
    if not work.running and not state.part(Window).open:
        st.rerun()
    st.progress(work.fraction, text=progress_text(work))


def progress_text(work: Work) -> str:
    """What it does now and about how long it still takes, as markdown."""
    left = work.seconds_left
    return plain(work.stage if left is None else f"{work.stage}: about {time_text(left)} left")


def time_text(seconds: float) -> str:
    """`40 s`, `4 min`, `3.5 hours`."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.2g} hours"

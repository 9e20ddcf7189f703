"""Work beside the page: the one controller of everything that takes long; and who looks at the page.

A `Work` is one thread: it says what it does, how far it is and how long it still takes, and can be stopped,
also while it waits for a model that others run. A session has one work for each name; starting another stops
it. Each has an owner: leaving the page stops what the "page" owns, another model or an opened session what
the "model" owns too, and both end soon after the connection is lost. A "job" (sweep, report) goes on until it
is stopped, also without its reader; there are only so many of them.

A reader is a session, or the person signed in.
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.model import turns
from mta_viz.printed import Pace, time_text
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import BoundedStore, stores
from mta_viz.ui.shell.widgets import Window, plain


@dataclass(frozen=True)
class Reader:
    """A session of a browser's tab; `name` is the address of who is signed in, with which tabs are theirs."""

    session: str = ""
    name: str = ""

    def owns(self, other: "Reader") -> bool:
        """Whether what belongs to `other` is this reader's."""
        return self.session == other.session or bool(self.name and self.name == other.name)


def current_reader() -> Reader:
    """Of the page this is called from; outside of pages nobody."""
    context = get_script_run_ctx(suppress_warning=True)
    if context is None:
        return Reader()
    return Reader(context.session_id, str(st.user.get("email") or ""))


def is_here(reader: Reader) -> bool:
    """Whether its tab is connected; True where no server says."""
    if not reader.session or not runtime.exists():
        return True
    return bool(runtime.get_instance().is_active_session(reader.session))


QUIET_SECONDS = 0.4  # work shorter than this shows no progress bar
Owner = Literal["page", "model", "job"]
MOST_OWN, MOST_JOBS = 3, 12  # jobs at a time, of a reader and of all
LOOK_SECONDS, LOST_SECONDS = 1.0, 4.0  # between looks at the connection; for how long it may be gone


class Work:
    """Something done in a thread: `do(work)` reports through `work.report` and may raise."""

    def __init__(self, do: Callable[["Work"], Any], key: Hashable = None, owner: Owner = "page") -> None:
        self.key, self.owner, self.reader = key, owner, current_reader()
        self.stage, self.fraction, self.n_before, self.since = "Starting", 0.0, 0, time.time()
        self._looked = time.monotonic()
        self._gone_since: float | None = None
        self.error: Exception | None = None
        self._result: Any = None
        self._expected: float | None = None
        self._pace = Pace()
        self._started, self._stopped, self._done = time.monotonic(), threading.Event(), threading.Event()
        _at_work.append(self)
        threading.Thread(target=self._run, args=(do,), daemon=True).start()

    def _run(self, do: Callable[["Work"], Any]) -> None:
        try:
            with turns.heard_by(self.wait_for):
                self._result = do(self)
        except Exception as error:  # handed to the page, which owns how it is said
            self.error = error
        finally:
            _at_work.remove(self)
            self._done.set()

    def begin(self, stage: str, expected: float | None = None) -> None:
        """Name what happens from now on, for `expected` seconds if that is known; the clock starts again."""
        self.report(0.0)
        self.stage, self._started, self._expected, self._pace = stage, time.monotonic(), expected, Pace()

    def report(self, fraction: float) -> None:
        """Progress 0..1 of the current stage. Raises Cancelled after `stop`."""
        self.wait_for(0)
        self.fraction = min(max(fraction, 0.0), 1.0)
        self._pace.tell(self.fraction)

    def wait_for(self, n_before: int) -> None:
        """How many runs of the model are before it. Raises Cancelled after `stop`, or without its reader."""
        self.n_before = n_before
        now = time.monotonic()
        if self.owner != "job" and now - self._looked > LOOK_SECONDS:
            self._looked = now
            if is_here(self.reader):
                self._gone_since = None
            elif self._gone_since is None:  # from this look on: the work may have been silent for long
                self._gone_since = now
            elif now - self._gone_since > LOST_SECONDS:
                self.stop()
        if self._stopped.is_set():
            raise Cancelled("stopped")

    def stop(self) -> None:
        """Ask it to stop at its next report."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the work is done, at most so long; whether it is."""
        return self._done.wait(seconds)

    def take(self) -> Any:
        """What it gave, once: the store that keeps it may have let it go for others' by now."""
        result, self._result = self._result, None
        return result

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
        left = self._pace.seconds_left
        if left is None and self._expected is not None:
            left = max(self._expected - (time.monotonic() - self._started), 0.0)
        return left


_at_work: list[Work] = []  # of all sessions, the oldest first


def at_work() -> list[Work]:
    """What runs now, of all sessions, the oldest first."""
    return list(_at_work)


class _Desk(dict[str, Work]):
    """This session's work by name."""


def start(name: str, key: Hashable, do: Callable[[Work], Any], owner: Owner = "page") -> Work:
    """New work of this name, also where work for `key` was stopped; what it did before is stopped.

    Where there are too many jobs the work is to say so.
    """
    forget(name)
    if owner == "job" and (problem := _too_many()):
        do = partial(_refuse, problem)
    work = state.part(_Desk)[name] = Work(do, key, owner)
    return work


def _too_many() -> str:
    jobs = [work for work in at_work() if work.owner == "job"]
    own = sum(map(current_reader().owns, [job.reader for job in jobs]))
    if own < MOST_OWN and len(jobs) < MOST_JOBS:
        return ""
    return (
        f"{own} jobs of yours and {len(jobs)} in all are running already; at most {MOST_OWN} and {MOST_JOBS} "
        "can. Wait for one, or stop one under What runs at the left"
    )


def _refuse(problem: str, work: Work) -> None:
    raise MtaVizError(problem)


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


def begun(name: str, key: Hashable, do: Callable[[Work], Any], owner: Owner = "page") -> Work:
    """The work of this name for `key`: what runs, was stopped or failed, else new work."""
    work = current(name, key)
    if work is None or (not work.running and work.error is None):  # or its result went for newer ones
        work = start(name, key, do, owner)
    return work


def let_go(name: str, key: Hashable) -> None:
    """Forget what the work of this name gave for `key`: a store has it, which is bounded."""
    if (work := current(name, key)) is not None:
        work.take()


def taken(work: Work, key: Hashable, store: BoundedStore) -> Any | None:
    """What it gave; from `store` where a run of the page took it that was cut short by this one."""
    result = work.take()
    return store.get(key) if result is None else result


def stop_all(*owners: Owner) -> None:
    """Stop everything of these owners: nobody will look at what it finds."""
    for name in [name for name, work in state.part(_Desk).items() if work.owner in owners]:
        forget(name)


def finished(
    name: str, key: Hashable, do: Callable[[Work], Any], store: BoundedStore | None = None
) -> Any | None:
    """What `do(work)` gives for `key`, kept in `store` or with the figures, or raises; None after Stop."""
    kept, place = store or stores().drawn, st.empty()  # there every time: what follows stays in its place
    result = kept.get(key)
    if result is not None:
        let_go(name, key)
        return result
    work = begun(name, key, lambda work: kept.get_or_make(key, lambda: do(work)))
    show_until_done(name, work, place)
    if work.stopped:
        st.info("Stopped. Run it again, or choose something smaller.")
        return None
    if work.error is not None:
        raise work.error
    return taken(work, key, kept)


def show_until_done(name: str, work: Work, place: Any) -> None:
    """Progress and Stop of work that takes a while, in `place`; seen over the page, which does not move."""
    if work.wait(QUIET_SECONDS):
        return
    with place.container(key=f"working-{name}", horizontal=True, vertical_alignment="center"):
        draw_stop(name, work)
        bar = st.empty()
        while not work.wait(0.1):
            bar.progress(work.fraction, text=progress_text(work))
    place.empty()


def draw_stop(name: str, work: Work) -> None:
    """The one button that stops work."""
    st.button("Stop", key=f"stop.{name}", icon=":material/stop:", on_click=work.stop)


def watch(work: Work) -> None:
    """The bar of work that runs, drawn in a fragment; when it is through the page is drawn anew.

    That takes a window away for a moment, with the place and the focus in it: it waits until it is closed.
    """
    if not work.running and not state.part(Window).drawn:
        st.rerun()
    st.progress(work.fraction, text=progress_text(work))


def progress_text(work: Work) -> str:
    """What it does now and about how long it still takes, as markdown; or how many it waits for."""
    left = work.seconds_left
    if work.n_before:
        return plain(f"{work.stage}: waiting, {work.n_before} before you")
    return plain(work.stage if left is None else f"{work.stage}: about {time_text(left)} left")

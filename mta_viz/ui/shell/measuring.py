"""A long measurement beside the page: its button, Stop, the bar with the time left, and the result so far.

`result = measured(Measurement(...))` is all a page needs. A result stays when the work is stopped; a whole
one is also kept by the process, under the measurement's key, so that a figure remembered under that key is
not measured again.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.cache import BoundedStore, stores
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import QUIET_SECONDS, Owner, Work

Keep = Callable[[Any], None]
MOST_KEPT = 20  # results of one name in a session


@dataclass(frozen=True)
class Measurement:
    """`do(work, keep)` reports through `work.report`, hands results so far to `keep`, and gives the result.

    What it gives may be None where the last one kept is the result. `name` is the work's, of which a session
    has one at a time; `key` is equal only for equal measurements. `label` is on the button, `words` stand
    beside it. `by_itself`: without a press of the button. `large`: of these results only the last is kept,
    and only by this session.
    """

    name: str
    key: Hashable
    label: str
    do: Callable[[Work, Keep], Any]
    words: str = ""
    owner: Owner = "page"
    by_itself: bool = False
    large: bool = False


@dataclass(frozen=True)
class Kept:
    """A result, and whether it is the whole one."""

    result: Any
    whole: bool = False


@dataclass
class Results:
    """This session's results by name and key; work writes into it."""

    by_name: dict[str, dict[Hashable, Kept]] = field(default_factory=dict)

    def keep(self, name: str, key: Hashable, most: int, kept: Kept) -> None:
        """The newest result of a key; of too many the oldest go."""
        others = {old: value for old, value in self.by_name.get(name, {}).items() if old != key}
        self.by_name[name] = dict([*others.items(), (key, kept)][-most:])

    def of(self, measurement: Measurement) -> Kept | None:
        """What there is of this measurement, here or in the process."""
        whole = work.known(measurement.key)
        if whole is not None:
            return Kept(whole, whole=True)
        return self.by_name.get(measurement.name, {}).get(measurement.key)


def all_results(name: str) -> dict[Hashable, Any]:
    """What this session has measured under a name, by key, the newest last."""
    return {key: kept.result for key, kept in state.part(Results).by_name.get(name, {}).items()}


def measured(measurement: Measurement) -> Any | None:
    """The result, or what there was when it was stopped; None before that. Draws the controls and the bar."""
    draw_controls(measurement)
    running = work.running(measurement.name, measurement.key)
    if running is not None:
        st.fragment(work.watch, run_every=0.5)(running)
        return None
    kept = state.part(Results).of(measurement)
    return None if kept is None else kept.result


def draw_measured(measurement: Measurement, draw: Callable[[Any | None, bool], None]) -> None:
    """The same, with `draw(result so far or None, whether it runs)`, drawn alone while the result grows.

    A click on what is drawn may change the page: when nothing runs it is no fragment.
    """
    draw_controls(measurement)
    running, results = work.running(measurement.name, measurement.key), state.part(Results)

    def live() -> None:
        if running is not None:
            work.watch(running)
        kept = results.of(measurement)
        draw(None if kept is None else kept.result, running is not None)

    (st.fragment(live, run_every=1.0) if running else live)()


def draw_controls(measurement: Measurement) -> None:
    """The button that starts it, or Stop while it runs, and the words; nothing when it is through.

    Says what went wrong where that is meant for the visitor, and raises what is not.
    """
    kept = state.part(Results).of(measurement)
    if measurement.by_itself and kept is None and work.current(measurement.name, measurement.key) is None:
        _start(measurement)
        kept = state.part(Results).of(measurement)
    if kept is not None and kept.whole:
        return
    last = work.current(measurement.name, measurement.key)
    with st.container(horizontal=True, vertical_alignment="center"):
        if last is not None and last.running:
            work.draw_stop(measurement.name, last)
        else:
            _draw_start(measurement)
        words = _words(measurement, last, kept)
        if words:
            caption(words)
    _say_failure(last)


def _draw_start(measurement: Measurement) -> None:
    st.button(
        measurement.label,
        key=f"start.{measurement.name}",
        type="primary",
        on_click=_start,
        args=(measurement,),
    )


def _words(measurement: Measurement, last: Work | None, kept: Kept | None) -> str:
    if last is None or not last.stopped:
        return measurement.words
    return "Stopped. " + ("Nothing was kept of it." if kept is None else "This is what it had so far.")


def _start(measurement: Measurement) -> None:
    """Begin, and wait a moment: short work shows no bar."""
    most = 1 if measurement.large else MOST_KEPT
    keep = partial(state.part(Results).keep, measurement.name, measurement.key, most)
    store = None if measurement.large else stores().drawn
    do = partial(_measure, measurement, keep, store)
    work.start(measurement.name, measurement.key, do, measurement.owner).wait(QUIET_SECONDS)


def _measure(
    measurement: Measurement, keep: Callable[[Kept], None], store: BoundedStore | None, running: Work
) -> None:
    running.begin("Measuring")
    last: list[Any] = []

    def keep_so_far(result: Any) -> None:
        last[:] = [result]
        keep(Kept(result))

    result = measurement.do(running, keep_so_far)
    whole = last[0] if result is None else result
    keep(Kept(whole, whole=True))
    if store is not None:
        store.get_or_make(measurement.key, lambda: whole)


def _say_failure(last: Work | None) -> None:
    failure = None if last is None else last.failure
    if isinstance(failure, MtaVizError):
        st.error(plain(f"It stopped: {failure}"))
    elif failure is not None:
        raise failure

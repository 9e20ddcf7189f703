"""A long measurement beside the page: its button, Stop, the bar with the time left, and the result so far.

`result = measured(Measurement(...))` is all a page needs. A result stays when the work is stopped; a whole
one is also kept by the process, so that a figure remembered under the same key is not measured again.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.cache import stores
from mta_viz.ui.shell.widgets import caption, plain, press_button, take_press
from mta_viz.ui.shell.work import QUIET_SECONDS, Owner, Work

Keep = Callable[[Any], None]
MOST_KEPT = 20  # results of one name in a session


@dataclass(frozen=True)
class Measurement:
    """`do(work, keep)` reports through `work.report`, hands results so far to `keep`, and gives the result.

    What it gives may be None where the last one kept is the result. `name` is the work's, of which a session
    has one at a time; `key` is equal only for equal measurements. `label` is on the button, `words` stand
    beside it. `by_itself`: without a press of the button. `large`: of these results only the last is kept,
    and only by this session; those of a job by the process, which holds a few.
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


class Results(dict[str, dict[Hashable, Kept]]):
    """This session's results by name and key; work writes into it."""

    def keep(self, measurement: Measurement, kept: Kept) -> None:
        """The newest result of a measurement; of too many the oldest go."""
        values = dict(self.get(measurement.name, {}))
        values.pop(measurement.key, None)
        most = 1 if measurement.large else MOST_KEPT
        self[measurement.name] = dict([*values.items(), (measurement.key, kept)][-most:])

    def of(self, measurement: Measurement) -> Kept | None:
        """What there is of this measurement, here or in the process."""
        for store in (stores().drawn, stores().of_runs):
            whole = store.get(measurement.key)
            if whole is not None:
                return Kept(whole, whole=True)
        return self.get(measurement.name, {}).get(measurement.key)


def all_results(name: str) -> dict[Hashable, Any]:
    """What this session has measured under a name, by key, the newest last."""
    return {key: kept.result for key, kept in state.part(Results).get(name, {}).items()}


def measured(measurement: Measurement) -> Any | None:
    """The result, or what there was when it was stopped; None before that. Draws the controls and the bar."""
    running = _draw_controls(measurement)
    if running is not None:
        st.fragment(work.watch, run_every=0.5)(running)
        return None
    kept = state.part(Results).of(measurement)
    return None if kept is None else kept.result


def draw_measured(measurement: Measurement, draw: Callable[[Any | None, bool], None]) -> None:
    """The same, with `draw(result so far or None, whether it runs)`, drawn alone while the result grows."""
    running, results = _draw_controls(measurement), state.part(Results)

    def live() -> None:
        if running is not None:
            work.watch(running)
        kept = results.of(measurement)
        draw(None if kept is None else kept.result, running is not None)

    (st.fragment(live, run_every=1.0) if running else live)()  # a click outside fragments may change the page


def _draw_controls(measurement: Measurement) -> Work | None:
    """The button that starts it, or Stop while it runs, and the words; nothing when it is through.

    Gives the work where it ran when this began: of one that ends meanwhile the page is then drawn anew.
    """
    name, results = measurement.name, state.part(Results)
    known = results.of(measurement) or work.current(name, measurement.key)
    if take_press(f"start.{name}") or (measurement.by_itself and not known):
        _start(measurement)
    last, running = work.current(name, measurement.key), work.running(name, measurement.key)
    kept = results.of(measurement)
    if running is None and kept is not None and kept.whole:
        return None
    with st.container(horizontal=True, vertical_alignment="center"):
        if running is not None:
            work.draw_stop(name, running)
        else:
            press_button(measurement.label, f"start.{name}", type="primary")
        words = measurement.words
        if last is not None and last.stopped:
            words = f"Stopped. {'This is what it had so far.' if kept else 'Nothing was kept of it.'}"
        if words:
            caption(words)
    failure = None if last is None else last.failure
    if isinstance(failure, MtaVizError):
        st.error(plain(f"It stopped: {failure}"))
    elif failure is not None:
        raise failure
    return running


def _start(measurement: Measurement) -> None:
    """Begin, and wait a moment: short work shows no bar."""
    results, so_far = state.part(Results), list[Any]()
    store = stores().of_runs if measurement.large else stores().drawn

    def keep(result: Any) -> None:
        so_far[:] = [result]
        results.keep(measurement, Kept(result))

    def measure(running: Work) -> None:
        running.begin("Measuring")
        result = measurement.do(running, keep)
        whole = so_far[0] if result is None else result
        results.keep(measurement, Kept(whole, whole=True))
        if not measurement.large or measurement.owner == "job":
            store.get_or_make(measurement.key, lambda: whole)

    work.start(measurement.name, measurement.key, measure, measurement.owner).wait(QUIET_SECONDS)

"""A measurement beside the page: started, stopped with what it had, gone on with, through."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.errors import MtaVizError


@dataclass
class Gate:
    """What the measurement of the page waits for, and how often it was started."""

    open: bool = False
    starts: int = 0
    failure: Exception | None = None


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open = True


def _page(key, gate) -> None:
    import time

    import streamlit as st

    from mta_viz.ui.shell.measuring import Measurement, measured

    def count(work, keep):
        gate.starts += 1
        if gate.failure:
            raise gate.failure
        keep("half")
        while not gate.open:
            work.report(0.5)
            time.sleep(0.01)
        return "whole"

    st.text(f"result: {measured(Measurement('count', ('counted', key), 'Count', count, 'A few numbers.'))}")


def _opened(key: str, gate: Gate) -> AppTest:
    return AppTest.from_function(_page, args=(key, gate), default_timeout=20).run()


def _until(app: AppTest, holds: Callable[[], bool]) -> None:
    for _ in range(100):
        if holds():
            return
        time.sleep(0.05)
        app.run()
    raise AssertionError([text.value for text in app.text])


def _labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def _result(app: AppTest) -> str:
    return app.text[-1].value


def test_nothing_runs_unasked_and_stop_keeps_what_there_is(gate):
    app = _opened("stop", gate)
    assert _labels(app) == ["Count"] and _result(app) == "result: None" and gate.starts == 0
    app.button[0].click().run()
    assert _labels(app) == ["Stop"] and _result(app) == "result: None"
    app.button[0].click().run()
    _until(app, lambda: _labels(app) == ["Count"])
    assert _result(app) == "result: half"
    assert "This is what it had so far" in app.caption[-1].value


def test_a_whole_result_is_shown_without_a_button_and_another_session_finds_it(gate):
    gate.open = True
    app = _opened("whole", gate)
    app.button[0].click().run()
    _until(app, lambda: _result(app) == "result: whole")
    assert _labels(app) == []
    again = _opened("whole", gate)
    assert _result(again) == "result: whole" and gate.starts == 1


def test_what_goes_wrong_is_said_and_can_be_tried_again(gate):
    gate.failure = MtaVizError("no such number")
    app = _opened("failure", gate)
    app.button[0].click().run()
    _until(app, lambda: len(app.error) == 1)
    assert "no such number" in app.error[0].value and _labels(app) == ["Count"]
    gate.failure = ValueError("a bug")
    app.button[0].click().run()
    _until(app, lambda: len(app.exception) == 1)


def _page_with_a_window(cut_short):
    """This run of it comes upon work that is through before it comes to the window's button."""
    import streamlit as st

    from mta_viz.ui.shell import work
    from mta_viz.ui.shell.widgets import window, window_button

    times = st.session_state["times"] = st.session_state.get("times", 0) + 1
    done = work.Work(lambda work: None)
    assert done.wait(5.0)
    if times == cut_short:
        work.watch(done)
    window_button("Open", "open", window("A window")(lambda: st.text("in the window")))


def test_a_window_is_there_although_the_run_of_its_click_was_cut_short():
    app = AppTest.from_function(_page_with_a_window, kwargs={"cut_short": 2}).run()
    assert not app.text
    app.button(key="open").click().run()
    assert app.session_state["times"] == 3 and app.text[0].value == "in the window"


def test_the_end_of_work_does_not_draw_the_page_under_a_window_that_is_there():
    app = AppTest.from_function(_page_with_a_window, kwargs={"cut_short": 3}).run()
    app.button(key="open").click().run()
    assert app.run().text[0].value == "in the window" and app.session_state["times"] == 3


def _page_with_a_button(cut_short, in_fragment):
    """This run of it, or of its fragment, is cut short before it comes to the button."""
    import streamlit as st

    from mta_viz.ui.shell.widgets import pressed

    def draw():
        times = st.session_state["times"] = st.session_state.get("times", 0) + 1
        if times == cut_short:
            st.rerun()
        if pressed("Go", "go"):
            st.session_state["went"] = st.session_state.get("went", 0) + 1

    (st.fragment(draw) if in_fragment else draw)()


@pytest.mark.parametrize("in_fragment", [False, True])
def test_a_press_acts_once_although_its_run_was_cut_short(in_fragment):
    shown = {"cut_short": 2, "in_fragment": in_fragment}
    app = AppTest.from_function(_page_with_a_button, kwargs=shown).run()
    app.button(key="go").click().run()
    assert app.session_state["times"] == 3 and app.session_state["went"] == 1
    assert app.run().session_state["went"] == 1


def test_a_press_measures_what_is_chosen_by_then():
    """The choice and the press reach the server together, as on a slow machine."""

    def page() -> None:
        import streamlit as st

        from mta_viz.ui.shell.measuring import Measurement, measured

        chosen = st.checkbox("with the task")
        st.text(
            f"{measured(Measurement('chosen', chosen, 'Measure', lambda work, keep: f'measured {chosen}'))}"
        )

    app = AppTest.from_function(page, default_timeout=20).run()
    app.checkbox[0].check()
    app.button[0].click().run()
    assert _result(app) == "measured True"

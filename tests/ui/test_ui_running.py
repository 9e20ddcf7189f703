"""Work beside the page: progress, Stop, errors; and stores that forget and make each value once."""

import threading
import time

import pytest

from mta_viz.config import ModelConfig
from mta_viz.errors import Cancelled, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import time_text
from mta_viz.run import tracing
from mta_viz.ui.shell.cache import BoundedStore, ModelKey, RunKey
from mta_viz.ui.shell.models import expected_seconds
from mta_viz.ui.shell.work import Work


def test_work_reports_and_finishes():
    work = Work(lambda work: (work.begin("Reading"), work.report(0.25)))
    assert work.wait(5.0) and work.error is None
    assert (work.stage, work.fraction) == ("Reading", 0.25)


def test_work_tells_what_was_expected_until_it_knows_better():
    work = Work(lambda work: work.begin("Running", expected=40.0))
    assert work.wait(5.0) and 35 < work.seconds_left <= 40
    work = Work(lambda work: work.begin("Running"))
    assert work.wait(5.0) and work.seconds_left is None


def test_the_time_left_stands_on_what_came_after_the_first_share(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    work, told = Work(lambda work: work.begin("Measuring")), []
    work.wait(5.0)
    for now[0], share in ((9.0, 0.03), (9.5, 0.04), (14.0, 0.515)):
        work.report(share)
        told.append(work.seconds_left)
    now[0] = 16.0
    assert told[:2] == [None, None] and told[2] == pytest.approx(5) and work.seconds_left == pytest.approx(3)


def test_only_long_runs_are_estimated_before_they_start(monkeypatch):
    model = HookedMTA(ModelConfig(8, 1, 1, 1, 8, 8, 7))
    monkeypatch.setattr(tracing, "estimate_seconds", lambda model, n_tokens: 60.0)
    assert expected_seconds(model, (1, 2, 3)) is None
    monkeypatch.setattr(tracing, "CALIBRATION", 1.0)
    assert expected_seconds(model, (1, 2, 3)) == 60.0
    monkeypatch.setattr(tracing, "estimate_seconds", lambda model, n_tokens: 4.0)
    assert expected_seconds(model, (1, 2, 3)) is None


def test_stop_ends_work_at_its_next_report():
    def do(work):
        while True:
            work.report(0.5)
            time.sleep(0.005)

    work = Work(do)
    assert not work.wait(0.05)
    work.stop()
    assert work.wait(5.0) and isinstance(work.error, Cancelled)


def test_an_error_is_kept_for_the_page():
    def do(work):
        raise PromptError("too odd")

    work = Work(do)
    assert work.wait(5.0) and str(work.error) == "too odd"


def test_the_store_forgets_what_was_used_longest_ago():
    store = BoundedStore(2)
    for key in "ab":
        store.get_or_make(key, lambda key=key: key.upper())
    store.get("a")
    store.get_or_make("c", lambda: "C")
    assert (store.get("a"), store.get("b"), store.get("c")) == ("A", None, "C")


def test_two_threads_make_a_value_once():
    store, made = BoundedStore(2), []

    def make():
        made.append(1)
        time.sleep(0.05)
        return "model"

    threads = [threading.Thread(target=store.get_or_make, args=("k", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_run_keys_differ_by_everything_that_matters():
    model = ModelKey("p", 1, "cpu", "float32")
    keys = {
        RunKey(model, "a").text,
        RunKey(model, "b").text,
        RunKey(model, (97,)).text,
        RunKey(ModelKey("p", 2, "cpu", "float32"), "a").text,
        RunKey(ModelKey("p", 1, "cpu", "bfloat16"), "a").text,
        RunKey(ModelKey("p", 1, "cpu", "float32", "other.model"), "a").text,
    }
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (119, "119 s"), (240, "4 min"), (12600, "3.5 hours"), (424800, "118 hours")],
)
def test_times_are_said_in_units_a_reader_has(seconds, words):
    assert time_text(seconds) == words

"""Jobs: progress, Stop, errors; and stores that forget and make each value once."""

import threading
import time

from mta_viz.config import ModelConfig
from mta_viz.errors import Cancelled, PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.ui.shell.cache import BoundedStore, ModelKey, RunKey
from mta_viz.ui.shell.running import Job, _expected_seconds


def test_a_job_reports_and_finishes():
    job = Job(lambda job: (job.begin("Reading"), job.report(0.25)))
    assert job.wait(5.0) and job.error is None
    assert (job.stage, job.fraction) == ("Reading", 0.25)


def test_a_job_tells_what_was_expected_until_it_knows_better():
    job = Job(lambda job: job.begin("Running", expected=40.0))
    assert job.wait(5.0) and 35 < job.seconds_left <= 40
    job = Job(lambda job: job.begin("Running"))
    assert job.wait(5.0) and job.seconds_left is None


def test_only_long_runs_are_estimated_before_they_start(monkeypatch):
    model = HookedMTA(ModelConfig(8, 1, 1, 1, 8, 8, 7))
    monkeypatch.setattr(tracing, "estimate_seconds", lambda model, n_tokens: 60.0)
    assert _expected_seconds(model, (1, 2, 3)) is None
    monkeypatch.setattr(tracing, "CALIBRATION", 1.0)
    assert _expected_seconds(model, (1, 2, 3)) == 60.0
    monkeypatch.setattr(tracing, "estimate_seconds", lambda model, n_tokens: 4.0)
    assert _expected_seconds(model, (1, 2, 3)) is None


def test_stop_ends_a_job_at_its_next_report():
    def work(job):
        while True:
            job.report(0.5)
            time.sleep(0.005)

    job = Job(work)
    assert not job.wait(0.05)
    job.cancel()
    assert job.wait(5.0) and isinstance(job.error, Cancelled)


def test_an_error_is_kept_for_the_page():
    def work(job):
        raise PromptError("too odd")

    job = Job(work)
    assert job.wait(5.0) and str(job.error) == "too odd"


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

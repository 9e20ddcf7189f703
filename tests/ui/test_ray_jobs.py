"""Measurements on Ray as processes: their command, one that fails, one at a time, and the form."""

import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.cause.effects import read_effects
from mta_viz.cli import build_parser, main
from mta_viz.errors import MtaVizError
from mta_viz.ui.shell import ray_jobs
from mta_viz.ui.shell.cache import ModelKey
from mta_viz.ui.shell.ray_jobs import RayJob
from tests.tiny_models import write_models


@pytest.fixture
def model(tmp_path: Path) -> ModelKey:
    write_models(tmp_path)
    return ModelKey(str(tmp_path / "tiny-blocks"), 0, "cpu", "float32")


def ended(model: ModelKey, seconds: float = 120.0) -> RayJob:
    """The model's job once its process has ended."""
    end = time.monotonic() + seconds
    while (job := next(ray_jobs.jobs_of([Path(model.path)]))).alive:
        assert time.monotonic() < end, job
        time.sleep(0.2)
    return job


def test_the_command_takes_what_is_started(model: ModelKey) -> None:
    for measured in ("effects", "shapley"):
        given = build_parser().parse_args(ray_jobs.arguments(model, measured, "blocks", "ray://host:1"))
        assert (given.path, given.task, given.on) == (Path(model.path), "blocks", "ray://host:1")
    assert given.out == Path(model.path) / "shapley.json"


def test_a_job_that_fails_says_why_and_there_is_one_at_a_time(
    model: ModelKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(ray_jobs.jobs_of([Path(model.path)]))
    ray_jobs.start(model, "effects", "blocks", "nowhere")
    with pytest.raises(MtaVizError, match=r"one runs in .* already"):
        ray_jobs.start(model, "shapley", "blocks", "ray")
    job = ended(model)
    assert job.failed and "'nowhere' is no place to run" in job.words
    ray_jobs.stop(job)  # of a process that has ended nothing
    monkeypatch.setenv("MTA_VIZ_READ_ONLY", "1")
    with pytest.raises(MtaVizError, match="read-only"):
        ray_jobs.start(model, "effects", "blocks", "ray")


def _form(path: str) -> None:
    from mta_viz.ui.shell import machine
    from mta_viz.ui.shell.cache import ModelKey

    machine._draw_new(ModelKey(path, 0, "cpu", "float32"), "blocks")
    machine._draw()


def test_the_form_starts_one_and_the_list_says_how_it_ended(
    model: ModelKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTA_VIZ_MODELS", str(Path(model.path).parent))
    app = AppTest.from_function(_form, args=(model.path,), default_timeout=60).run()
    app.text_input[0].set_value("nowhere").run()
    app.button(key="ray.start").click().run()
    assert not app.exception and ended(model).job.task == "blocks"
    app.run()
    assert "On Ray, what a task loses without each kernel" in " ".join(each.value for each in app.caption)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_a_stopped_job_goes_on_to_what_the_command_measures_here(model: ModelKey, tmp_path: Path) -> None:
    here, there = tmp_path / "here.json", Path(model.path) / "effects.json"
    assert main(["effects", model.path, "--task=blocks", f"--out={here}"]) == 0
    ray_jobs.start(model, "effects", "blocks", "ray")
    while not there.exists():
        time.sleep(0.1)
    ray_jobs.stop(next(ray_jobs.jobs_of([Path(model.path)])))
    stopped = ended(model)
    assert stopped.failed and len(read_effects(there).effects) < len(read_effects(here).effects)
    ray_jobs.start(model, "effects", "blocks", "ray")
    assert not ended(model).failed and there.read_bytes() == here.read_bytes()

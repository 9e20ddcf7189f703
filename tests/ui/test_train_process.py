"""Finetunings as processes, for real on a tiny model: started, stopped, gone on with, found again."""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mta_viz.analysis.kernels.finetuning import JOB_FILE, LOG_FILE
from mta_viz.checkpoint.adapter import ADAPTER
from mta_viz.errors import MtaVizError
from mta_viz.training.finetune_settings import FinetuneConfig
from mta_viz.ui.shell import processes
from mta_viz.ui.shell import trainings as process
from mta_viz.ui.shell.trainings import Settings, Training, command, find_trainings, read_training, start, stop
from mta_viz.ui.train.form import SAMPLES, SIZES, STEP_PROMPTS, STEP_TEXTS, TEXT_TOKENS


@pytest.fixture(autouse=True)
def _nothing_goes_on(tmp_path: Path) -> Iterator[None]:
    """A test that fails leaves no training behind."""
    yield
    for training in find_trainings([tmp_path]):
        if training.alive:
            os.kill(training.job.pid, signal.SIGKILL)


@pytest.fixture
def settings(models_folder: Path) -> Settings:
    """Two steps on text, the quickest there is."""
    return Settings(base=str(models_folder / "tiny-plain"), layers=(1,), kernel=(2, 3), task="text", steps=2)


def until(folder: Path, true: Callable[[Training], bool], seconds: float = 150.0) -> Training:
    """The training once `true(it)`."""
    end = time.monotonic() + seconds
    while not true(training := read_training(folder)):
        assert time.monotonic() < end, (training, (folder / LOG_FILE).read_text())
        time.sleep(0.2)
    return training


@pytest.fixture
def sigint_ignored() -> Iterator[None]:
    """As in an app that a script started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_ignored")
def test_a_training_runs_as_a_process_is_stopped_and_goes_on_to_its_end(
    settings: Settings, tmp_path: Path
) -> None:
    settings, out = replace(settings, steps=6), tmp_path / "group" / "trained"
    assert start(settings, out).alive
    with pytest.raises(MtaVizError, match=r"runs in .* already"):
        start(settings, out)
    assert [each.folder for each in find_trainings([tmp_path])] == [out]
    stop(until(out, lambda training: training.run is not None and training.run.step > 0))
    stopped = until(out, lambda training: not training.alive)
    assert stopped.resumable and not stopped.done and stopped.run is not None
    assert stopped.run.state == "stopped" and "--resume goes on from there" in " ".join(stopped.words)
    assert not start(settings, out, resume=True).begun  # what it shows is still of the part before
    until(out, lambda training: training.begun)
    done = until(out, lambda training: not training.alive)
    assert done.done and not done.resumable and done.job.settings == settings
    assert done.run is not None and (done.run.step, done.run.before) == (6, None)
    before, after = done.run.perplexity["grammar"]
    assert after is not None and 1 < before != after
    assert (out / ADAPTER).is_file()
    with pytest.raises(MtaVizError, match="holds something already"):
        start(settings, out)


def test_a_process_that_fails_says_why_and_may_be_started_again(settings: Settings, tmp_path: Path) -> None:
    out = tmp_path / "trained"
    start(replace(settings, layers=(9,)), out)
    failed = until(out, lambda training: not training.alive)
    assert not failed.done and not failed.resumable
    assert "there is no layer 9; the model has layers 0 to 3" in " ".join(failed.words)
    start(replace(settings, layers=(9,)), out)
    until(out, lambda training: not training.alive)


def test_a_folder_that_cannot_be_made_is_said(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MtaVizError, match=r"cannot be written.*name a place"):
        start(settings, tmp_path / "file" / "out")


def write_job(folder: Path, settings: Settings, pid: int) -> None:
    job = {"format": process.FORMAT, "settings": vars(settings), "pid": pid}
    (folder / JOB_FILE).write_text(json.dumps(job))


def test_a_process_that_a_file_merely_names_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        write_job(tmp_path, settings, other.pid)
        (tmp_path / LOG_FILE).write_text("step 1 of 2\n\x1b[31mno\n")
        training = read_training(tmp_path)
        assert not training.alive and training.words == ("\x1b[31mno",)
        stop(training)
        time.sleep(0.3)
        assert other.poll() is None
        other.kill()


def test_a_stop_reaches_no_process_but_the_one_that_writes_the_log(
    settings: Settings, tmp_path: Path
) -> None:
    """Neither one of this user's that has the log open, nor the training of another folder."""
    training = start(replace(settings, steps=500), tmp_path / "own")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with (theirs / LOG_FILE).open("wb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stderr=log) as other:
            for pid in (other.pid, training.job.pid, 0, -1, os.getpid()):
                write_job(theirs, settings, pid)
                with pytest.raises(MtaVizError, match=rf"not process {pid}, which the file beside it names"):
                    stop(read_training(theirs))
            other.kill()
    (theirs / LOG_FILE).unlink()
    (theirs / LOG_FILE).symlink_to(tmp_path / "own" / LOG_FILE)
    write_job(theirs, settings, training.job.pid)
    with pytest.raises(MtaVizError, match="not process"):
        stop(read_training(theirs))
    assert read_training(tmp_path / "own").alive
    stop(training)
    until(tmp_path / "own", lambda training: not training.alive)


# What `ps -ww -o command= -p PID` of macOS prints: the words joined by spaces, nothing and status 1 for none.
BSD_PS = """#!/bin/sh
test "$1 $2 $3 $4" = "-ww -o command= -p" || exit 64
case $5 in
{own}) echo "/opt/homebrew/Frameworks/Python.app/Contents/MacOS/Python {named} finetune";;
1) echo /sbin/launchd;;
2) echo "/usr/bin/tail -f {log}";;
*) exit 1;;
esac
"""


def test_where_there_is_no_proc_the_command_line_is_that_of_ps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log, program = tmp_path / "a run" / LOG_FILE, tmp_path / "ps"
    log.parent.mkdir()
    with log.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        # a shell's background job begins with SIGINT ignored
        sleeps = "from signal import *; signal(SIGINT, SIG_DFL); print(flush=True); pause()"
        with subprocess.Popen([sys.executable, "-c", sleeps], stdout=subprocess.PIPE, stderr=held) as own:
            assert own.stdout is not None and own.stdout.readline()
            named = " ".join(processes._named(log)).replace('"', '\\"')
            program.write_text(BSD_PS.format(own=own.pid, named=named, log=log))
            program.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            monkeypatch.setattr(processes, "PROC", tmp_path / "no proc")
            for pid in (1, 2, 3):
                with pytest.raises(MtaVizError, match=f"not process {pid}, which"):
                    processes.interrupt(log, pid)
            processes.interrupt(log, own.pid)
            assert own.wait(20) == -signal.SIGINT


def test_a_link_in_the_place_of_the_log_is_not_written_through(settings: Settings, tmp_path: Path) -> None:
    out, other = tmp_path / "trained", tmp_path / "other"
    out.mkdir()
    other.write_text("another file")
    (out / LOG_FILE).symlink_to(other)
    with pytest.raises(MtaVizError, match="cannot be written"):
        start(settings, out, resume=True)
    assert other.read_text() == "another file"


def test_a_base_that_could_be_a_flag_is_refused(settings: Settings, tmp_path: Path) -> None:
    write_job(tmp_path, replace(settings, base="--config=x"), 1)
    with pytest.raises(MtaVizError, match="no whole path"):
        read_training(tmp_path)
    assert tmp_path not in [training.folder for training in find_trainings([tmp_path.parent])]


def test_the_command_is_what_is_run(settings: Settings) -> None:
    words = shlex.split(
        command(replace(settings, base="/a b", corpus="/c d", seconds=90.0), Path("/out"), True)
    )
    assert words[:5] == ["python", "-m", "mta_viz", "finetune", "/a b"] and words[-1] == "--resume"
    assert {"--layers=1", "--kernel=2x3", "--corpus=/c d", "--max-seconds=90", "--out=/out"} <= set(words)


def test_how_far_a_measurement_is_stands_in_the_last_line(settings: Settings, tmp_path: Path) -> None:
    job = {"format": process.FORMAT, **asdict(process.Job(settings, 1))}
    (tmp_path / JOB_FILE).write_text(json.dumps(job))
    log = tmp_path / LOG_FILE
    log.write_text("measuring the base: 100 samples\nevaluating:  37%, 12 s left\n")
    training = read_training(tmp_path)
    assert (training.words, training.measured) == (("measuring the base: 100 samples",), "37%, 12 s left")
    log.write_text(log.read_text() + "base: 3 of 100\nstep 1 of 9\n")
    assert read_training(tmp_path).measured == "" and read_training(tmp_path).words[-1] == "base: 3 of 100"


def test_the_estimate_counts_the_rows_of_the_command_as_it_is() -> None:
    usual = FinetuneConfig(base="-", layers=(0,))
    assert SIZES["long"] == ((usual.names, usual.cities), usual.lengths)
    assert (usual.batch_size, usual.text_rows, usual.text_lengths) == (STEP_PROMPTS, STEP_TEXTS, ())
    assert (usual.evaluation_samples, usual.evaluation_tokens) == (SAMPLES, TEXT_TOKENS)

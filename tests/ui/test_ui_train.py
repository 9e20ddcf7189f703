"""The Train page: the form, what it says of each model, and a training of a tiny model from the button on."""

import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
import streamlit as st

from mta_viz.analysis.kernels.finetuning import JOB_FILE, LOG_FILE, PROGRESS_FILE, STATE_FILE
from mta_viz.config import MTAOptions
from mta_viz.model.editing import usual_layers
from mta_viz.tokenizers.builtin import BytesTokenizer
from mta_viz.training.finetune_data import FinetuneBatches, read_named, read_text
from mta_viz.training.finetune_settings import FinetuneConfig
from mta_viz.ui.shell import trainings as process
from mta_viz.ui.shell.trainings import Settings, Training
from mta_viz.ui.shell.widgets import Presses
from mta_viz.ui.train import view
from mta_viz.ui.train.form import Estimate, estimate_words, piece_length, prompts_of
from mta_viz.ui.train.view import prompt_of, result_words, state_words, usual
from tests.plots.test_finetuning_figure import DONE, RUNNING
from tests.tiny_models import config
from tests.ui.driver import borrowed, charts, fine, part_of, said, session_of

PAGE = "pages/train.py"
SETTINGS = Settings(base="/base", layers=(1,), seconds=240.0)
QUICK = Estimate(step=0.5, gpu_step=0.05, n_bytes=10**9, measuring=20.0, free=8 * 10**9)
TEXT = {"train_task": "text", "train_end": "steps", "train_steps": "2"}


def training(alive: bool, folder: Path = Path("/out"), run=RUNNING, words=(), begun=True) -> Training:
    return Training(folder, process.Job(SETTINGS, 1), alive, run, begun, words)


def test_the_estimate_says_how_long_and_how_large_and_what_a_gpu_would_take() -> None:
    words = " ".join(estimate_words(QUICK, SETTINGS))
    assert "a step takes about 0.5 s: 480 steps in 4 min, and 20 s to measure" in words
    assert "about 1.0 GB" in words and "A large GPU would take about 24 s" in words


def test_a_slow_machine_and_little_memory_are_said() -> None:
    assert "about 3 min: 1 step in 4 min" in " ".join(estimate_words(replace(QUICK, step=170.0), SETTINGS))
    assert "about 6 min: 1 step in 6 min" in " ".join(estimate_words(replace(QUICK, step=360.0), SETTINGS))
    slow = replace(QUICK, step=20.0, free=5 * 10**8)
    words = " ".join(estimate_words(slow, SETTINGS))
    assert (
        "12 steps in 4 min" in words and "400 take about 2.2 hours here, on a large GPU about 20 s" in words
    )
    assert "more than the 500.0 MB that are free" in words
    on_gpu = " ".join(estimate_words(slow, replace(SETTINGS, device="cuda:0")))
    assert "On this cuda:0" in on_gpu and "large GPU" not in on_gpu


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (training(True), "Step 40 of 200: about 60 s left"),
        (training(True, run=replace(RUNNING, step=200, seconds_left=0.0)), "Trained; measuring the result"),
        (
            training(True, run=None, words=("measuring the base: 100 samples",)),
            "Before the first step: measuring the base: 100",
        ),
        (
            replace(training(True, run=None, words=("measuring the base",)), measured="37%, 12 s left"),
            "measuring the base: 37%, 12 s left",
        ),
        (
            training(True, run=replace(RUNNING, step=0), words=("about 50 s a step",)),
            "Before the first step: about 50 s a step",
        ),
        (training(True, run=None), "Before the first step: reading the base"),
        (training(True, begun=False, words=("measuring",)), "Going on from step 40: measuring"),
        (training(True, begun=False, words=("interrupted",)), "Going on from step 40: reading the base"),
        (training(False, run=DONE), "Done."),
        (training(False, run=None), "Ended before its first step."),
    ],
)
def test_the_state_is_said_in_words(given: Training, words: str) -> None:
    assert words in state_words(given)


def test_of_what_is_said_before_the_first_step_the_bar_has_the_first_sentence() -> None:
    given = training(True, run=None, words=("about 1.5 s a step. That is long: a GPU",))
    assert state_words(given) == "Before the first step: about 1.5 s a step"


def test_a_stopped_training_with_a_state_is_kept(tmp_path: Path) -> None:
    assert state_words(training(False, tmp_path)) == "Ended before its first step."
    (tmp_path / STATE_FILE).write_bytes(b"x")
    assert state_words(training(False, tmp_path)) == "Stopped; what was trained is kept."


def test_the_result_is_said_with_its_paired_interval() -> None:
    words = result_words(DONE)
    assert "12 of 100 before, 62 after; +50 points, paired 95 % interval +38 to +60." in words
    assert "train longer" not in words
    few = replace(DONE, change=replace(DONE.change, value=0.02, low=-0.03))
    assert "train longer to tell" in result_words(few)
    short = replace(few, before=replace(few.before, right=0, n=2))
    assert "train longer, or on a file of more prompts" in result_words(short)
    assert result_words(replace(RUNNING, step=100)) == ""


def test_the_result_of_few_steps_says_that_they_teach_little() -> None:
    assert result_words(replace(RUNNING, step=8)) == (
        "Trained for 8 steps: so few teach little, some hundreds are usual. "
    )
    assert "Trained for 99 steps" in result_words(replace(DONE, step=99)) and "few" not in result_words(DONE)


def test_a_running_training_is_shown_first_then_that_of_the_model_or_the_newest_of_the_base() -> None:
    newer, older, other = (training(False, Path(name)) for name in ("/newer", "/older", "/other"))
    other = replace(other, job=process.Job(replace(SETTINGS, base="/another"), 1))
    assert usual("/base", [other, newer, older]) == "/newer"
    assert usual("/base", [other, newer, replace(older, alive=True)]) == "/older"
    assert usual("/base", [other]) == "" and usual("/older", [other, newer, older]) == "/older"


@pytest.mark.parametrize(("n", "layers"), [(1, [0]), (4, [1, 2]), (6, [1, 2, 3]), (30, [*range(2, 30, 4)])])
def test_every_fourth_layer_is_trained_or_the_lower_half_of_a_shallow_model(
    n: int, layers: list[int]
) -> None:
    assert usual_layers(replace(config(MTAOptions(), 258), n_layers=n)) == layers


def test_the_form_is_filled_and_shows_the_command(open_app, models_folder):
    app = open_app("tiny-plain", "Hello", PAGE, TEXT)
    fine(app)
    assert "a step takes about" in said(app) and "--layers=1,2" in said(app)
    assert f"--out={models_folder / 'tiny-plain-trained'}" in said(app)


def test_what_cannot_be_trained_is_said_in_one_sentence(open_app, models_folder):
    kernels = open_app("tiny-plain", "Hello", "pages/kernels.py")
    assert "no key-query kernels" in said(kernels)
    assert {"train.open", "insert.open"} <= {button.key for button in kernels.button}
    none = open_app("tiny-mta", "Hello", PAGE)
    words = said(none)
    assert "tiny-mta is none: it has its own already (MTA)" in words and "tiny-plain" in words
    none.button(key="train.base").click().run()
    assert "Puts kernels into" in said(none)
    app = open_app("tiny-plain", "Hello", PAGE)  # four facts do not fit in 128 tokens of single bytes
    assert app.error and not app.exception
    borrowed(app.text_input, "train_corpus").set_value("/nowhere").run()
    assert "The corpus /nowhere is neither a folder nor a file" in said(app)
    (models_folder / "picture.txt").write_bytes(b"\0" * 8)
    borrowed(app.text_input, "train_corpus").set_value(str(models_folder / "picture.txt")).run()
    assert "is no plain text" in said(app)
    (models_folder / "one.jsonl").write_text('{"prompt": "1 + 1 =", "answer": "2"}\n')
    app = open_app("tiny-plain", "Hello", PAGE, {"train_task": "file"})
    borrowed(app.text_input, "train_file").set_value(str(models_folder / "one.jsonl")).run()
    assert "has one sample; give at least two" in said(app)


def test_the_estimate_counts_the_tokens_that_a_step_of_the_command_reads(
    models_folder: Path, tmp_path: Path
) -> None:
    file, base = tmp_path / "sums.jsonl", str(models_folder / "tiny-plain")
    lines = [{"prompt": "x" * (20 + number % 40), "answer": "y"} for number in range(400)]
    file.write_text("\n".join(map(json.dumps, [{"prompt": "x" * 300, "answer": "y"}, *lines[1:]])))
    config = FinetuneConfig(base=base, layers=(1,), task=str(file), lengths=Settings.lengths)
    assert piece_length(replace(SETTINGS, task=str(file))) == config.usual_length
    task, tokenizer = read_named(config.task), BytesTokenizer()
    batches = FinetuneBatches(config, tokenizer, read_text(None, 100), task)
    wide = [batches(step).answers.tokens.shape[1] for step in range(20)]
    prompts = prompts_of(tokenizer, replace(SETTINGS, task=str(file)))
    assert abs(prompts.usual - median(wide)) <= 3
    assert abs(prompts.longest - 303) <= 20 and prompts.n_held_out == 40 and abs(prompts.held_out - 43) <= 2
    assert prompts_of(tokenizer, replace(SETTINGS, task="text")).n_held_out == 0


def test_a_prompt_of_a_files_task_is_one_that_was_held_out(tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    lines = [{"prompt": f"1 + {number} =", "answer": str(1 + number)} for number in range(1, 4)]
    file.write_text("\n".join(map(json.dumps, lines)))
    job = process.Job(replace(SETTINGS, task=str(file)), 1)
    page = SimpleNamespace(model=SimpleNamespace(tokenizer=BytesTokenizer()))
    assert prompt_of(page, replace(training(False), job=job)) == "1 + 3 ="
    file.unlink()
    assert prompt_of(page, replace(training(False), job=job)) == ""


def test_a_press_of_train_is_kept_where_its_run_was_cut_short(open_app, monkeypatch):
    app, looked, started = open_app("tiny-plain", "Hello", PAGE, TEXT), [], []

    def cut_short_once(roots):
        looked.append(roots)
        if len(looked) == 1:
            st.rerun()
        return iter(())

    monkeypatch.setattr(view, "find_trainings", cut_short_once)
    monkeypatch.setattr(view, "start", lambda settings, folder: started.append(folder.name))
    app.button(key="train.start").click().run()
    fine(app)
    assert started == ["tiny-plain-trained"] and len(looked) == 3


def test_a_training_is_started_and_followed_and_its_kernels_opened(open_app, models_folder):
    app = open_app("tiny-plain", "Hello", PAGE, TEXT)
    app.button(key="train.start").click().run()
    fine(app)
    folder = models_folder / "tiny-plain-trained"
    assert process.read_training(folder).job.settings.steps == 2
    while process.read_training(folder).alive:
        app.run()
        time.sleep(1)  # it needs the processors
    app.run()
    fine(app)
    assert "Done" in app.success[0].value and len(charts(app)) == 2
    progress = folder / PROGRESS_FILE
    progress.write_text(progress.read_text().replace('"done"', '"stopped"'))
    app.run()
    assert app.warning and app.button(key="train.kernels") and "Trained for 2 steps" in said(app)
    app.button(key="train.another").click().run()
    assert f"--out={folder}-2" in said(app)
    borrowed(app.selectbox, "training").set_value(str(folder)).run()
    app.button(key="train.kernels").click().run()
    fine(app)
    view = session_of(app).selection
    assert view.checkpoint == "tiny-plain-trained" and view.layer in (1, 2) and view.place == "pre"


def test_a_press_of_a_button_that_is_not_there_any_more_is_forgotten(open_app):
    app = open_app("tiny-plain", "Hello", "pages/kernels.py")
    part_of(app, Presses).add("train.start")
    fine(app.run())
    assert not part_of(app, Presses)


def test_a_failed_training_shows_its_last_words(open_app, models_folder):
    folder = models_folder / "failed"
    folder.mkdir()
    job = {"format": process.FORMAT, "settings": vars(replace(SETTINGS, base=str(models_folder))), "pid": 1}
    (folder / JOB_FILE).write_text(json.dumps(job))
    (folder / LOG_FILE).write_text("error: **no** disk\n")
    app = open_app("tiny-plain", "Hello", PAGE, TEXT)
    borrowed(app.selectbox, "training").set_value(str(folder)).run()
    assert "Ended before its first step." in said(app) + app.warning[0].value
    assert "error: **no** disk" in said(app) and not (folder / PROGRESS_FILE).exists()
    assert app.button(key="train.resume").label == "Begin again"

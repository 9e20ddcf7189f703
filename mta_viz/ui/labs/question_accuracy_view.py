"""How often questions are answered right: measured beside the page, beside chance; every answer."""

import math
from collections.abc import Callable
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.question_accuracy import ANSWER_RUNS, QuestionScore, evaluate_questions
from mta_viz.exporting.labs import questions_csv
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.intervals import Z_95
from mta_viz.tasks.questions import QuestionTask
from mta_viz.tracing import estimate_seconds
from mta_viz.ui import state
from mta_viz.ui.labs.measuring import Measurement, draw_measurement, kept
from mta_viz.ui.open_page import Page
from mta_viz.ui.running import Job
from mta_viz.ui.waiting import time_text
from mta_viz.ui.widgets import caption, plain, save_table

NAME = "questions"
MOST = 100_000


def draw_accuracy(page: Page, task: QuestionTask, seed: int, n_tokens: int) -> None:
    """How many samples, the button, and the accuracy so far; `n_tokens`: about a prompt's length."""
    n = int(
        st.number_input(
            "Samples", 1, MOST, step=10, width=140, **state.kept("question n", 20, within=(1, MOST))
        )
    )
    seconds = n * ANSWER_RUNS * estimate_seconds(page.model, n_tokens)
    half = Z_95 * math.sqrt(0.25 / (n + Z_95**2))  # of Wilson's interval at its widest
    draw_measurement(
        Measurement(
            NAME,
            (NAME, page.model_key, task, seed, n),
            "Measure the accuracy",
            f"About {time_text(seconds)} here. {n:,} samples leave up to ±{half:.2f}. {chance_words(task)}",
            partial(_measure, page.model, task, seed, n),
            partial(_draw_measured, page),
        )
    )


def _measure(
    model: HookedMTA,
    task: QuestionTask,
    seed: int,
    n: int,
    keep: Callable[[QuestionScore], None],
    job: Job,
) -> None:
    evaluate_questions(model, task, n=n, seed=seed, keep=keep, progress=job.report)


def _draw_measured(page: Page, found: QuestionScore | None, running: bool) -> None:
    """The accuracy so far, its answers, and what else was measured of this model."""
    if found is None:
        st.info("The first sample is on its way." if running else "Not measured yet.")
    else:
        st.markdown(plain(score_words(found)))
        _draw_answers(found)
    others = [one for key, one in kept(NAME).items() if isinstance(key, tuple) and key[1] == page.model_key]
    if len(others) > 1:
        caption("All that was measured of this model in this session:")
        st.dataframe([_row(one) for one in others], hide_index=True, width="content")


def _draw_answers(found: QuestionScore) -> None:
    with st.expander("Every answer"):
        rows = [
            {
                "sample": one.seed,
                "question": one.question,
                "gold": one.gold,
                "first sentence of the answer": one.said,
                "names": ", ".join(one.named),
                "right": "✓" if one.right else "✗",
            }
            for one in found.answers
        ]
        st.dataframe(rows, hide_index=True, height=300)
    save_table(
        (state.view().checkpoint, found.task, found.distraction), lambda: questions_csv([found]), "questions"
    )


def _row(one: QuestionScore) -> dict[str, object]:
    low, high = one.interval
    return {
        "task": one.task.upper(),
        "distraction": one.distraction,
        "accuracy": f"{one.accuracy:.2f} [{low:.2f}, {high:.2f}] n={one.n}",
        "chance": f"{one.chance:.2f}",
        "names none": one.silent,
    }


def score_words(found: QuestionScore) -> str:
    """The accuracy with its interval, beside chance, and how many answers name no label."""
    low, high = found.interval
    where = "above" if low > found.chance else "below" if high < found.chance else "not told apart from"
    words = (
        f"{found.right:,} of {found.n:,} right: accuracy {found.accuracy:.1%}, 95 % interval {low:.1%} to "
        f"{high:.1%}, {where} chance ({found.chance:.1%})."
    )
    if found.silent:
        words += f" Answers that name none of the possible ones: {found.silent:,} (a guess names one)."
    return words


def chance_words(task: QuestionTask) -> str:
    """What guessing gives, and what it is."""
    return f"Chance: one of the {len(task.labels)} possible answers at random, {task.chance:.1%} right."

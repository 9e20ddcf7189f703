"""The question lab: a story in distracting text, its question, who found its facts, and the accuracy.

How often questions are answered right: measured beside the page, beside chance; every answer.
"""

import math
from collections.abc import Callable
from functools import partial

import streamlit as st

from mta_viz.analysis.attention.spans import QUESTION
from mta_viz.analysis.labs.questions import (
    ANSWER_RUNS,
    NOT_TRAINED,
    QuestionRun,
    QuestionScore,
    evaluate_questions,
    fact_spans,
    run_question,
    trained_for_questions,
)
from mta_viz.exporting.results import questions_csv
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.intervals import Z_95
from mta_viz.tasks.questions import QuestionSample, QuestionTask, make_question_sample
from mta_viz.tasks.stories import TASKS
from mta_viz.ui.labs.finder import Prompt, draw_finder
from mta_viz.ui.labs.needle import can_write
from mta_viz.ui.labs.needle_form import draw_haystack
from mta_viz.ui.labs.parts import Mark, Measurement, draw_marked, draw_measurement, draw_sample_run, kept
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, plain, save_table
from mta_viz.ui.shell.work import Work, time_text

NAME = "questions"
MOST_QUESTIONS = 100_000


def draw_accuracy(page: Page, task: QuestionTask, seed: int, n_tokens: int) -> None:
    """How many samples, the button, and the accuracy so far; `n_tokens`: about a prompt's length."""
    n = int(
        st.number_input(
            "Samples",
            1,
            MOST_QUESTIONS,
            step=10,
            width=140,
            **state.kept("question n", 20, within=(1, MOST_QUESTIONS)),
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
    work: Work,
) -> None:
    evaluate_questions(model, task, n=n, seed=seed, keep=keep, progress=work.report)


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
        (state.selection().checkpoint, found.task, found.distraction),
        lambda: questions_csv([found]),
        "questions",
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


RUNS = 4.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer, gold answer
MOST = 1_000_000
COLORS = {"support": "green", "distractor": "orange", "question": "blue"}


def draw_questions(page: Page) -> None:
    """The form, one sample, the accuracy over many."""
    if not can_write(page, "Questions"):
        return
    task, seed = _draw_form(page.model.config.n_ctx)
    sample = remember(
        lambda: make_question_sample(page.model.tokenizer, task, seed),
        "question sample", page.model_key, task, seed,
    )  # fmt: skip
    if not trained_for_questions(page.model.source.path if page.model.source else None):
        st.info(plain(NOT_TRAINED))
    st.subheader("One sample")
    _draw_sample(page, task, seed, len(sample.tokens))
    st.subheader("Accuracy over many samples")
    draw_accuracy(page, task, seed, len(sample.tokens))


def _draw_form(n_ctx: int) -> tuple[QuestionTask, int]:
    names = list(TASKS)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "Task",
            names,
            format_func=lambda one: f"{one.upper()}: {TASKS[one]}",
            width=290,
            help="Short stories after the first five bAbI tasks, in words of their own. One to three facts "
            "support the answer, among others.",
            **state.kept("question task", names[0], names),
        )
        distraction = st.number_input(
            "Distraction in tokens",
            0,
            MOST,
            step=64,
            width=170,
            help="Of text between the facts, 0 for none. Facts and question come on top. This model was "
            f"trained on up to {n_ctx:,} tokens.",
            **state.kept("question distraction", min(512, n_ctx // 2), within=(0, MOST)),
        )
        seed = st.number_input(
            "Sample", 0, 10**9, width=130, **state.kept("question seed", 0, within=(0, 10**9))
        )
        with st.popover("Haystack", icon=":material/edit_note:", help="What the distraction is taken from"):
            haystack = draw_haystack()
    return QuestionTask(name, int(distraction), haystack), int(seed)


def _draw_sample(page: Page, task: QuestionTask, seed: int, n_tokens: int) -> None:
    key = ("question", page.model_key, task, seed)
    seconds = RUNS * estimate_seconds(page.model, n_tokens)
    run: QuestionRun | None = draw_sample_run(
        "question", key, seed, seconds, partial(_work, page.model, task, seed)
    )
    if run is None:
        return
    (st.success if run.scored.right else st.warning)(plain(answer_words(run)))
    _draw_prompt(run.sample, task)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = Prompt(text, lambda: fact_spans(run.sample, tokenizer.encode(text)))
    draw_finder(page, run.finder, key, "Fact", prompt)


def _work(model: HookedMTA, task: QuestionTask, seed: int, work: Work) -> QuestionRun:
    return run_question(model, task, seed, begin=work.begin, progress=work.report)


def _draw_prompt(sample: QuestionSample, task: QuestionTask) -> None:
    """The text with facts by role, and its legend."""
    marks, supports = [], []
    for span, part in zip(fact_spans(sample), (*sample.facts, sample.question), strict=True):
        marks.append(Mark(span, COLORS[part.role], strong=part.role == "support"))
        supports += [span.letter] if part.role == "support" else []
    draw_marked(sample.tokens, marks, "question")
    caption(
        f"{len(sample.tokens):,} tokens, {task.distraction:,} of them distraction. Green outline, bold: what "
        f"supports the answer, {' and '.join(supports)}. Orange: other facts. Blue, {QUESTION}: the question."
    )


def answer_words(run: QuestionRun) -> str:
    """The answer beside the gold one, and which failure it is."""
    sample, scored = run.sample, run.scored
    question, mark = sample.question.text.partition("?")[0], "✓" if scored.right else "✗"
    head = (
        f"Asked: {question}? Model: “{scored.sentence}”. Gold: {sample.answer} {mark}  "
        f"p(gold) {probability_text(run.probability)}."
    )
    if scored.right:
        return head
    if not scored.named:
        return f"{head} Its first sentence names none of the {len(sample.labels)} possible answers."
    also = "; one alone would be right" if sample.answer in scored.named else ""
    return f"{head} Its first sentence names {' and '.join(scored.named)}{also}."

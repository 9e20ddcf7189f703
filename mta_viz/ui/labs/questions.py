"""The question lab: a story in distracting text, its question and who found its facts; accuracy over many."""

import math
from collections.abc import Hashable
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
from mta_viz.figures.labs.measured import QuestionAnswers
from mta_viz.figures.labs.samples import QuestionFinder, Questions
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.intervals import Z_95
from mta_viz.tasks.questions import QuestionSample, QuestionTask
from mta_viz.tasks.stories import TASKS
from mta_viz.ui.labs.finder import Prompt, draw_finder
from mta_viz.ui.labs.needle import can_write
from mta_viz.ui.labs.parts import Mark, SampleRun, draw_haystack, draw_marked, sample_run, source_of
from mta_viz.ui.shell import show
from mta_viz.ui.shell.measuring import Measurement, all_results, draw_measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import time_text

NAME = "questions"
RUNS = 4.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer, gold answer
DISTRACTIONS, SEEDS, SAMPLES = (0, 1_000_000), (0, 10**9), (1, 100_000)
TASK, DISTRACTION = Setting("question task", next(iter(TASKS))), Setting("question distraction", 512)
SEED, MANY = Setting("question seed", 0), Setting("question n", 20)
SHOWN, WHOLE = Setting("question shown", False), Setting("question whole", False)
COLORS = {"support": "green", "distractor": "orange", "question": "blue"}


def draw_questions(page: Page) -> None:
    """The form, one sample, the accuracy over many."""
    if not can_write(page, "Questions"):
        return
    form = _draw_form(page.model.config.n_ctx)
    task = form.question_task(page.model)
    n_tokens = len(QuestionFinder(**vars(form)).asked(source_of(page)).tokens)
    if not trained_for_questions(page.model.source.path if page.model.source else None):
        st.info(plain(NOT_TRAINED))
    st.subheader("One sample")
    _draw_sample(page, form, task, n_tokens)
    st.subheader("Accuracy over many samples")
    _draw_accuracy(page, form, task, n_tokens)


def _draw_form(n_ctx: int) -> Questions:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "Task",
            list(TASKS),
            format_func=lambda name: f"{name.upper()}: {TASKS[name]}",
            width=290,
            help="Short stories after the first five bAbI tasks, in words of their own. One to three facts "
            "support the answer, among others.",
            **TASK.widget(list(TASKS)),
        )
        distraction = st.number_input(
            "Distraction in tokens",
            *DISTRACTIONS,
            step=64,
            width=170,
            help="Of text between the facts, 0 for none. Facts and question come on top. This model was "
            f"trained on up to {n_ctx:,} tokens.",
            **DISTRACTION.widget(default=min(512, n_ctx // 2), within=DISTRACTIONS),
        )
        seed = st.number_input("Sample", *SEEDS, width=130, **SEED.widget(within=SEEDS))
        with st.popover("Haystack", icon=":material/edit_note:", help="What the distraction is taken from"):
            haystack = draw_haystack()
    return Questions(name, int(distraction), int(seed), haystack)


def _draw_sample(page: Page, form: Questions, task: QuestionTask, n_tokens: int) -> None:
    run: QuestionRun | None = sample_run(
        SampleRun(
            "question",
            (page.model_key, task),
            SEED,
            SHOWN,
            RUNS * estimate_seconds(page.model, n_tokens),
            lambda work: run_question(page.model, task, form.seed, begin=work.begin, progress=work.report),
        )
    )
    if run is None:
        return
    (st.success if run.scored.right else st.warning)(plain(answer_words(run)))
    _draw_prompt(run.sample, task)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = Prompt(text, lambda: fact_spans(run.sample, tokenizer.encode(text)))
    draw_finder(page, QuestionFinder(**vars(form)), run.finder, "Fact", prompt)


def _draw_prompt(sample: QuestionSample, task: QuestionTask) -> None:
    """The text with facts by role, and its legend."""
    marks, supports = [], []
    for span, part in zip(fact_spans(sample), (*sample.facts, sample.question), strict=True):
        marks.append(Mark(span, COLORS[part.role], strong=part.role == "support"))
        supports += [span.letter] if part.role == "support" else []
    draw_marked(sample.tokens, marks, WHOLE)
    caption(
        f"{len(sample.tokens):,} tokens, {task.distraction:,} of them distraction. Green outline, bold: what "
        f"supports the answer, {' and '.join(supports)}. Orange: other facts. Blue, {QUESTION}: the question."
    )


def answer_words(run: QuestionRun) -> str:
    """The answer beside the gold one, and which failure it is."""
    sample, scored = run.sample, run.scored
    question, mark = sample.question.text.partition("?")[0], "✓" if scored.right else "✗"
    words = (
        f"Asked: {question}? Model: “{scored.sentence}”. Gold: {sample.answer} {mark}  "
        f"p(gold) {probability_text(run.probability)}."
    )
    if scored.right:
        return words
    if not scored.named:
        return f"{words} Its first sentence names none of the {len(sample.labels)} possible answers."
    also = "; one alone would be right" if sample.answer in scored.named else ""
    return f"{words} Its first sentence names {' and '.join(scored.named)}{also}."


def _draw_accuracy(page: Page, form: Questions, task: QuestionTask, n_tokens: int) -> None:
    """How many samples, the button, and the accuracy so far; `n_tokens`: about a prompt's length."""
    n = int(st.number_input("Samples", *SAMPLES, step=10, width=140, **MANY.widget(within=SAMPLES)))
    figure = QuestionAnswers(**vars(form), samples=n)
    seconds = n * ANSWER_RUNS * estimate_seconds(page.model, n_tokens)
    half = Z_95 * math.sqrt(0.25 / (n + Z_95**2))  # of Wilson's interval at its widest
    draw_measured(
        Measurement(
            NAME,
            (NAME, page.model_key, figure),
            "Measure the accuracy",
            lambda work, keep: evaluate_questions(
                page.model, task, n=n, seed=form.seed, keep=keep, progress=work.report
            ),
            f"About {time_text(seconds)} here. {n:,} samples leave up to ±{half:.2f}. {chance_words(task)}",
        ),
        partial(_draw_measured, page, figure),
    )


def _draw_measured(page: Page, figure: QuestionAnswers, score: QuestionScore | None, running: bool) -> None:
    """The accuracy so far, its answers, and what else was measured of this model."""
    if score is None:
        st.info("The first sample is on its way." if running else "Not measured yet.")
    else:
        st.markdown(plain(score_words(score)))
        _draw_answers(page, figure, score)
    own = [score for key, score in all_results(NAME).items() if _is_of(key, page)]
    if len(own) > 1:
        caption("All that was measured of this model in this session:")
        st.dataframe(list(map(_row, own)), hide_index=True, width="content")


def _is_of(key: Hashable, page: Page) -> bool:
    return isinstance(key, tuple) and key[1] == page.model_key


def _draw_answers(page: Page, figure: QuestionAnswers, score: QuestionScore) -> None:
    with st.expander("Every answer"):
        rows = [
            {
                "sample": answer.seed,
                "question": answer.question,
                "gold": answer.gold,
                "first sentence of the answer": answer.sentence,
                "names": ", ".join(answer.named),
                "right": "✓" if answer.right else "✗",
            }
            for answer in score.answers
        ]
        st.dataframe(rows, hide_index=True, height=300)
    show.show(source_of(page), figure, result=score)


def _row(score: QuestionScore) -> dict[str, object]:
    accuracy, (low, high) = score.accuracy, score.accuracy.interval
    return {
        "task": score.task.upper(),
        "distraction": score.distraction,
        "accuracy": f"{accuracy.accuracy:.2f} [{low:.2f}, {high:.2f}] n={accuracy.n}",
        "chance": f"{score.chance:.2f}",
        "names none": score.silent,
    }


def score_words(score: QuestionScore) -> str:
    """The accuracy with its interval, beside chance, and how many answers name no label."""
    accuracy, (low, high) = score.accuracy, score.accuracy.interval
    where = "above" if low > score.chance else "below" if high < score.chance else "not told apart from"
    words = (
        f"{accuracy.right:,} of {accuracy.n:,} right: accuracy {accuracy.accuracy:.1%}, 95 % interval "
        f"{low:.1%} to {high:.1%}, {where} chance ({score.chance:.1%})."
    )
    if score.silent:
        words += f" Answers that name none of the possible ones: {score.silent:,} (a guess names one)."
    return words


def chance_words(task: QuestionTask) -> str:
    """What guessing gives, and what it is."""
    return f"Chance: one of the {len(task.labels)} possible answers at random, {task.chance:.1%} right."

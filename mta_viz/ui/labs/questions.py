"""The question lab: a story in distracting text, its question and who found its facts; accuracy over many."""

from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.labs import evaluation as questions
from mta_viz.analysis.labs.evaluation import QuestionRun, QuestionScore
from mta_viz.analysis.labs.finder import prompt_spans
from mta_viz.figures.labs.measured import QuestionAnswers
from mta_viz.figures.labs.samples import QuestionFinder, Questions
from mta_viz.printed import probability_text, time_text
from mta_viz.tasks.intervals import widest_half
from mta_viz.tasks.questions import QuestionTask
from mta_viz.tasks.stories import TASKS
from mta_viz.ui.labs import fits, parts
from mta_viz.ui.labs.needle import can_write
from mta_viz.ui.labs.parts import source_of
from mta_viz.ui.shell import show
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, menu, number, plain
from mta_viz.ui.shell.work import Work

NAME = "questions"
RUNS = 4.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer, gold answer
TASK, DISTRACTION = Setting("question task", next(iter(TASKS))), Setting("question distraction", 512)
SEED, MANY = Setting("question seed", 0), Setting("question n", 20)
SHOWN, WHOLE = Setting("question shown", False), Setting("question whole", False)


def draw_questions(page: Page) -> None:
    """How often it is right, and one sample."""
    if not can_write(page, "questions"):
        return
    if not fits.draw_untrained(page, "questions") and not questions.trained_for_questions(page.model.path):
        caption(questions.NOT_TRAINED)
    with parts.settings("question", SEED) as beside:
        form = _draw_form(page.model.config.n_ctx)
        n = number("Samples measured", MANY, (1, 100_000), step=10, width=150)
        whole = st.toggle("Whole text", **WHOLE.widget())
    task = form.question_task(page.model)
    n_tokens = len(QuestionFinder(**vars(form)).asked(source_of(page)).tokens)
    _draw_sample(page, form, task, n_tokens, whole)
    with beside:  # after what a visitor waits for
        _draw_accuracy(page, form, task, n_tokens, n)


def _draw_form(n_ctx: int) -> Questions:
    of_tasks = (
        "Short stories after the first five bAbI tasks, in words of their own. One to three facts support "
        "the answer, among others."
    )
    of_distraction = (
        "Of text between the facts, 0 for none. Facts and question come on top. This model was trained on "
        f"up to {n_ctx:,} tokens."
    )
    look: dict[str, Any] = {"default": min(512, n_ctx // 2), "step": 64, "width": 170, "help": of_distraction}
    tasks = {name: f"{name.upper()}: {words}" for name, words in TASKS.items()}
    name = menu("Task", tasks, TASK, width=290, help=of_tasks)
    distraction = number("Distraction in tokens", DISTRACTION, (0, 1_000_000), **look)
    seed = number("Sample", SEED, (0, 10**9), width=130)
    return Questions(name, distraction, seed, parts.draw_haystack())


def _draw_sample(page: Page, form: Questions, task: QuestionTask, n_tokens: int, whole: bool) -> None:
    seconds = fits.seconds_here(page.model, n_tokens, RUNS)

    def do(work: Work, keep: Keep) -> QuestionRun:
        return questions.run_question(page.model, task, form.seed, begin=work.begin, progress=work.report)

    key = (page.model_key, task)
    run: QuestionRun | None = parts.sample_run("question", key, SEED, SHOWN, seconds, do)
    if run is None:
        return
    parts.draw_verdict(_answer_words(run))
    spans, words = prompt_spans(run.sample), f", {task.distraction:,} of them distraction"
    parts.draw_text(run.sample.tokens, spans, whole, words)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = (text, lambda: prompt_spans(run.sample, tokenizer.encode(text)))
    parts.draw_heads(page, QuestionFinder(**vars(form)), None, run.finder, "Fact", prompt)


def _answer_words(run: QuestionRun) -> str:
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


def _draw_accuracy(page: Page, form: Questions, task: QuestionTask, n_tokens: int, n: int) -> None:
    figure = QuestionAnswers(**vars(form), samples=n)
    seconds = fits.seconds_here(page.model, n_tokens, n * questions.ANSWER_RUNS)
    words = f"About {time_text(seconds)} here. {n:,} samples leave up to ±{widest_half(n):.2f}. "
    words += f"Chance: one of the {len(task.labels)} possible answers at random, {task.chance:.1%} right."

    def measure(work: Work, keep: Keep) -> QuestionScore:
        evaluate = questions.evaluate_questions
        return evaluate(page.model, task, n=n, seed=form.seed, keep=keep, progress=work.report)

    key = (NAME, page.model_key, figure)
    by_itself = fits.opens(seconds)
    measurement = Measurement(NAME, key, f"Measure {n} samples", measure, words, by_itself=by_itself)
    draw_measured(measurement, partial(_draw_measured, page, figure))


def _draw_measured(page: Page, figure: QuestionAnswers, score: QuestionScore | None, running: bool) -> None:
    if score is None and running:
        st.info("The first sample is on its way.")
    elif score is not None:
        st.markdown(plain(score_words(score)))
        answers = show.draw(source_of(page), figure, score)
        with st.expander("Every answer"):
            rows = answers.table.frame().drop(columns=["task", "distraction"])  # the form has them
            st.dataframe(rows, hide_index=True, height=300)
        show.save_line(answers)


def score_words(score: QuestionScore) -> str:
    """The accuracy with its interval, beside chance, and how many answers name no label."""
    accuracy, (low, high) = score.accuracy, score.accuracy.interval
    where = "above" if low > score.chance else "below" if high < score.chance else "not told apart from"
    words = (
        f"{accuracy.right:,} of {accuracy.n:,} right: accuracy {accuracy.accuracy:.1%}, 95 % interval "
        f"{low:.1%} to {high:.1%}, {where} chance ({score.chance:.1%})."
    )
    silent = f" Answers that name none of the possible ones: {score.silent:,} (a guess names one)."
    return words + silent if score.silent else words

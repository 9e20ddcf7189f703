"""The question lab: a story in distracting text, its question, who found its facts, and the accuracy."""

from functools import partial

import streamlit as st

from mta_viz.analysis.labs.question_accuracy import NOT_TRAINED, trained_for_questions
from mta_viz.analysis.labs.question_run import QuestionRun, fact_spans, run_question
from mta_viz.analysis.spans import QUESTION
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.theme import probability_text
from mta_viz.tasks.questions import QuestionSample, QuestionTask, make_question_sample
from mta_viz.tasks.stories import TASKS
from mta_viz.tracing import estimate_seconds
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.labs.finder_view import Prompt, draw_finder
from mta_viz.ui.labs.marked_text import Mark, draw_marked
from mta_viz.ui.labs.needle import can_write
from mta_viz.ui.labs.needle_form import draw_haystack
from mta_viz.ui.labs.question_accuracy_view import draw_accuracy
from mta_viz.ui.labs.sample import draw_sample_run
from mta_viz.ui.open_page import Page
from mta_viz.ui.running import Job
from mta_viz.ui.widgets import caption, plain

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


def _work(model: HookedMTA, task: QuestionTask, seed: int, job: Job) -> QuestionRun:
    return run_question(model, task, seed, begin=job.begin, progress=job.report)


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

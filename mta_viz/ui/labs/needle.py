"""The needle lab: one sample with its answer and the heads that found it, repeated, then a sweep."""

import itertools
import math
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import SCORES
from mta_viz.analysis.attention.spans import QUESTION
from mta_viz.analysis.labs import needle as needles
from mta_viz.analysis.labs.finder import prompt_spans
from mta_viz.analysis.labs.needle import FinderMeans, NeedleRun
from mta_viz.errors import TokenizerError
from mta_viz.figures.labs.samples import NeedleCrop, NeedleFinder, Needles
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.intervals import mean_words, median_words
from mta_viz.tasks.needles import MAX_NEEDLES, PAPER_NEEDLE, TEMPLATES, NeedleTask, make_needle_sample
from mta_viz.ui.fields import menu, number
from mta_viz.ui.labs import parts
from mta_viz.ui.labs.parts import SCORE
from mta_viz.ui.labs.sweep import draw_opened, draw_sweep
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text

RUNS = 3.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer twice
ANYWHERE, OWN = "anywhere", "my own"
PERCENTS = (0, 10, 25, 50, 75, 90, 100)
DEPTHS: dict[str | int, str] = {ANYWHERE: ANYWHERE, **{depth: f"{depth} %" for depth in PERCENTS}}
COUNT, LENGTH, SEED = Setting("needle number", 4), Setting("needle length", 512), Setting("needle seed", 0)
DEPTH = Setting[str | int]("needle depth", 50)
TEMPLATE = Setting("needle template", next(iter(TEMPLATES)))
NEEDLE, QUESTION_TEXT = Setting("needle needle", PAPER_NEEDLE), Setting("needle question", "")
SHOWN, WHOLE, REPEAT = Setting("needle shown", False), Setting("needle whole", False), Setting("gains n", 20)
OTHERS = ("orange", "violet", "red", "gray")  # colours of needles that are not asked for


def draw_needle(page: Page) -> None:
    """The form, one sample, the sweep; a results file whatever the model."""
    with errors_as_messages():
        if can_write(page):
            form = _draw_form(page.model.config.n_ctx)
            st.subheader("One sample")
            _draw_sample(page, form, form.task(page.model))
            st.subheader("Sweep")
            draw_sweep(page, form)
    st.subheader("Results from a file")
    draw_opened(page)


def can_write(page: Page, what: str = "Needles") -> bool:
    """Whether this model's tokenizer can write such sentences; says why not, and what to do."""
    tokenizer = needles.check_vocabulary(page.model, page.model.tokenizer)
    try:
        make_needle_sample(tokenizer, NeedleTask(1, 1000, haystack="A word. " * 900), 0)
    except TokenizerError:
        words = (
            f"{what} are sentences of English, and this model's tokenizer ({tokenizer.kind}) cannot write "
            "them. Choose a language model at the left, needle-mta for example, or the tab Blocks."
        )
        st.info(plain(words))
        return False
    return True


def _draw_form(n_ctx: int) -> Needles:
    of_length = f"Of the prompt, question included. This model was trained on up to {n_ctx:,}."
    of_depth = "How much of the haystack comes before the asked needle."
    look: dict[str, Any] = {"default": min(512, n_ctx), "step": 64, "width": 150, "help": of_length}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        count = menu("Needles", range(1, MAX_NEEDLES + 1), COUNT, width=100)
        length = number("Length in tokens", LENGTH, (64, 1_000_000), **look)
        depth = menu("Depth", DEPTHS, DEPTH, width=120, help=of_depth)
        seed = number("Sample", SEED, (0, 10**9), width=130)
        with st.popover("Wording", icon=":material/edit_note:"):  # seldom changed
            wording = (*_pick_template(), parts.draw_haystack())
    return Needles(count, length, depth if isinstance(depth, int) else None, seed, *wording)


def _pick_template() -> tuple[str, str | None]:
    names = (*TEMPLATES, OWN)
    name = st.radio("Template", names, horizontal=True, **TEMPLATE.widget(names))
    if name in TEMPLATES:
        needle, question = TEMPLATES[name]
        st.text(f"{needle}\n{question or 'The question is the needle up to its value.'}")
        return needle, question
    needle = st.text_input("Needle, with {city} and {value}", **NEEDLE.widget())
    label = "Question, with {city}; empty: the needle up to its value"
    return needle, st.text_input(label, **QUESTION_TEXT.widget()) or None


def _draw_sample(page: Page, form: Needles, task: NeedleTask) -> None:
    seconds = RUNS * estimate_seconds(page.model, task.length)

    def do(work: Work, keep: Keep) -> NeedleRun:
        return needles.run_needle(page.model, task, form.seed, begin=work.begin, progress=work.report)

    key = (page.model_key, task)
    run: NeedleRun | None = parts.sample_run("needle", key, SEED, SHOWN, seconds, do)
    if run is None:
        return
    parts.draw_verdict(run.right, _answer_words(run))
    _draw_prompt(run)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = (text, lambda: prompt_spans(run.sample, tokenizer.encode(text)))
    parts.draw_finder(page, NeedleFinder(**vars(form)), run.finder, "Needle", prompt)
    parts.draw_crops(page, NeedleCrop(**vars(form)), "question x asked needle")
    _draw_repeated(page, task, form.seed)


def _draw_prompt(run: NeedleRun) -> None:
    sample = run.sample
    spans = prompt_spans(sample)
    marks = []
    for other, span in zip(itertools.cycle(OTHERS), spans, strict=False):
        asked = span.letter != QUESTION and span.name.endswith("(asked)")
        color = "blue" if span.letter == QUESTION else "green" if asked else other
        marks.append((span, color, asked))
    parts.draw_marked(sample.tokens, marks, WHOLE)
    named = ", ".join(f"{span.letter} {span.name} at token {span.start}" for span in spans)
    depth = "without haystack" if math.isnan(sample.depth) else f"at depth {sample.depth:.0f} %"
    caption(f"{len(sample.tokens):,} tokens. {named}. Green: the asked needle, {depth}. Blue: the question.")


def _answer_words(run: NeedleRun) -> str:
    sample = run.sample
    answer = run.number or f"no number but “{run.continuation.strip()}”"
    mark = "✓" if run.right else "✗"
    words = (
        f"Asked: {sample.subject}. Model: {answer}. Gold: {sample.answer} {mark}  "
        f"p(gold) {probability_text(run.probability)}."
    )
    if run.right:
        return words
    if run.named is not None:
        letter = "ABCDEFGH"[sample.needles.index(run.named)]
        return (
            f"{words} The model answered {run.number}, the number of {run.named.subject} (needle {letter})."
        )
    return f"{words} No needle has this answer."


def _draw_repeated(page: Page, task: NeedleTask, seed: int) -> None:
    n = number("Repeat on samples", REPEAT, (2, 10_000), width=170)
    key = ("gains", page.model_key, task, seed, n)
    label = f"Repeat, about {time_text(n * estimate_seconds(page.model, task.length))}"

    def measure(work: Work, keep: Keep) -> FinderMeans:
        return needles.finder_means(page.model, task, seed, n, keep=keep, progress=work.report)

    draw_measured(Measurement("gains", key, label, measure), partial(_draw_means, page, key))


def _draw_means(page: Page, key: object, means: FinderMeans | None, running: bool) -> None:
    score = next((score for score in SCORES if score.key == SCORE.value), None)
    if means is None or score is None or score.key not in means.values:
        caption("This is one prompt. Over more, heads are ranked by the lower end of an interval.")
        return
    over = means.score(score.key)

    def row(layer: int, head: int) -> dict[str, Any]:
        columns = {"median": over.median, "median low": over.median_low, "median high": over.median_high}
        columns |= {"mean": over.mean}
        if score.bounds is not None:
            columns |= {"low": over.low, "high": over.high}
        return {name: value_text(score, float(values[layer, head])) for name, values in columns.items()}

    name, places = f"gains.{hash((key, score.key))}", needles.ranked_places(over)
    parts.ranked_table(name, places, row, page.numbering, height=220)
    caption(
        f"{score.name} ({score.unit}) of the asked needle over {means.n:,} samples: "
        f"{median_words(means.n)} {mean_words(score.bounds)} Heads ranked by the lower end of the "
        "median's. Click a row to choose its head."
    )

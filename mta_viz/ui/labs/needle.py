"""The needle lab: one sample with its answer and the heads that found it, repeated, then a sweep."""

import math
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import SCORES
from mta_viz.analysis.attention.spans import QUESTION, Span
from mta_viz.analysis.labs.finder import prompt_spans
from mta_viz.analysis.labs.needle import (
    FinderMeans,
    NeedleRun,
    check_vocabulary,
    finder_means,
    ranked_places,
    run_needle,
)
from mta_viz.errors import TokenizerError
from mta_viz.figures.labs.samples import NeedleCrop, NeedleFinder, Needles
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.needles import MAX_NEEDLES, PAPER_NEEDLE, TEMPLATES, NeedleTask, make_needle_sample
from mta_viz.ui.labs.finder import SCORE, Prompt, draw_crops, draw_finder
from mta_viz.ui.labs.parts import Mark, SampleRun, draw_haystack, draw_marked, ranked_table, sample_run
from mta_viz.ui.labs.sweep import draw_opened, draw_sweep
from mta_viz.ui.shell.measuring import Measurement, draw_measured
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import time_text

RUNS = 3.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer twice
ANYWHERE, OWN = "anywhere", "my own"
COUNTS, LENGTHS = range(1, MAX_NEEDLES + 1), (64, 1_000_000)
DEPTHS = (ANYWHERE, 0, 10, 25, 50, 75, 90, 100)
SEEDS, REPEATS = (0, 10**9), (2, 10_000)
COUNT, LENGTH, SEED = Setting("needle number", 4), Setting("needle length", 512), Setting("needle seed", 0)
DEPTH = Setting[str | int]("needle depth", 50)
TEMPLATE = Setting("needle template", next(iter(TEMPLATES)))
NEEDLE, QUESTION_TEXT = Setting("needle needle", PAPER_NEEDLE), Setting("needle question", "")
SHOWN, WHOLE, REPEAT = Setting("needle shown", False), Setting("needle whole", False), Setting("gains n", 20)
ASKED, ASKING = "green", "blue"
OTHERS = ("orange", "violet", "red", "gray")


def draw_needle(page: Page) -> None:
    """The form, one sample, the sweep; a results file whatever the model."""
    with errors_as_messages():
        _draw_lab(page)
    st.subheader("Results from a file")
    draw_opened(page)


def _draw_lab(page: Page) -> None:
    if not can_write(page):
        return
    form = _draw_form(page.model.config.n_ctx)
    st.subheader("One sample")
    _draw_sample(page, form, form.task(page.model))
    st.subheader("Sweep")
    draw_sweep(page, form)


def can_write(page: Page, what: str = "Needles") -> bool:
    """Whether this model's tokenizer can write such sentences; says why not, and what to do."""
    tokenizer = check_vocabulary(page.model, page.model.tokenizer)
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
    """One row of fields."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        needles = st.selectbox("Needles", COUNTS, width=100, **COUNT.widget(COUNTS))
        length = st.number_input(
            "Length in tokens",
            *LENGTHS,
            step=64,
            width=150,
            help=f"Of the prompt, question included. This model was trained on up to {n_ctx:,}.",
            **LENGTH.widget(default=min(512, n_ctx), within=LENGTHS),
        )
        depth = st.selectbox(
            "Depth",
            DEPTHS,
            format_func=lambda depth: depth if depth == ANYWHERE else f"{depth} %",
            width=120,
            help="How much of the haystack comes before the asked needle.",
            **DEPTH.widget(DEPTHS),
        )
        seed = st.number_input("Sample", *SEEDS, width=130, **SEED.widget(within=SEEDS))
        wording = _draw_wording()
    place = depth if isinstance(depth, int) else None
    return Needles(needles, int(length), place, int(seed), *wording)


def _draw_wording() -> tuple[str, str | None, str | None]:
    """Needle, question and haystack, in a menu of their own: seldom changed."""
    with st.popover("Wording", icon=":material/edit_note:"):
        names = (*TEMPLATES, OWN)
        name = st.radio("Template", names, horizontal=True, **TEMPLATE.widget(names))
        if name in TEMPLATES:
            needle, question = TEMPLATES[name]
            st.text(f"{needle}\n{question or 'The question is the needle up to its value.'}")
            return needle, question, draw_haystack()
        needle = st.text_input("Needle, with {city} and {value}", **NEEDLE.widget())
        label = "Question, with {city}; empty: the needle up to its value"
        return needle, st.text_input(label, **QUESTION_TEXT.widget()) or None, draw_haystack()


def _draw_sample(page: Page, form: Needles, task: NeedleTask) -> None:
    run: NeedleRun | None = sample_run(
        SampleRun(
            "needle",
            (page.model_key, task),
            SEED,
            SHOWN,
            RUNS * estimate_seconds(page.model, task.length),
            lambda work: run_needle(page.model, task, form.seed, begin=work.begin, progress=work.report),
        )
    )
    if run is None:
        return
    (st.success if run.right else st.warning)(plain(answer_words(run)))
    _draw_prompt(run)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = Prompt(text, lambda: prompt_spans(run.sample, tokenizer.encode(text)))
    draw_finder(page, NeedleFinder(**vars(form)), run.finder, "Needle", prompt)
    draw_crops(page, NeedleCrop(**vars(form)), "question x asked needle")
    _draw_repeated(page, task, form.seed)


def _draw_prompt(run: NeedleRun) -> None:
    """The text with needles and question on colours, and its legend."""
    sample = run.sample
    spans = prompt_spans(sample)
    draw_marked(sample.tokens, [_mark(span, place) for place, span in enumerate(spans)], WHOLE)
    named = ", ".join(f"{span.letter} {span.name} at token {span.start}" for span in spans)
    depth = "without haystack" if math.isnan(sample.depth) else f"at depth {sample.depth:.0f} %"
    caption(f"{len(sample.tokens):,} tokens. {named}. Green: the asked needle, {depth}. Blue: the question.")


def _mark(span: Span, place: int) -> Mark:
    if span.letter == QUESTION:
        return Mark(span, ASKING)
    asked = span.name.endswith("(asked)")
    return Mark(span, ASKED if asked else OTHERS[place % len(OTHERS)], strong=asked)


def answer_words(run: NeedleRun) -> str:
    """The answer beside the gold one, and which failure it is."""
    sample = run.sample
    answer = run.number or f"no number but “{run.continuation.strip()}”"
    mark = "✓" if run.right else "✗"
    words = (
        f"Asked: {sample.city}. Model: {answer}. Gold: {sample.answer} {mark}  "
        f"p(gold) {probability_text(run.probability)}."
    )
    if run.right:
        return words
    if run.named is not None:
        letter = "ABCDEFGH"[sample.needles.index(run.named)]
        return f"{words} The model answered {run.number}, the number of {run.named.city} (needle {letter})."
    return f"{words} No needle has this answer."


def _draw_repeated(page: Page, task: NeedleTask, seed: int) -> None:
    """The finder over samples: heads ranked by the lower end of the score's interval."""
    n = int(st.number_input("Repeat on samples", *REPEATS, width=170, **REPEAT.widget(within=REPEATS)))
    key = ("gains", page.model_key, task, seed, n)
    draw_measured(
        Measurement(
            "gains",
            key,
            f"Repeat, about {time_text(n * estimate_seconds(page.model, task.length))}",
            lambda work, keep: finder_means(page.model, task, seed, n, keep=keep, progress=work.report),
        ),
        partial(_draw_means, page, key),
    )


def _draw_means(page: Page, key: object, means: FinderMeans | None, running: bool) -> None:
    """The heads so far."""
    score = next((score for score in SCORES if score.key == SCORE.value), None)
    if means is None or score is None or score.key not in means.scores:
        caption("One prompt proves little. Repeated, heads are ranked by what is sure of them.")
        return
    ends = means.scores[score.key]

    def row(layer: int, head: int) -> dict[str, Any]:
        columns = {"mean": ends.mean, "low": ends.low, "high": ends.high}
        return {name: value_text(score, float(values[layer, head])) for name, values in columns.items()}

    ranked_table(f"gains.{hash((key, score.key))}", ranked_places(ends), row, page.numbering, height=220)
    caption(
        f"{score.name} ({score.unit}) of the asked needle, mean over {means.n:,} samples with the 95 % "
        "bootstrap interval; heads ranked by its lower end. Click a row to choose its head."
    )

"""The needle lab: one sample with its answer and the heads that found it, repeated, then a sweep."""

import math
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.heads import SCORES
from mta_viz.analysis.labs import needle as needles
from mta_viz.analysis.labs.finder import prompt_spans, sample_parts
from mta_viz.analysis.labs.needle import FinderMeans, NeedleRun
from mta_viz.errors import TokenizerError
from mta_viz.figures.labs.samples import (
    CropMap,
    FinderMap,
    NeedleCrop,
    NeedleFinder,
    Needles,
    OfTask,
    Pairs,
    PairsCrop,
    PairsFinder,
    Written,
    WrittenCrop,
    WrittenFinder,
)
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.spans import ASKED, colors_of
from mta_viz.plots.theme import probability_text
from mta_viz.run.named_tasks import written_task
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.intervals import mean_words, median_words
from mta_viz.tasks.needles import MAX_NEEDLES, PAPER_NEEDLE, TEMPLATES, NeedleTask, make_needle_sample
from mta_viz.tasks.pairs import MAX_SIDE
from mta_viz.tasks.written import WrittenTask
from mta_viz.ui.fields import bar, menu, number
from mta_viz.ui.labs import parts
from mta_viz.ui.labs.parts import SCORE
from mta_viz.ui.labs.sweep import draw_opened, draw_sweep
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain, text_file
from mta_viz.ui.shell.work import Work, time_text

RUNS = 3.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer twice
ANYWHERE, OWN = "anywhere", "my own"
PERCENTS = (0, 10, 25, 50, 75, 90, 100)
DEPTHS: dict[str | int, str] = {ANYWHERE: ANYWHERE, **{depth: f"{depth} %" for depth in PERCENTS}}
SIDES, LENGTHS = range(1, MAX_SIDE + 1), (64, 1_000_000)
TASK = Setting("needle task", "needle")
COUNT, LENGTH, SEED = Setting("needle number", 4), Setting("needle length", 512), Setting("needle seed", 0)
NAMES, CITIES = Setting("pairs names", 3), Setting("pairs cities", 3)
PAIRS_LENGTH = Setting("pairs length", 256)
DEPTH = Setting[str | int]("needle depth", 50)
TEMPLATE = Setting("needle template", next(iter(TEMPLATES)))
NEEDLE, QUESTION_TEXT = Setting("needle needle", PAPER_NEEDLE), Setting("needle question", "")
SHOWN, WHOLE, REPEAT = Setting("needle shown", False), Setting("needle whole", False), Setting("gains n", 20)
FIGURES: dict[type[OfTask], tuple[type[FinderMap], type[CropMap]]] = {
    Needles: (NeedleFinder, NeedleCrop),
    Pairs: (PairsFinder, PairsCrop),
    Written: (WrittenFinder, WrittenCrop),
}
OF_FILE = (
    'A line of the file is a sample: {"prompt": "...", "answer": "..."}. Spans of characters may be marked, '
    '"spans": [{"kind": "asked", "start": 0, "stop": 20}]: asked, the fact that gives the answer; needle, '
    "another fact; question, which is the last sentence where none is marked."
)


def draw_needle(page: Page) -> None:
    """The task, its form, one sample, the sweep; a results file whatever the model."""
    with errors_as_messages():
        if can_write(page):
            form = _draw_task(page.model.config.n_ctx)
            if form is not None:
                st.subheader("One sample")
                _draw_sample(page, form)
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


def _draw_task(n_ctx: int) -> OfTask | None:
    """Which task, and its form; None until there is a file."""
    forms = {
        "needle": ("A city's number", _draw_needles),
        "pairs": ("A name's number in a city", _draw_pairs),
        "file": ("Prompts of a file", _draw_file),
    }
    task = bar("What is asked for", {name: words for name, (words, _) in forms.items()}, TASK)
    return forms[task][1](n_ctx)


def _draw_needles(n_ctx: int) -> Needles:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        count = menu("Needles", range(1, MAX_NEEDLES + 1), COUNT, width=100)
        place = _pick_place(n_ctx, LENGTH)
        with st.popover("Wording", icon=":material/edit_note:"):  # seldom changed
            wording = (*_pick_template(), parts.draw_haystack())
    return Needles(count, *place, *wording)


def _draw_pairs(n_ctx: int) -> Pairs:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = menu("Names", SIDES, NAMES, width=100)
        cities = menu("Cities", SIDES, CITIES, width=100)
        place = _pick_place(n_ctx, PAIRS_LENGTH)
        with st.popover("Haystack", icon=":material/edit_note:"):
            haystack = parts.draw_haystack()
    caption(
        f"{names * cities} sentences, a number for every name in every city: both words are needed together. "
        f"The name alone is right once in {cities}, the city alone once in {names}, any number of the prompt "
        f"once in {names * cities}. A model that learnt needles of one city each has not learnt this; the "
        "sweep measures what it can do."
    )
    return Pairs(names, cities, *place, haystack)


def _draw_file(n_ctx: int) -> Written | None:
    file = text_file("task file", "Prompts and answers (JSON Lines)", ["jsonl"], 20, "Let go of the file")
    caption(OF_FILE)
    if file is None:
        st.info("No file yet. Choose one above; it is read here and sent nowhere.")
        return None
    most = len(written_task(file[1]).samples) - 1
    return Written(file[1], number(f"Sample, 0 to {most:,}", SEED, (0, most), width=170))


def _pick_place(n_ctx: int, setting: Setting[int]) -> tuple[int, int | None, int]:
    """Length, depth and number of the sample."""
    of_length = f"Of the prompt, question included. This model was trained on up to {n_ctx:,}."
    of_depth = "How much of the haystack comes before the asked needle."
    usual = min(setting.default, n_ctx)
    length = number("Length in tokens", setting, LENGTHS, default=usual, step=64, width=150, help=of_length)
    depth = menu("Depth", DEPTHS, DEPTH, width=120, help=of_depth)
    return length, depth if isinstance(depth, int) else None, number("Sample", SEED, (0, 10**9), width=130)


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


def _draw_sample(page: Page, form: OfTask) -> None:
    task = form.task(page.model)
    seconds = RUNS * estimate_seconds(page.model, form.n_tokens(page.model))

    def do(work: Work, keep: Keep) -> NeedleRun:
        return needles.run_needle(page.model, task, form.seed, begin=work.begin, progress=work.report)

    key = (page.model_key, task)
    run: NeedleRun | None = parts.sample_run("needle", key, SEED, SHOWN, seconds, do)
    if run is None:
        return
    parts.draw_verdict(run.right, _answer_words(run))
    if run.finder is None:
        caption("No span of this sample is marked as asked: there is nothing for heads to find.")
        return
    _draw_prompt(run)
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = (text, lambda: prompt_spans(run.sample, tokenizer.encode(text)))
    finder, crop = FIGURES[type(form)]
    parts.draw_finder(page, finder(**vars(form)), run.finder, "Needle", prompt)
    parts.draw_crops(page, crop(**vars(form)), "question x asked needle")
    _draw_repeated(page, form)


def _draw_prompt(run: NeedleRun) -> None:
    sample = run.sample
    spans = prompt_spans(sample)
    marks = [(span, color.name, color is ASKED) for span, color in zip(spans, colors_of(spans), strict=True)]
    marks.sort(key=lambda mark: mark[0].start)
    parts.draw_marked(sample.tokens, marks, WHOLE)
    named = ", ".join(f"{span.letter} {span.name} at token {span.start}" for span in spans)
    depth = "" if sample.sentences else ", without haystack"
    if not math.isnan(sample.depth):
        depth = f", at depth {sample.depth:.0f} %"
    caption(f"{len(sample.tokens):,} tokens. {named}. Green: the asked needle{depth}. Blue: the question.")


def _answer_words(run: NeedleRun) -> str:
    sample, gold = run.sample, run.sample.answer
    kind = "number" if gold.isdigit() else "answer"
    answer = run.answered or f"no {kind} but “{run.continuation.strip()}”"
    mark = "✓" if run.right else "✗"
    words = (
        f"Asked: {sample.subject}. Model: {answer}. Gold: {gold} {mark}  "
        f"p(gold) {probability_text(run.probability)}."
    )
    if run.right or not sample.needles:
        return words
    if run.named is not None:
        letter = sample_parts(sample).all[sample.needles.index(run.named)].letter
        other = run.named.subject
        return f"{words} The model answered {run.answered}, the number of {other} (needle {letter})."
    return f"{words} No needle has this answer." if kind == "number" else words


def _draw_repeated(page: Page, form: OfTask) -> None:
    task, seed = form.task(page.model), form.seed
    most = len(task.samples) - seed if isinstance(task, WrittenTask) else 10_000
    if most < 2:
        return
    n = number("Repeat on samples", REPEAT, (2, most), default=min(REPEAT.default, most), width=170)
    key = ("gains", page.model_key, task, seed, n)
    label = f"Repeat, about {time_text(n * estimate_seconds(page.model, form.n_tokens(page.model)))}"

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

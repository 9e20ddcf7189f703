"""The labs of facts hidden in text: one asked by its city, one by a name and a city, prompts of a file.

Each opens with how often the model is right, a sample with its answer and the heads that found it; repeated
over samples, as a sweep, and from a file of results.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.analysis.attention.heads import SCORES
from mta_viz.analysis.labs import needle as needles
from mta_viz.analysis.labs.cards import arms_file
from mta_viz.analysis.labs.evaluation import evaluate_task
from mta_viz.analysis.labs.finder import prompt_spans, sample_parts
from mta_viz.analysis.labs.needle import FinderMeans, NeedleRun, NeedleScore
from mta_viz.errors import TokenizerError
from mta_viz.figures.labs import samples as figures
from mta_viz.figures.labs.measured import KernelArms
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.attention.heads import value_text
from mta_viz.printed import probability_text, time_text
from mta_viz.run.named_tasks import written_task
from mta_viz.run.tracing import Progress, estimate_seconds
from mta_viz.tasks.intervals import mean_words, median_words
from mta_viz.tasks.needles import (
    MAX_NEEDLES,
    MAX_SIDE,
    PAPER_NEEDLE,
    SENTENCE,
    TEMPLATES,
    NeedleTask,
    WordsName,
)
from mta_viz.tasks.written import WrittenTask
from mta_viz.ui.labs import fits, parts
from mta_viz.ui.labs.parts import SCORE, source_of
from mta_viz.ui.labs.sweep import draw_opened, draw_sweep
from mta_viz.ui.shell import cache, show
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, menu, number, text_file
from mta_viz.ui.shell.work import Work

RUNS = 3.5  # a sample takes as long as so many runs of its prompt: capture, finder, answer twice
ANYWHERE, OWN = "anywhere", "my own"
PERCENTS = (0, 10, 25, 50, 75, 90, 100)
DEPTHS: dict[str | int, str] = {ANYWHERE: ANYWHERE, **{depth: f"{depth} %" for depth in PERCENTS}}
SIDES, LENGTHS = range(1, MAX_SIDE + 1), (64, 1_000_000)
MOST = 10_000  # samples of a task without an end
COUNT, LENGTH, SEED = Setting("needle number", 4), Setting("needle length", 512), Setting("needle seed", 0)
NAMES, CITIES = Setting("pairs names", 3), Setting("pairs cities", 3)
PAIRS_LENGTH = Setting("pairs length", 256)
DRAWN_FROM = Setting[WordsName]("pairs words", "all")
WORDS: dict[WordsName, str] = {"all": "all", "known": "those trainings may see", "held out": "held out"}
DEPTH = Setting[str | int]("needle depth", 50)
TEMPLATE = Setting("needle template", next(iter(TEMPLATES)))
NEEDLE, QUESTION_TEXT = Setting("needle needle", PAPER_NEEDLE), Setting("needle question", "")
SHOWN, WHOLE, REPEAT = Setting("needle shown", False), Setting("needle whole", False), Setting("gains n", 20)
FIGURES: dict[type[figures.OfTask], tuple[type[figures.FinderMap], type[figures.CropMap]]] = {
    figures.Needles: (figures.NeedleFinder, figures.NeedleCrop),
    figures.Pairs: (figures.PairsFinder, figures.PairsCrop),
    figures.Written: (figures.WrittenFinder, figures.WrittenCrop),
}
OF_FILE = (
    'A line of the file is a sample: {"prompt": "...", "answer": "..."}. Spans of characters may be marked, '
    '"spans": [{"kind": "asked", "start": 0, "stop": 20}]: asked, the fact that gives the answer; needle, '
    "another fact; question, which is the last sentence where none is marked."
)
Form = Callable[[Page], figures.OfTask]


def draw_needle(page: Page) -> None:
    """A city's number among those of other cities."""
    _draw(page, "needle", _draw_needles)


def draw_pairs(page: Page) -> None:
    """A name's number in a city, and what kernels of several shapes learnt of it."""
    _draw(page, "pairs", _draw_pairs)
    with errors_as_messages():
        _draw_arms(page)


def draw_written(page: Page) -> None:
    """Prompts and answers of a file."""
    lines = None
    with errors_as_messages():
        lines = _pick_file()
    if lines is None:
        _draw_opened(page)
    else:
        _draw(page, "file", partial(_draw_file, lines))


def _draw(page: Page, task: str, form_of: Form) -> None:
    """The task's form, one sample, the sweep; a results file whatever the model."""
    with errors_as_messages():
        if can_write(page, task):
            fits.draw_untrained(page, task)
            with parts.settings(task, SEED) as beside:
                form = form_of(page)
                whole = st.toggle("Whole text", **WHOLE.widget())
            _draw_form(page, form, task, whole, beside)
    _draw_opened(page)


def _draw_opened(page: Page) -> None:
    with st.expander("Results from a file"):
        draw_opened(page)


def can_write(page: Page, task: str) -> bool:
    """Whether this model's tokenizer can write such sentences; says why not, and what to do."""
    tokenizer = needles.check_vocabulary(page.model, page.model.tokenizer)
    try:
        NeedleTask(1, 1000, haystack="A word. " * 900).sample(tokenizer, 0)
    except TokenizerError:
        why = f"this model's tokenizer ({tokenizer.kind}) cannot write them"
        fits.draw_unfit(page, task, f"This lab is of English sentences, and {why}.")
        return False
    return True


def _draw_needles(page: Page) -> figures.Needles:
    count = menu("Needles", range(1, MAX_NEEDLES + 1), COUNT, width=100)
    place = _pick_place(page, LENGTH, PAPER_NEEDLE, count)
    return figures.Needles(count, *place, *_pick_template(), parts.draw_haystack())


def _draw_pairs(page: Page) -> figures.Pairs:
    names = menu("Names", SIDES, NAMES, width=100)
    cities = menu("Cities", SIDES, CITIES, width=100)
    of_words = "Names, cities and numbers. Held out: those that no training of this project sees."
    drawn_from = menu("Words", WORDS, DRAWN_FROM, width=200, help=of_words)
    place = _pick_place(page, PAIRS_LENGTH, SENTENCE, names * cities)
    return figures.Pairs(names, cities, *place, parts.draw_haystack(), drawn_from)


def _pick_file() -> str | None:
    with st.expander("The file", expanded=True):
        file = text_file("task file", "Prompts and answers (JSON Lines)", ["jsonl"], 20, "Let go of the file")
        if file is None:
            caption(f"{OF_FILE} It is read here and sent nowhere.")
    return None if file is None else file[1]


def _draw_file(lines: str, page: Page) -> figures.Written:
    most = len(written_task(lines).samples) - 1
    return figures.Written(lines, number(f"Sample, 0 to {most:,}", SEED, (0, most), width=170))


def _pick_place(page: Page, setting: Setting[int], sentence: str, count: int) -> tuple[int, int | None, int]:
    """Length, depth and number of the sample; the usual length has room for so many sentences."""
    sentence = sentence.format(name="Elizabeth", city="San Francisco", value=417)
    n_ctx, needed = page.model.config.n_ctx, (count + 1) * len(page.model.tokenizer.encode(sentence)) * 5 // 4
    of_length = f"Of the prompt, question included. This model was trained on up to {n_ctx:,}."
    of_depth = "How much of the haystack comes before the asked needle."
    usual = min(max(setting.default, -(-needed // 64) * 64), n_ctx)
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


def _draw_form(page: Page, form: figures.OfTask, task: str, whole: bool, beside: DeltaGenerator) -> None:
    """How often it is right, the form's sample, more of both folded. Raises where there is no sample."""
    cache.remember(lambda: form.needle_sample(page.model), "sample", page.model_key, form)
    if not isinstance(form, figures.Written):
        length = LENGTH if isinstance(form, figures.Needles) else PAIRS_LENGTH
        fits.draw_length(form.n_tokens(page.model), page.model.config.n_ctx, length)
    _draw_sample(page, form, task, whole)
    with beside:  # after what a visitor waits for
        _draw_often(page, form)
    over = "models" if isinstance(form, figures.Written) else "lengths, depths and models"
    with st.expander(f"Sweep over {over}"), errors_as_messages():
        draw_sweep(page, form)


def _draw_often(page: Page, form: figures.OfTask) -> None:
    task, seed = form.task(page.model), form.seed

    def measure(model: HookedMTA, n: int, progress: Progress) -> NeedleScore:
        tokenizer = needles.check_vocabulary(model, model.tokenizer)
        samples = [task.sample(tokenizer, seed + at) for at in range(n)]
        return evaluate_task(model, samples, progress=progress).score

    most = _most(task, seed)
    fits.draw_often(page, task, seed, form.n_tokens(page.model), measure, _setting_words(form, page), most)


def _most(task: Any, seed: int) -> int:
    return len(task.samples) - seed if isinstance(task, WrittenTask) else MOST


def _setting_words(form: figures.OfTask, page: Page) -> str:
    """What a sample is, and what chance gives."""
    if not isinstance(form, figures.Needles | figures.Pairs):
        return ""
    at = "anywhere" if form.depth is None else f"at {form.depth:g} %"
    where = f"in {form.n_tokens(page.model):,} tokens, the asked one {at};"
    if isinstance(form, figures.Needles):
        return f"{form.needles} needles {where} a guess among them: 1 in {form.needles}."
    return (
        f"{form.names} names x {form.cities} cities {where} the name alone is right once in "
        f"{form.cities}, the city alone once in {form.names}."
    )


def _draw_sample(page: Page, form: figures.OfTask, name: str, whole: bool) -> None:
    task = form.task(page.model)
    seconds = fits.seconds_here(page.model, form.n_tokens(page.model), RUNS)

    def do(work: Work, keep: Keep) -> NeedleRun:
        return needles.run_needle(page.model, task, form.seed, begin=work.begin, progress=work.report)

    key = (page.model_key, task)
    run: NeedleRun | None = parts.sample_run(name, key, SEED, SHOWN, seconds, do)
    if run is None:
        return
    parts.draw_verdict(_answer_words(run))
    spans = () if run.finder is None else prompt_spans(run.sample)
    parts.draw_text(run.sample.tokens, spans, whole)
    if run.finder is None:
        caption("No span of this sample is marked as asked: there is nothing for heads to find.")
        return
    text, tokenizer = run.sample.tokens.text or "", page.model.tokenizer
    prompt = (text, lambda: prompt_spans(run.sample, tokenizer.encode(text)))
    finder, crop = FIGURES[type(form)]
    parts.draw_heads(page, finder(**vars(form)), crop(**vars(form)), run.finder, "Needle", prompt)
    with st.expander("The same heads over more samples"):
        _draw_repeated(page, form)


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


def _draw_repeated(page: Page, form: figures.OfTask) -> None:
    task, seed = form.task(page.model), form.seed
    most = _most(task, seed)
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


def _draw_arms(page: Page) -> None:
    """Where a file of arms lies beside the model: how often each is right, and all its numbers."""
    if arms_file(page.model.path) is None:
        return
    with st.expander("Controls: kernels of other shapes, trained alike"):
        drawn = show.show(source_of(page), KernelArms())
        st.dataframe(drawn.table.frame(), hide_index=True, key="arms.table")

"""The conjunction lab: do two words together find a span that each alone does not?"""

import math
from dataclasses import replace
from functools import partial

import streamlit as st

from mta_viz.analysis.labs import conjunction as conjunctions
from mta_viz.analysis.labs.conjunction import Conjunction, Measure, Strongest, Verdict
from mta_viz.analysis.labs.four_prompts import PROMPTS, FourPrompts, example
from mta_viz.analysis.labs.sign_flips import least_p
from mta_viz.errors import PromptError
from mta_viz.figures.base import Source
from mta_viz.figures.labs import measured as figures
from mta_viz.model.plans import every_kernel
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.attention.heads import value_text
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.printed import head_name, time_text
from mta_viz.run.tracing import check_runs
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.intervals import LEVEL, level_text, median_rank, median_words
from mta_viz.tasks.needles import MAX_SIDE
from mta_viz.ui.labs.fits import opens, seconds_here
from mta_viz.ui.labs.parts import head_of, on_map, ranked_table, source_of
from mta_viz.ui.shell import cache, show, work
from mta_viz.ui.shell.cache import ModelKey, Stores
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.models import model_of, twin_beside
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, explain, menu, number, plain
from mta_viz.ui.shell.work import Work

Results = dict[str, Conjunction]  # by the names of the models
NAME = "conjunction"
KINDS = ("Blocks", "My own text")
OF_TEXT = ("My own text", "A name and a city")
ALONE = "nothing"
SHOWN_END = 80  # characters of a prompt: the end, where the prompts differ
MAP_PX = 452
FEWEST = next(n for n in range(1, 99) if least_p(n) <= conjunctions.ALPHA)  # samples that can show anything
NO_EVIDENCE = "That does not say that there is none."
MEASURES = {"share": "share of the row", "odds": "log-odds"}
KIND, BESIDE = Setting("conjunction prompts", KINDS[0]), Setting("conjunction beside", ALONE)
LETTERS, BLOCKS = Setting("conjunction letters a block", 5), Setting("conjunction blocks", 52)
SAMPLES, SEED = Setting("conjunction samples", 20), Setting("conjunction seed", 0)
NAMES, CITIES = Setting("conjunction names", 3), Setting("conjunction cities", 3)
LENGTH = Setting("conjunction length", 256)
MEASURE, STAGE = Setting("conjunction measure", "share"), Setting("conjunction stage", "")
TEXTS = {  # each vocabulary keeps its own
    which: tuple(Setting(f"conjunction {which}{part}", "") for part in ("", " span", " lines"))
    for which in ("letters", "text")
}
READING = (
    "Above 0 (green): the two words together give the span more than their parts add up to, an AND; below 0 "
    "(brown): one is enough, an OR. Click a head to choose it."
)
MORE = (
    "An AND is one where each word alone gives the span little. At 0 each adds its own. Adding "
    "log-odds is multiplying odds: where I of the log-odds is about 0 and I of the share is large, the "
    "scores of both words add up and the softmax lets only their sum through. So the verdict is on log-odds, "
    "and shares are a picture. Log-odds of a head that gives the span no share say little."
)


def draw_conjunction(page: Page) -> None:
    """The form, the four prompts of the first sample, and what every head makes of them."""
    check_runs(page.model)
    if page.model.tokenizer is None:
        raise PromptError("this checkpoint came without its tokenizer; give the file at the left")
    caption(
        "The paper says that a convolution finds the sentence with both “Alice” and “rabbit”. Four "
        "prompts test it: both words asked for, each alone, neither. I = f(both) − f(A only) − f(B only) + "
        "f(neither), f what the last token gives the span."
    )
    figure = _draw_form(page.model)
    if isinstance(figure, figures.BlockConjunction | figures.PairsConjunction):
        # the rest is drawn when it is run
        n, samples = figure.samples, replace(figure, samples=1).samples_of(page.model)
    else:
        samples = figure.samples_of(page.model)
        n = len(samples)
    _draw_prompts(samples[0], figure)
    _draw_test(page, figure, n, len(samples[0].prompts[0]))


def _draw_form(model: HookedMTA) -> figures.OfConjunction:
    """Blocks are offered where the model has the block task's letters."""
    if model.config.vocab_size != VOCAB_SIZE:
        own = bar("Prompts", OF_TEXT, KIND, default=OF_TEXT[0]) == OF_TEXT[0]
        return _draw_text(model, "text") if own else _draw_pairs(model)
    if bar("Prompts", KINDS, KIND) != KINDS[0]:
        return _draw_text(model, "letters")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return figures.BlockConjunction(
            letters=number("Letters a block, N", LETTERS, (3, 25), width=150),
            blocks=number("Blocks", BLOCKS, (1, 10_000), width=150),
            samples=number("Samples", SAMPLES, (1, 500), width=150),
            seed=number("Seed", SEED, (0, 10**6), width=150),
        )


def _draw_pairs(model: HookedMTA) -> figures.PairsConjunction:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return figures.PairsConjunction(
            names=number("Names", NAMES, (1, MAX_SIDE), width=120),
            cities=number("Cities", CITIES, (1, MAX_SIDE), width=120),
            length=number(
                "Length in tokens", LENGTH, (64, 10**6), default=min(256, model.config.n_ctx), width=150
            ),
            samples=number("Samples", SAMPLES, (1, 500), width=150),
            seed=number("Seed", SEED, (0, 10**6), width=150),
        )


def _draw_text(model: HookedMTA, which: str) -> figures.TextConjunction:
    usual = example(model)
    text, span, lines = (
        setting.widget(default=default) for setting, default in zip(TEXTS[which], usual, strict=True)
    )
    text_label = "Text: {A} and {B} are the two words, {A?} and {B?} where they are asked for"
    text_help = (
        "{A} and {B} stay in all four prompts; {A?} and {B?} are exchanged, so they stand after the span. "
        "The last token's row is measured."
    )
    lines_label = "A line a sample: A, B, what stands for A, what stands for B"
    words = "What stands for a word needs as many tokens as the word. With one line there is no interval."
    left, right = st.columns(2)
    return figures.TextConjunction(
        text=left.text_area(text_label, height=96, help=text_help, **text),
        span=left.text_input("Span: the part of the text whose attention is measured", **span),
        lines=right.text_area(lines_label, height=176, help=words, **lines),
    )


def _draw_prompts(sample: FourPrompts, figure: figures.OfConjunction) -> None:
    texts = [prompt.text or "" for prompt in sample.prompts]
    ends = [text if len(text) <= SHOWN_END else f"… {text[-SHOWN_END:]}" for text in texts]
    rows = [{"prompt": name, "of the first sample": end} for name, end in zip(PROMPTS, ends, strict=True)]
    narrow = {"prompt": st.column_config.TextColumn(width="small")}
    st.dataframe(rows, hide_index=True, column_config=narrow)
    words = f"{len(sample.prompts[0])} tokens each; the span is {sample.span.words}."
    if isinstance(figure, figures.PairsConjunction):
        words += " What stands for a word is nowhere else in the prompt and has as many tokens."
    if isinstance(figure, figures.BlockConjunction):
        words += (
            " Only the two letters at the end differ. A letter is replaced by one that the target block "
            "lacks, such that no block holds both letters of any of the other three prompts; sequences "
            "without such letters are passed over."
        )
    caption(words)


def _draw_test(page: Page, figure: figures.OfConjunction, n: int, n_tokens: int) -> None:
    figure, twin = _pick_beside(page, figure)
    runs = n * len(PROMPTS) * (1 if figure.twin == "none" else 2)
    seconds = seconds_here(page.model, n_tokens, runs)
    key = (NAME, page.model_key, figure, twin)
    words = f"{runs:,} runs of a prompt, about {time_text(seconds)}"
    test = partial(_test, source_of(page), figure, twin, cache.stores())
    words, by_itself = f"{words} here. Results so far are kept.", opens(seconds)
    measurement = Measurement(NAME, key, "Run the test", test, words, by_itself=by_itself)
    draw_measured(measurement, partial(_draw_results, page, figure, twin))


def _pick_beside(page: Page, figure: figures.OfConjunction) -> tuple[figures.OfConjunction, ModelKey | None]:
    """What runs on the same samples: the twin, this model at identity, or nothing."""
    twin = twin_beside(page.model_key) if page.model_key is not None else None
    itself = [figures.ITSELF] if every_kernel(page.model.config) else []
    names = [*(twin[:1] if twin else ()), *itself, ALONE]
    name = menu("Beside", names, BESIDE, default=names[0], width=330)
    if twin and name == twin[0]:
        return replace(figure, twin="other"), twin[1]
    return replace(figure, twin="identity" if name == figures.ITSELF else "none"), None


def _test(
    source: Source,
    figure: figures.OfConjunction,
    twin: ModelKey | None,
    kept: Stores,
    running: Work,
    keep: Keep,
) -> Results:
    if twin is not None:
        source = replace(source, beside=Source(model_of(twin, kept, running)))
    running.begin("Making the prompts")
    samples, models = figure.samples_of(source.model), figure.models(source)

    def begin(name: str) -> None:
        running.begin(f"Running {name}")

    return conjunctions.tested(models, samples, begin=begin, keep=keep, progress=running.report)


def _draw_results(
    page: Page, figure: figures.OfConjunction, twin: ModelKey | None, results: Results | None, running: bool
) -> None:
    if not results:
        st.info("The first sample is on its way." if running else "Not run yet. Press Run the test.")
        return
    for name, test in results.items():
        st.markdown(plain(_verdict(name, test, page.numbering)))
    figure = _pick_measure(figure, next(iter(results.values())))
    measure = figure.what(results)
    own = next(iter(results))
    heads = [(head.layer, head.head) for head in conjunctions.ranked(results[own], measure)]
    place = head_of(NAME, (figure, page.model_key, results[own].n), heads)
    other = None  # the twin, where it is still there: files say which it was
    if twin is not None:
        kept = cache.stores()
        other = work.finished("twin", twin, lambda work: model_of(twin, kept, work), kept.models)
    source = source_of(page, None if other is None else Source(other))
    with st.container(horizontal=True):
        for name in results:
            with st.container(width=MAP_PX):
                shown = replace(figure, marked=place) if name == own else replace(figure, of="twin")
                _draw_model(source, shown, results, name)
    with st.expander("All heads, in numbers"):
        for name, test in results.items():
            caption(name)
            there = conjunctions.measure_there(test, measure)
            widget = f"conjunction.{hash((figure, name, test.n))}.table"
            _draw_ranking(page.numbering, test, there, widget, name == own)
    st.markdown(plain(_head_words(own, results[own], measure, place, page.numbering)))
    explain(READING, f"{MORE} {_sure_words(results)}")


def _pick_measure(figure: figures.OfConjunction, own: Conjunction) -> figures.OfConjunction:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = bar("f", MEASURES, MEASURE)
        stages = {stage.value.key: stage.value.short for measure, stage in own.values if measure == name}
        usual = conjunctions.usual_stage(own, name).value.key
        return replace(figure, measure=name, stage=bar("Stage", stages, STAGE, default=usual))


def _draw_model(source: Source, figure: figures.OfConjunction, results: Results, name: str) -> None:
    test, measure = results[name], figure.what(results)
    there = conjunctions.measure_there(test, measure)
    lacks = f" (it has no {measure[1].value.short}: {there[1].value.short})" if there != measure else ""
    st.markdown(plain(f"{name}, {test.n:,} sample{'s' if test.n > 1 else ''}{lacks}"))
    choose = on_map(NAME) if figure.of == "model" else None
    widget = f"conjunction.{hash((replace(figure, marked=None), name, test.n))}"
    show.show(source, figure, choose, result=results, widget=widget)


def _draw_ranking(numbering: int, test: Conjunction, measure: Measure, widget: str, own: bool) -> None:
    effects, p = test.effects(measure), conjunctions.p_values(test).get(measure)
    heads = {(head.layer, head.head): head for head in conjunctions.ranked(test, measure)}

    def row(layer: int, head: int) -> dict[str, str]:
        place = layer, head
        both, score = float(effects.means[0][place]), heads[place]
        parts = {"A adds": effects.a, "B adds": effects.b}
        return {
            "I, median": _text(measure, score.median),
            f"its {level_text(score.level)}": _ends(measure, score.median_low, score.median_high),
            "I, mean": _text(measure, score.interaction),
            "the mean's 95 %": _ends(measure, score.low, score.high),
            "both": weight_text(both) if measure[0] == "share" else score_text(both),
            **{name: _text(measure, float(part.mean[place])) for name, part in parts.items()},
            **({} if p is None else {"p, corrected": f"{float(p[place]):.2g}"}),
        }

    ranked_table(widget, list(heads), row, numbering, NAME if own else None, height=260)


def _verdict(name: str, test: Conjunction, numbering: int) -> str:
    """Whether a model's log-odds show a conjunction, corrected for all heads and stages, and where."""
    verdict = conjunctions.verdict(test)
    head = verdict.best
    if head is None:
        return f"{name}: no conjunction is shown, as no head gives the span a share worth testing."
    where = f"{head_name(head.layer, head.head, numbering)} at {head.measure[1].value.short}"
    among = f"corrected for all {verdict.tested:,} heads and stages looked at"
    best = f"{where}, median I of the log-odds {_interval(head)} nats, p = {verdict.p:.2g} {among}"
    samples = f"{test.n:,} sample{'s' if test.n > 1 else ''}"
    left_out = _left_out(verdict)
    if verdict.shown:
        more = f" {verdict.passing} pass {conjunctions.ALPHA:g}." if verdict.passing > 1 else ""
        return f"{name}: a conjunction is shown ({samples}): {best}.{more} {_shares(test, head)}{left_out}"
    why = f"no head passes {conjunctions.ALPHA:g}"
    if verdict.least_p > conjunctions.ALPHA:
        why = f"too few for a p of at most {conjunctions.ALPHA:g}, give at least {FEWEST}"
    return f"{name}: no conjunction is shown ({samples}; {why}). {NO_EVIDENCE} Nearest is {best}.{left_out}"


def _left_out(verdict: Verdict) -> str:
    """Heads and stages that are not tested, and why."""
    why = {
        f"{verdict.faint} give the span less than {conjunctions.LEAST_SHARE:.0%} of the row": verdict.faint,
        f"{verdict.untested} have weights of exactly 0": verdict.untested,
    }
    words = " and ".join(reason for reason, count in why.items() if count)
    return f" Not tested: {words}." if words else ""


def _shares(test: Conjunction, head: Strongest) -> str:
    """What the span gets there in the four prompts."""
    shares = test.effects(("share", head.measure[1])).means[:, head.layer, head.head].tolist()
    named = zip(shares, ("both words", "A only", "B only", "neither"), strict=True)
    return f"The span's share there is {', '.join(f'{share:.3f} with {what}' for share, what in named)}."


def _head_words(
    name: str, test: Conjunction, measure: Measure, place: tuple[int, int], numbering: int
) -> str:
    """What the two words do at a head, each with its interval; empty where the stage is absent."""
    effects = test.effects(measure)
    n_layers, n_heads = effects.a.mean.shape
    if place[0] >= n_layers or place[1] >= n_heads or effects.a.mean[place].isnan():
        return ""
    parts = {"A adds": effects.a, "B adds": effects.b, "both together beyond that (I)": effects.interaction}
    words = []
    for what, part in parts.items():
        values = (part.median, part.median_low, part.median_high, part.mean)
        middle, low, high, mean = (float(each[place]) for each in values)
        ends = _ends(measure, low, high)
        words.append(
            f"{what} {_text(measure, middle)}" + (f" [{ends}], mean {_text(measure, mean)}" if ends else "")
        )
    where = f"{head_name(*place, numbering)} of {name}, {measure[1].value.short}"
    return f"{where}: {', '.join(words)} ({conjunctions.score_of(measure).unit})."


def _interval(head: Strongest) -> str:
    value = _text(head.measure, head.median)
    ends = _ends(head.measure, head.median_low, head.median_high)
    return f"{value} [{ends}]" if ends else f"{value} (one sample, no interval)"


def _ends(measure: Measure, low: float, high: float) -> str:
    """Both ends of an interval; empty with one sample, which has none."""
    return "" if math.isnan(low) else f"{_text(measure, low)}, {_text(measure, high)}"


def _text(measure: Measure, value: float) -> str:
    """A difference, with its sign; what is nothing but rounding is 0."""
    return value_text(conjunctions.score_of(measure), round(value, 3) + 0.0)


def _sure_words(results: Results) -> str:
    own = next(iter(results.values()))
    if own.n < 2:
        return "One sample has no interval: give more lines, or more sequences."
    heads, (_, level) = (
        sum(len(conjunctions.ranked(own, measure)) for measure in own.values),
        median_rank(own.n),
    )
    return (
        f"{median_words(own.n)} Means of shares have one too, means of log-odds none. Heads ranked by the "
        f"lower end of I's median. Of {heads:,} numbers a model, up to {1 - min(level, LEVEL):.0%} leave 0 "
        "out where no median differs from 0: the verdict above is corrected for that, the map and its dots "
        "are not. Heads of two models are not paired."
    )

"""The needle lab's sweep: models one after another, no sample run twice; and the results of a file."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.labs import sweep_file
from mta_viz.analysis.labs.needle import NeedleScore
from mta_viz.analysis.labs.sweep import Sweep, check_sweep
from mta_viz.analysis.labs.sweep_file import Difference, Misses, ModelResults, SweepResults
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.figures.base import Source
from mta_viz.figures.labs.measured import MOST_MODELS, OfSweep, SweepLines, SweepMap, named_apart
from mta_viz.figures.labs.samples import Needles, OfTask, Pairs
from mta_viz.plots.labs import score_words
from mta_viz.printed import time_text
from mta_viz.run.named_tasks import written_task
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.intervals import widest_half
from mta_viz.tasks.needles import MAX_NEEDLES, MAX_SIDE
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.ui.labs.parts import source_of
from mta_viz.ui.shell import cache, show, state
from mta_viz.ui.shell import models as registry
from mta_viz.ui.shell.cache import ModelKey, Stores
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.models import model_of
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, file_button, menu, number, plain, text_file
from mta_viz.ui.shell.work import Work

PERCENTS, SAMPLES = (0, 10, 25, 50, 75, 90, 100), (1, 100_000)
COUNTS = {count: str(count) for count in range(1, MAX_NEEDLES + 1)}
GRIDS = {side**2: f"{side} x {side}" for side in range(1, MAX_SIDE + 1)}  # names x cities
FILE = "needle-sweep.json"  # what results are called when they are saved
MEGABYTES = 20
ALL, CHART_PX = "all together", 440
MOST_VALUES = 40  # lengths, and depths: more have no room on a chart
NEEDLES, LENGTHS = Setting[Any]("sweep needles", [2, 4]), Setting[Any]("sweep lengths", [256])
PAIRS, OF_FILE = Setting[Any]("sweep pairs", [9]), Setting("sweep of file", 0)
DEPTHS, MANY = Setting[Any]("sweep depths", [0, 25, 50, 75, 100]), Setting("sweep samples", 20)
MODELS, OPENED = Setting[Any]("sweep models", []), Setting[Any]("opened models", [])

EACH, POOLED = "a panel for each context length", "pooled over context lengths"
LINES_OF = {key: Setting[Any](f"{key} lines of", EACH) for key in ("sweep", "opened")}
MAP_OF = {key: Setting[Any](f"{key} map of", ALL) for key in ("sweep", "opened")}
Models = Mapping[str, ModelResults]  # by their names on the page


@dataclass
class Sweeps:
    """What this session measured last, to go on with."""

    results: SweepResults | None = None


def draw_sweep(page: Page, form: OfTask) -> None:
    """Fields, then the results with the work's bar while it runs. The wording is the form's."""
    figure, keys = _draw_fields(page, form) if isinstance(form, Needles | Pairs) else _of_file(page, form)
    if figure is None:
        st.info("Choose at least one of each that is offered.")
        return
    kept = state.part(Sweeps)
    tokenizer = check_sweep(page.model, figure)
    if kept.results is None or kept.results.wording != figure.wording:
        kept.results = sweep_file.empty_results(figure)
    done = sum(len(model.samples) for model in _measured(figure, keys, kept.results).values())
    draw = partial(_draw_sweep, page, figure, keys, kept)
    if done >= len(figure.keys) * len(keys):
        draw(None, False)
        return
    key, label = ("sweep", figure, tuple(keys.items())), "Go on" if done else "Run the sweep"
    measure = partial(_measure, keys, figure, kept, cache.stores())
    words = _expectation(page, figure, tokenizer, len(keys), done)
    # It goes on while other pages are looked at.
    draw_measured(Measurement("sweep", key, label, measure, words, owner="job"), draw)


def _measured(sweep: Sweep, names: Iterable[str], results: SweepResults) -> dict[str, ModelResults]:
    models = {model.name: model.only(sweep) for model in results.models}
    return {name: models[name] for name in names if name in models and models[name].samples}


def _draw_fields(page: Page, form: Needles | Pairs) -> tuple[OfSweep | None, dict[str, ModelKey]]:
    n_ctx, length = page.model.config.n_ctx, form.n_tokens(page.model)
    lengths = sorted({128, 256, 512, 1024, 2048, 4096, n_ctx // 2, n_ctx, length})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        needles = _pick_needles(form)
        usual = [min(256, n_ctx)]
        chosen = st.multiselect("Lengths", lengths, width=200, **LENGTHS.widget(lengths, default=usual))
        depths = st.multiselect("Depths in %", PERCENTS, width=250, **DEPTHS.widget(PERCENTS))
        samples = number("Samples of each", MANY, SAMPLES, width=140)
        keys = _pick_models(page)
    if not (needles and chosen and depths and keys):
        return None, keys
    values = (tuple(sorted(needles)), tuple(sorted(chosen)), tuple(sorted(depths)))
    return OfSweep(*values, samples, form.seed, **form.of_sweep), keys


def _pick_needles(form: Needles | Pairs) -> list[int]:
    label, counts, chosen = ("Needles", COUNTS, NEEDLES)
    if isinstance(form, Pairs):
        label, counts, chosen = ("Names x cities", GRIDS, PAIRS)
    options = list(counts)
    return st.multiselect(
        label, width=170, format_func=counts.__getitem__, **chosen.widget(options), options=options
    )


def _of_file(page: Page, form: OfTask) -> tuple[OfSweep | None, dict[str, ModelKey]]:
    """The samples of a file from the first on: it has one setting, its own."""
    there = len(written_task(form.of_sweep["lines"]).samples)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        samples = number("Samples", OF_FILE, (1, there), default=there, width=140)
        keys = _pick_models(page)
    return (OfSweep(samples=samples, **form.of_sweep) if keys else None), keys


def _pick_models(page: Page) -> dict[str, ModelKey]:
    own = page.model_key
    models = [  # those that may read English
        model
        for model in registry.found()
        if registry.can_run(model) and model.summary and model.summary.config.vocab_size != VOCAB_SIZE
    ]
    names = [model.name for model in models]  # where two are alike, by path
    paths = {registry.identity(model, names): str(model.path) for model in models}
    here = next((name for name, path in paths.items() if path == own.path), None)
    if here is None:
        here, paths = "this model", {"this model": own.path, **paths}
    twin = registry.twin_of(here, list(paths))
    usual = [here] if twin is None else [here, twin]
    if state.is_another("swept model", own.path):  # another was chosen at the left
        MODELS.put(usual)
    widget = MODELS.widget(list(paths), default=usual)
    chosen = st.multiselect("Models", list(paths), max_selections=MOST_MODELS, width=330, **widget)
    return {name: own if paths[name] == own.path else registry.beside(own, paths[name]) for name in chosen}


def _expectation(page: Page, sweep: Sweep, tokenizer: Tokenizer, n_models: int, done: int) -> str:
    total = len(sweep.keys) * n_models
    lengths = Counter(sweep.prompt_lengths(tokenizer, sweep.keys))
    seconds = n_models * sum(n * estimate_seconds(page.model, length) for length, n in lengths.items())
    cell, order = ("a cell", " The order of the needles is shuffled.")
    if sweep.kind == "file":
        cell, order = ("the accuracy", "")
    return (
        f"{done:,} of {total:,} samples are there; the rest takes about "
        f"{time_text(seconds * (total - done) / total)} here. With {sweep.samples} samples {cell} is known "
        f"to ±{widest_half(sweep.samples):.2f}.{order}"
    )


def _measure(
    keys: Mapping[str, ModelKey], sweep: Sweep, kept: Sweeps, stores: Stores, running: Work, keep: Keep
) -> SweepResults:
    """Every model's missing samples; those of other sweeps stay."""
    results = kept.results or sweep_file.empty_results(sweep)

    def take(model: ModelResults) -> None:
        nonlocal results
        results = kept.results = results.with_model(model)
        keep(results)

    for at, (name, key) in enumerate(keys.items()):
        model = model_of(key, stores, running)
        running.begin(f"{name}, model {at + 1} of {len(keys)}" if len(keys) > 1 else name)
        there = sweep_file.results_of(model, name, results)
        take(sweep_file.measure_missing(model, sweep, there, keep=take, progress=running.report))
    return results


def _draw_sweep(
    page: Page,
    figure: OfSweep,
    keys: Mapping[str, ModelKey],
    kept: Sweeps,
    results: SweepResults | None,
    running: bool,
) -> None:
    results = results or kept.results  # of this measurement, or of those before it
    models = {} if results is None else _measured(figure, keys, results)
    if results is None or not models:
        if not running:
            st.info("No sample of this sweep yet. Press Run the sweep; Stop keeps what is measured.")
        return
    if not running:
        file_button("Results (JSON)", partial(sweep_file.sweep_text, results), FILE, "sweep.save")
    own, *others = keys.values()
    there = [cache.stores().models.get(key) for key in others]
    if own != page.model_key or len(others) > 1 or None in there:  # more than a figure can be drawn from
        _draw_results(source_of(page), replace(figure, file=FILE), models, "sweep")
    else:
        _draw_results(source_of(page, *map(Source, filter(None, there))), figure, models, "sweep")


def draw_opened(page: Page) -> None:
    """The place for a file of results, and what it holds. No model is run."""
    label = "Results (JSON), saved above or written by the command needle"
    file = text_file("sweep file", label, ["json"], MEGABYTES, "Close the file")
    if file is None:
        caption("The charts of a file appear here from the file alone; nothing is run.")
        return
    name, text = file
    with errors_as_messages():
        results = cache.remember(lambda: sweep_file.parse_sweep(text, name), "sweep file", text)
        _draw_file(page, results, name)


def _draw_file(page: Page, results: SweepResults, name: str) -> None:
    named = named_apart([model for model in results.models if model.samples])
    if not named:
        st.info(plain(f"{name} holds no sample yet: the sweep that writes it has only begun."))
        return
    chosen = list(named)
    if len(chosen) > MOST_MODELS:  # than a chart has lines for
        widget = OPENED.widget(chosen, default=chosen[:MOST_MODELS])
        chosen = st.multiselect("Models of the file", chosen, max_selections=MOST_MODELS, **widget)
    if not chosen:
        st.info("Choose at least one model of the file.")
        return
    places = tuple(list(named).index(model) for model in chosen)
    figure = OfSweep(file=name, models=places, kind="pairs" if results.kind == "pairs" else "needle")
    _, lengths, depths = sweep_file.axes_of(sample for model in chosen for sample in named[model].samples)
    for words, values in {"lengths": lengths, "depths": depths}.items():
        if len(values) > MOST_VALUES:
            raise MtaVizError(
                f"{name} has samples of {len(values):,} {words}; at most {MOST_VALUES} can be drawn. "
                "Measure fewer into one file"
            )
    _draw_results(source_of(page), figure, named, "opened")
    _draw_origin(results, named)


def _draw_origin(results: SweepResults, named: Mapping[str, ModelResults]) -> None:
    st.markdown("**Measured on**")
    models = named.values()
    columns = {
        "checkpoint": list(named),
        "samples": [len(model.samples) for model in models],
        "sha256 of its weights": [model.sha256 for model in models],
        "tokenizer": [model.vocabulary for model in models],
    }
    st.dataframe(columns, hide_index=True, key="opened.origin")
    question = results.question or "the needle up to its value"
    words = f"Needle: {results.needle} Question: {question}. Digest of templates, haystack"
    if results.kind == "file":
        words = "The prompts of a file. Digest of its lines"
    caption(f"{words}: {results.wording}; models with equal tokenizers got the same samples.")


def _draw_results(source: Source, figure: OfSweep, models: Models, key: str) -> None:
    """Charts first, then the numbers, then what wrong answers were. `key` begins the names of all widgets."""
    shown, (counts, *_) = figure.shown(models), figure.axes(models)
    if counts:
        _draw_charts(source, figure, models, key)
    else:
        _draw_accuracies(shown)
    _draw_pairs(shown)
    _draw_table(shown, key)
    for name, model in shown.items():
        bias, wrong = sweep_file.by_place(model.samples), sweep_file.misses(model.samples)
        caption(f"{name}: {bias_words(bias) if counts else ''} {misses_words(wrong)}")


def _draw_accuracies(shown: Models) -> None:
    for name, model in shown.items():
        (score,) = sweep_file.by_setting(model.samples).values()
        st.markdown(plain(f"{name}: {score_words(score)}"))


def _draw_charts(source: Source, figure: OfSweep, models: Models, key: str) -> None:
    shown = figure.shown(models)
    counts, lengths, _ = figure.axes(models)
    options = [ALL, *counts] if len(counts) > 1 else []
    with st.container(horizontal=True):
        panels = _panels(lengths, key)
        needles = menu("Maps of needles", options, MAP_OF[key], width=160) if options else counts[0]
    parameters = asdict(figure)
    with st.container(horizontal=True):
        for length in panels:
            with st.container(width=CHART_PX):
                panel = SweepLines(**parameters, of_length=length)
                show.show(source, panel, result=models, widget=f"{key}.lines.{length}")
        for place, name in enumerate(shown):
            with st.container(width=CHART_PX):
                chart = SweepMap(**parameters, of_needles=None if needles == ALL else needles, model=place)
                show.show(source, chart, result=models, widget=f"{key}.map.{name}")


def _panels(lengths: Sequence[int], key: str) -> Sequence[int | None]:
    """The charts by number of needles: one a context length, as in the paper, or one pooled over them."""
    if len(lengths) == 1:
        return lengths
    chosen = menu("Charts", (EACH, POOLED), LINES_OF[key], width=260)
    return lengths if chosen == EACH else [None]


def _draw_pairs(models: Models) -> None:
    first, *others = models
    for name in others:
        if models[name].vocabulary != models[first].vocabulary:
            caption(f"{first} and {name} have different tokenizers, so their samples differ: no pairs.")
            continue
        try:
            difference = sweep_file.paired_difference(models[first].samples, models[name].samples)
        except PromptError as error:
            caption(str(error))
            continue
        words = difference_words(difference)
        st.markdown(plain(f"{name} minus {first} on the same {difference.n:,} samples: {words}."))


def difference_words(difference: Difference) -> str:
    """`−0.52 [−0.60, −0.43]`, and whether that is more than chance."""
    low, high = difference.interval
    beyond = "" if low <= 0 <= high else ", more than chance"
    text = f"{difference.value:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{text.replace('-', '−')} (95 % interval){beyond}"


def _draw_table(models: Models, key: str) -> None:
    scores = {name: sweep_file.by_setting(model.samples) for name, model in models.items()}
    settings = sorted({setting for own in scores.values() for setting in own})
    rows = [
        dict(zip(("needles", "tokens", "depth in %"), setting, strict=True))
        | {name: score_words(own[setting]) if setting in own else "-" for name, own in scores.items()}
        for setting in settings
    ]
    with st.expander("All numbers"):
        st.dataframe(rows, hide_index=True, key=f"{key}.table")


def bias_words(places: Mapping[str, NeedleScore]) -> str:
    """Whether the first or the last needle of a prompt is found more often."""
    if not places:
        return "With one needle there is no first and last."
    shares = ", ".join(f"{place} {score_words(score)}" for place, score in places.items())
    return f"Asked needle by its place among the needles: {shares}."


def misses_words(wrong: Misses) -> str:
    """What the wrong answers were."""
    if not wrong.wrong:
        return "No wrong answer."
    words = f"{wrong.wrong:,} wrong answers, {wrong.named:,} of them another needle's number"
    if not wrong.named:
        return f"{words}."
    return (
        f"{words}: the first one's {wrong.first:,} times ({wrong.by_chance_first:.1f} if all were alike), "
        f"the last one's {wrong.last:,} times ({wrong.by_chance_last:.1f})."
    )

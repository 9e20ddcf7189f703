"""A sweep beside the page: models one after another, results kept as they come, nothing run twice.

The sweep of the needle lab: its form, the work with its bar, and what there is so far as charts.
Results of a sweep from a file: its charts, and what they were measured on. No model is run.
"""

import hashlib
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import streamlit as st

from mta_viz.analysis.labs.sweep import SampleResult, Sweep, check_sweep, run_sweep, vocabulary
from mta_viz.analysis.labs.sweep_file import (
    Axes,
    ModelResults,
    SweepResults,
    axes_of,
    empty_results,
    parse_sweep,
    sweep_text,
)
from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.errors import MtaVizError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.intervals import wilson_interval
from mta_viz.ui.labs.needle_form import Form
from mta_viz.ui.labs.sweep_charts import draw_results
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell import models as registry
from mta_viz.ui.shell import work as jobs
from mta_viz.ui.shell.cache import ModelKey, Stores, remember
from mta_viz.ui.shell.loading import model_of
from mta_viz.ui.shell.models import beside, can_run
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.uploads import text_file
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text


@dataclass
class Kept:
    """The results of a session's sweeps, by the names the page gives its models; safe between threads."""

    results: SweepResults
    names: dict[str, ModelResults] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, name: str, model: ModelResults) -> None:
        """Take a model's results so far."""
        with self._lock:
            self.results = self.results.with_model(model)
            self.names = {**self.names, name: model}

    def samples(self, sweep: Sweep) -> dict[str, tuple[SampleResult, ...]]:
        """What there is of a sweep, by model."""
        wanted, names = set(sweep.keys), self.names
        found = {
            name: tuple(one for one in model.samples if one.key in wanted) for name, model in names.items()
        }
        return {name: samples for name, samples in found.items() if samples}


def kept_for(sweep: Sweep, before: Kept | None) -> Kept:
    """The results to go on with: those so far where the wording is the same, else none."""
    if before is not None and before.results.wording == sweep.wording:
        return before
    return Kept(empty_results(sweep))


def measure(models: dict[str, ModelKey], sweep: Sweep, kept: Kept, stores: Stores, work: Work) -> None:
    """Every model's missing samples into `kept`."""
    for at, (name, key) in enumerate(models.items()):
        model = model_of(key, stores, work)
        work.begin(f"{name}, model {at + 1} of {len(models)}" if len(models) > 1 else name)
        weights = sha256(locate(Path(key.path), key.step).folder)
        tokens = vocabulary(model.tokenizer) if model.tokenizer else ""
        known = ModelResults(name, weights, tokens, kept.results.of(weights, tokens))
        kept.put(name, known)
        _measure_one(model, sweep, known, kept, work)


def _measure_one(model: HookedMTA, sweep: Sweep, known: ModelResults, kept: Kept, work: Work) -> None:
    """One model's missing samples; samples of other sweeps stay."""
    wanted = set(sweep.keys)
    others = tuple(one for one in known.samples if one.key not in wanted)

    def keep(samples: tuple[SampleResult, ...]) -> None:
        kept.put(known.name, replace(known, samples=others + samples))

    keep(run_sweep(model, sweep, known.samples, keep=keep, progress=work.report))


NEEDLES, DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8), (0, 10, 25, 50, 75, 90, 100)
MOST_MODELS = 4


def draw_sweep(page: Page, form: Form) -> None:
    """Fields, then the results with the work's bar while it runs. The wording is the form's."""
    sweep, models = _draw_fields(page, form)
    if sweep is None:
        return
    check_sweep(page.model, sweep)
    kept = kept_for(sweep, state.get("sweep kept"))
    state.put("sweep kept", kept)
    key = (sweep, tuple(models.items()))
    work = jobs.running("sweep", key)
    _draw_buttons(page, sweep, models, kept, work)
    jobs.say_failure(jobs.current("sweep", key))
    st.fragment(_draw_live, run_every=1.0 if work else None)(sweep, kept, work)


def _draw_fields(page: Page, form: Form) -> tuple[Sweep | None, dict[str, ModelKey]]:
    n_ctx = page.model.config.n_ctx
    lengths = sorted({128, 256, 512, 1024, 2048, 4096, n_ctx // 2, n_ctx, form.task.length})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        needles = st.multiselect(
            "Needles", NEEDLES, width=170, **state.kept("sweep needles", [2, 4], NEEDLES)
        )
        length = st.multiselect(
            "Lengths", lengths, width=200, **state.kept("sweep lengths", [min(256, n_ctx)], lengths)
        )
        depths = st.multiselect(
            "Depths in %", DEPTHS, width=250, **state.kept("sweep depths", [0, 25, 50, 75, 100], DEPTHS)
        )
        samples = st.number_input(
            "Samples of each", 1, 100_000, width=140, **state.kept("sweep samples", 20, within=(1, 100_000))
        )
        models = _pick_models(page)
    if not (needles and length and depths and models):
        st.info("Choose at least one of each: needles, lengths, depths, models.")
        return None, models
    task = form.task
    sweep = Sweep(
        tuple(sorted(needles)), tuple(sorted(length)), tuple(sorted(depths)), int(samples), form.seed,
        task.needle, task.question, task.haystack,
    )  # fmt: skip
    return sweep, models


def _pick_models(page: Page) -> dict[str, ModelKey]:
    """This page's model, and others that can run, on the same samples."""
    if page.model_key is None:
        raise RuntimeError("this page was opened without its model's key")
    own = page.model_key
    paths = _paths()
    here = next((name for name, path in paths.items() if path == own.path), None)
    if here is None:
        here, paths = "this model", {"this model": own.path, **paths}
    twin = registry.twin_of(here, list(paths))
    default = [here] if twin is None else [here, twin]
    if state.get("sweep models of", own.path) != own.path:  # another model was chosen at the left
        state.put("sweep models", default)
    state.put("sweep models of", own.path)
    kept = state.kept("sweep models", default, list(paths))
    chosen = st.multiselect("Models", list(paths), max_selections=MOST_MODELS, width=330, **kept)
    return {name: own if paths[name] == own.path else beside(own, paths[name]) for name in chosen}


def _paths() -> dict[str, str]:
    """The models that may read English, by name; where two are alike, by path."""
    found = [
        one
        for one in cache.discovery(tuple(map(str, registry.roots()))).found
        if can_run(one) and one.summary is not None and one.summary.config.vocab_size != VOCAB_SIZE
    ]
    names = [one.name for one in found]
    return {registry.identity(one, names): str(one.path) for one in found}


def _draw_buttons(
    page: Page, sweep: Sweep, models: dict[str, ModelKey], kept: Kept, work: Work | None
) -> None:
    total = len(sweep.keys) * len(models)
    there = kept.samples(sweep)
    done = sum(len(there.get(name, ())) for name in models)
    with st.container(horizontal=True, vertical_alignment="center"):
        if work is not None:
            st.button("Stop", key="sweep.stop", icon=":material/stop:", on_click=work.stop)
            caption("Results so far are kept.")
            return
        if done < total:
            st.button(
                "Go on" if done else "Run the sweep",
                type="primary",
                key="sweep.run",
                on_click=_start,
                args=(sweep, models, kept),
            )
            caption(_expectation(page, sweep, len(models), done))
        if kept.names:
            st.download_button(
                "Results (JSON)",
                data=lambda: sweep_text(kept.results),
                file_name="needle-sweep.json",
                mime="application/json",
                key="sweep.save",
                on_click="ignore",
            )


def _expectation(page: Page, sweep: Sweep, n_models: int, done: int) -> str:
    total = len(sweep.keys) * n_models
    each = {setting[1]: estimate_seconds(page.model, setting[1]) for setting in sweep.settings}
    seconds = n_models * sweep.samples * sum(each[setting[1]] for setting in sweep.settings)
    low, high = wilson_interval(round(sweep.samples / 2), sweep.samples)
    return (
        f"{done:,} of {total:,} samples are there; the rest takes about "
        f"{time_text(seconds * (total - done) / total)} here. With {sweep.samples} samples a cell is known "
        f"to ±{(high - low) / 2:.2f}. The order of the needles is shuffled."
    )


def _start(sweep: Sweep, models: dict[str, ModelKey], kept: Kept) -> None:
    work = partial(measure, models, sweep, kept, cache.stores())
    jobs.start("sweep", (sweep, tuple(models.items())), work)


def _draw_live(sweep: Sweep, kept: Kept, work: Work | None) -> None:
    """The bar and what there is so far."""
    if work is not None:
        jobs.watch(work)
    samples = kept.samples(sweep)
    if samples:
        axes = Axes(sweep.needles, sweep.lengths, sweep.depths)
        draw_results(axes, {name: one.vocabulary for name, one in kept.names.items()}, samples, "sweep")
    elif work is None:
        st.info("No sample of this sweep yet. Press Run the sweep; Stop keeps what is measured.")


MEGABYTES = 20
MOST_VALUES = 40  # lengths, and depths: more have no room on a chart


def draw_opened() -> None:
    """The place for the file, and what it holds."""
    file = text_file(
        "sweep file",
        "Results (JSON), saved above or written by the command needle",
        ["json"],
        MEGABYTES,
        "Close the file",
    )
    if file is None:
        caption("The charts of a file appear here from the file alone; nothing is run.")
        return
    try:
        results: SweepResults = remember(
            lambda: parse_sweep(file[1], file[0]), "sweep file", _digest(file[1])
        )
        _draw(results, file[0])
    except MtaVizError as error:
        st.error(plain(str(error)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _draw(results: SweepResults, name: str) -> None:
    models = {words: one for words, one in named(results).items() if one.samples}
    if not models:
        st.info(plain(f"{name} holds no sample yet: the sweep that writes it has only begun."))
        return
    chosen = _pick(list(models))
    samples = {words: one.samples for words, one in models.items() if words in chosen}
    if not samples:
        st.info("Choose at least one model of the file.")
        return
    _check_room(samples, name)
    every = (sample for found in samples.values() for sample in found)
    vocabularies = {words: one.vocabulary for words, one in models.items()}
    draw_results(axes_of(every), vocabularies, samples, "opened")
    _draw_origin(results, models)


def named(results: SweepResults) -> dict[str, ModelResults]:
    """The models by name; where two have one name, with the beginning of their sha256 or their place."""
    names = [one.name for one in results.models]
    found: dict[str, ModelResults] = {}
    for place, one in enumerate(results.models):
        words = one.name if names.count(one.name) == 1 else f"{one.name} {one.sha256[:8]}"
        found[words if words and words not in found else f"{words} ({place + 1})"] = one
    return found


def _pick(names: list[str]) -> list[str]:
    """At most as many as a chart has lines for."""
    if len(names) <= MOST_MODELS:
        return names
    kept = state.kept("opened models", names[:MOST_MODELS], names)
    return st.multiselect("Models of the file", names, max_selections=MOST_MODELS, **kept)


def _check_room(samples: dict[str, tuple[SampleResult, ...]], name: str) -> None:
    axes = axes_of(sample for found in samples.values() for sample in found)
    for words, values in (("lengths", axes.lengths), ("depths", axes.depths)):
        if len(values) > MOST_VALUES:
            raise MtaVizError(
                f"{name} has samples of {len(values):,} {words}; at most {MOST_VALUES} can be drawn. "
                "Measure fewer into one file"
            )


def _draw_origin(results: SweepResults, models: dict[str, ModelResults]) -> None:
    """What the file says it was measured on."""
    st.markdown("**Measured on**")
    st.dataframe(
        [
            {
                "checkpoint": words,
                "samples": len(one.samples),
                "sha256 of its weights": one.sha256,
                "tokenizer": one.vocabulary,
            }
            for words, one in models.items()
        ],
        hide_index=True,
        key="opened.origin",
    )
    question = results.question or "the needle up to its value"
    caption(
        f"Needle: {results.needle} Question: {question}. Digest of templates, haystack: {results.wording}; "
        "models with equal tokenizers got the same samples."
    )

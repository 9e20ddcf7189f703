"""The sweep of the needle lab: its form, the job with its bar, and what there is so far as charts."""

from functools import partial

import streamlit as st

from mta_viz.analysis.labs.sweep import Sweep, check_sweep
from mta_viz.analysis.labs.sweep_file import sweep_text
from mta_viz.analysis.labs.sweep_summary import Axes
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.intervals import wilson_interval
from mta_viz.tracing import estimate_seconds
from mta_viz.ui import cache, jobs, registry, state
from mta_viz.ui.cache import ModelKey
from mta_viz.ui.labs.needle_form import Form
from mta_viz.ui.labs.sweep_charts import draw_results
from mta_viz.ui.labs.sweep_job import Kept, kept_for, measure
from mta_viz.ui.open_page import Page
from mta_viz.ui.other_models import beside, can_run
from mta_viz.ui.running import Job
from mta_viz.ui.waiting import time_text
from mta_viz.ui.widgets import caption

NEEDLES, DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8), (0, 10, 25, 50, 75, 90, 100)
MOST_MODELS = 4


def draw_sweep(page: Page, form: Form) -> None:
    """Fields, then the results with the job's bar while it runs. The wording is the form's."""
    sweep, models = _draw_fields(page, form)
    if sweep is None:
        return
    check_sweep(page.model, sweep)
    kept = kept_for(sweep, state.get("sweep kept"))
    state.put("sweep kept", kept)
    key = (sweep, tuple(models.items()))
    job = jobs.running("sweep", key)
    _draw_buttons(page, sweep, models, kept, job)
    jobs.say_failure(jobs.current("sweep", key))
    st.fragment(_draw_live, run_every=1.0 if job else None)(sweep, kept, job)


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


def _draw_buttons(page: Page, sweep: Sweep, models: dict[str, ModelKey], kept: Kept, job: Job | None) -> None:
    total = len(sweep.keys) * len(models)
    there = kept.samples(sweep)
    done = sum(len(there.get(name, ())) for name in models)
    with st.container(horizontal=True, vertical_alignment="center"):
        if job is not None:
            st.button("Stop", key="sweep.stop", icon=":material/stop:", on_click=job.cancel)
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


def _draw_live(sweep: Sweep, kept: Kept, job: Job | None) -> None:
    """The bar and what there is so far."""
    if job is not None:
        jobs.watch(job)
    samples = kept.samples(sweep)
    if samples:
        axes = Axes(sweep.needles, sweep.lengths, sweep.depths)
        draw_results(axes, {name: one.vocabulary for name, one in kept.names.items()}, samples, "sweep")
    elif job is None:
        st.info("No sample of this sweep yet. Press Run the sweep; Stop keeps what is measured.")

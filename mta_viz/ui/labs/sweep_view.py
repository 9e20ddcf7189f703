"""The sweep of the needle lab: its form, the job with its bar, and what there is so far as charts."""

import dataclasses
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.sweep import Sweep, check_sweep
from mta_viz.analysis.labs.sweep_file import sweep_text
from mta_viz.errors import Cancelled
from mta_viz.tasks.intervals import wilson_interval
from mta_viz.tracing import estimate_seconds
from mta_viz.ui import cache, registry, state
from mta_viz.ui.cache import ModelKey
from mta_viz.ui.labs import jobs
from mta_viz.ui.labs.needle_form import Form
from mta_viz.ui.labs.sweep_charts import draw_results
from mta_viz.ui.labs.sweep_job import Kept, kept_for, measure
from mta_viz.ui.open_page import Page, errors_as_messages
from mta_viz.ui.waiting import progress_text, time_text
from mta_viz.ui.widgets import caption, plain

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
    current = state.get("job.sweep")
    key = (sweep, tuple(models.items()))
    running = current is not None and current[0] == key and not current[1].wait(0)
    _draw_buttons(page, sweep, models, kept, running)
    st.fragment(_draw_live, run_every=1.0 if running else None)(sweep, kept, running)


def _draw_fields(page: Page, form: Form) -> tuple[Sweep | None, dict[str, ModelKey]]:
    n_ctx = page.model.config.n_ctx
    lengths = sorted({128, 256, 512, 1024, 2048, 4096, n_ctx // 2, n_ctx, form.task.length})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        needles = st.multiselect("Needles", NEEDLES, width=170, **state.kept("sweep needles", [2, 4]))
        length = st.multiselect(
            "Lengths", lengths, width=200, **_within("sweep lengths", [min(256, n_ctx)], lengths)
        )
        depths = st.multiselect(
            "Depths in %", DEPTHS, width=250, **state.kept("sweep depths", [0, 25, 50, 75, 100])
        )
        samples = st.number_input("Samples of each", 1, 100_000, width=140, **state.kept("sweep samples", 20))
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


def _within(name: str, default: list[int], options: list[int]) -> dict[str, Any]:
    """`state.kept` for several choices, those no longer offered left out."""
    state.put(name, [one for one in state.get(name, default) if one in options])
    return state.kept(name, default)


def _pick_models(page: Page) -> dict[str, ModelKey]:
    """This page's model, and others that can run, on the same samples."""
    own: ModelKey = page.model_key
    found = cache.discovery(tuple(map(str, registry.roots()))).found
    usable = {
        one.name: one.path
        for one in found
        if one.problem is None and one.summary is not None and one.summary.format not in ("kernels", "params")
    }
    here = next((name for name, path in usable.items() if str(path) == own.path), None)
    if here is None:
        here, usable = "this model", {"this model": own.path, **usable}
    twin = here.replace("-mta", "-transformer")
    default = [here, twin] if twin != here and twin in usable else [here]
    kept = _within("sweep models", default, list(usable))
    if state.get("sweep models of") != own.path:  # another model was chosen at the left
        state.put("sweep models of", own.path)
        state.put("sweep models", default)
        kept = state.kept("sweep models", default)
    chosen = st.multiselect("Models", list(usable), max_selections=MOST_MODELS, width=330, **kept)
    return {name: own if str(usable[name]) == own.path else _key(own, usable[name]) for name in chosen}


def _key(own: ModelKey, path: Any) -> ModelKey:
    """Another model on the same device, in the same precision."""
    return dataclasses.replace(
        own, path=str(path), changed=cache.changed(path), tokenizer=state.get(f"tokenizer.{path}"), step=None
    )


def _draw_buttons(page: Page, sweep: Sweep, models: dict[str, ModelKey], kept: Kept, running: bool) -> None:
    total = len(sweep.keys) * len(models)
    there = kept.samples(sweep)
    done = sum(len(there.get(name, ())) for name in models)
    job = state.get("job.sweep")
    with st.container(horizontal=True, vertical_alignment="center"):
        if running:
            st.button("Stop", key="sweep.stop", icon=":material/stop:", on_click=job[1].cancel)
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
    if job is not None and job[1].error is not None and not isinstance(job[1].error, Cancelled):
        st.error(plain(f"The sweep stopped: {job[1].error}"))


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
    jobs.forget("sweep")
    stores = cache.stores()
    jobs.job_for("sweep", (sweep, tuple(models.items())), partial(measure, models, sweep, kept, stores))


def _draw_live(sweep: Sweep, kept: Kept, running: bool) -> None:
    """The bar and what there is so far; a rerun of the page ends the watching when the job is done."""
    job = state.get("job.sweep")
    with errors_as_messages():
        if running and job is not None:
            if job[1].wait(0):
                st.rerun()
            st.progress(job[1].fraction, text=progress_text(job[1]))
        samples = kept.samples(sweep)
        if samples:
            draw_results(sweep, kept, samples)
        elif not running:
            st.info("No sample of this sweep yet. Press Run the sweep; Stop keeps what is measured.")

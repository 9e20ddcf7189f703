"""Results of a sweep from a file: its charts, and what they were measured on. No model is run."""

import hashlib

import streamlit as st

from mta_viz.analysis.labs.sweep import SampleResult
from mta_viz.analysis.labs.sweep_file import ModelResults, SweepResults, parse_sweep
from mta_viz.analysis.labs.sweep_summary import axes_of
from mta_viz.errors import MtaVizError
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.labs.sweep_charts import draw_results
from mta_viz.ui.labs.sweep_view import MOST_MODELS
from mta_viz.ui.uploads import text_file
from mta_viz.ui.widgets import caption, plain

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

"""The text lab: the last word of passages, or every token of a text; pasted, or from a file."""

import hashlib
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.answers import check_vocabulary
from mta_viz.analysis.labs.passages import PassageScores, score_passages
from mta_viz.analysis.labs.text_losses import TextLosses, text_losses
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.passages import FORMAT_WORDS, parse_passages
from mta_viz.ui import jobs, state
from mta_viz.ui.labs.losses_view import draw_losses, window_words
from mta_viz.ui.labs.words_view import draw_words, word_words
from mta_viz.ui.open_page import Page
from mta_viz.ui.running import Job
from mta_viz.ui.uploads import text_file
from mta_viz.ui.waiting import QUIET_SECONDS
from mta_viz.ui.widgets import caption

LAST_WORD, EVERY_TOKEN = MEASURES = ("the last word", "every token")
MEGABYTES = {LAST_WORD: 50, EVERY_TOKEN: 5}
NAME = "text"
FIGURE_SECONDS = 600.0  # the longest that who waits for a figure without a browser is to wait
Found = PassageScores | TextLosses


@dataclass(frozen=True)
class Given:
    """What is to be measured of which text; `file` is the file's name, None for what was typed."""

    measure: str
    text: str
    file: str | None

    @property
    def digest(self) -> str:
        """Equal only for equal ones."""
        return hashlib.sha256(repr((self.measure, self.file is None, self.text)).encode()).hexdigest()[:16]


def draw_text(page: Page) -> None:
    """The form, the job, and what it found so far."""
    check_vocabulary(page.model, page.model.tokenizer)
    given = _draw_form()
    n_ctx = page.model.config.n_ctx
    with st.expander("What is measured"):
        caption(word_words(n_ctx) if given.measure == LAST_WORD else window_words(n_ctx))
    if not given.text.strip():
        st.info("There is no text yet. Type or paste one above, or open a file, then press Measure.")
        return
    _draw_job(page, given)


def _draw_form() -> Given:
    measure = st.segmented_control(
        "Measure", MEASURES, required=True, **state.kept("text measure", LAST_WORD, MEASURES)
    )
    last = measure == LAST_WORD
    left, right = st.columns((3, 2))
    with right:
        file = text_file(
            f"text file {measure}",
            "A file of passages" if last else "A text file",
            ["txt", "md", "jsonl", "json"] if last else ["txt", "md"],
            MEGABYTES[measure],
            "Use the typed text again",
        )
        caption(FORMAT_WORDS if last else "Plain text in UTF-8.")
    with left:
        typed = st.text_area(
            "A passage" if last else "A text",
            height=170,
            disabled=file is not None,
            **state.kept("text typed", state.get("prompt") or ""),
        )
    return Given(measure, typed, None) if file is None else Given(measure, file[1], file[0])


def _draw_job(page: Page, given: Given) -> None:
    kept: dict[object, Found] = state.get("text kept", {})
    state.put("text kept", kept)  # the job writes into this one
    key = (NAME, page.model_key, given.digest)
    _start_linked(page.model, given, kept, key)
    job = jobs.running(NAME, key)
    with st.container(horizontal=True, vertical_alignment="center"):
        if job is not None:
            st.button("Stop", key="text.stop", icon=":material/stop:", on_click=job.cancel)
            caption("What is measured so far stays.")
        else:
            args = (page.model, given, kept, key)
            st.button("Measure", type="primary", key="text.run", on_click=_start, args=args)
    jobs.say_failure(jobs.current(NAME, key))
    live = st.fragment(_draw_live, run_every=1.0) if job else _draw_live
    live(page, kept, key, job)


def _start_linked(model: HookedMTA, given: Given, kept: dict[object, Found], key: object) -> None:
    """Measure what a link of a page that showed a result asks for: its own text, once, and no file."""
    state.declare("text shown", "")
    if kept or state.get("text asked") is not None or state.get("text shown") != given.digest:
        return
    _start(model, given, kept, key)
    job = jobs.current(NAME, key)
    if job is not None:
        job.wait(FIGURE_SECONDS if state.get("waits for all") else QUIET_SECONDS)


def _start(model: HookedMTA, given: Given, kept: dict[object, Found], key: object) -> None:
    """Results of other texts are let go: they may be large."""
    kept.clear()
    state.put("text asked", key)
    state.put("text shown", given.digest if given.file is None else "")
    jobs.start(NAME, key, partial(_measure, model, given, kept, key))


def _measure(model: HookedMTA, given: Given, kept: dict[object, Found], key: object, job: Job) -> None:
    def keep(found: Found) -> None:
        kept[key] = found

    job.begin("Reading the passages" if given.measure == LAST_WORD else "Reading the text")
    if given.measure == EVERY_TOKEN:
        text_losses(model, given.text, keep=keep, progress=job.report)
        return
    passages = (given.text,) if given.file is None else parse_passages(given.text, given.file)
    score_passages(model, passages, keep=keep, progress=job.report)


def _draw_live(page: Page, kept: dict[object, Found], key: object, job: Job | None) -> None:
    """The bar, and what is known so far."""
    if job is not None:
        jobs.watch(job)
    found = kept.get(key)
    if found is None:
        if job is None:
            st.info("Not measured yet. Press Measure; long files can be stopped, and keep what is measured.")
    elif isinstance(found, PassageScores):
        draw_words(page, found, running=job is not None)
    else:
        draw_losses(page, found, key, running=job is not None)

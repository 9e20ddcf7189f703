"""The text lab: the last word of passages, or every token of a text; pasted, or from a file."""

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.answers import check_vocabulary
from mta_viz.analysis.labs.passages import PassageScores, score_passages
from mta_viz.analysis.labs.text_losses import TextLosses, text_losses
from mta_viz.model.transformer import HookedMTA
from mta_viz.tasks.passages import FORMAT_WORDS, parse_passages
from mta_viz.ui import state
from mta_viz.ui.labs.losses_view import draw_losses, window_words
from mta_viz.ui.labs.measuring import Measurement, draw_measurement, kept
from mta_viz.ui.labs.words_view import draw_words, word_words
from mta_viz.ui.open_page import Page
from mta_viz.ui.running import Job
from mta_viz.ui.uploads import text_file
from mta_viz.ui.widgets import caption

LAST_WORD, EVERY_TOKEN = MEASURES = ("the last word", "every token")
MEGABYTES = {LAST_WORD: 50, EVERY_TOKEN: 5}
NAME = "text"
SHOWN = "text shown"  # a setting: the digest of the text whose result is shown
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
    key = (NAME, page.model_key, given.digest)
    draw_measurement(
        Measurement(
            NAME,
            key,
            "Measure",
            "What is measured so far stays when it is stopped.",
            partial(_measure, page.model, given, kept(NAME)),
            partial(_draw_found, page, given, key),
            by_itself=_asked_by_link(given),
        )
    )


def _asked_by_link(given: Given) -> bool:
    """Whether this is the text of a link of a page that showed a result; said once, and of no file."""
    state.declare(SHOWN, "")
    asked = state.get(SHOWN) == given.digest and not kept(NAME) and not state.get("text linked")
    state.put("text linked", True)
    return asked


def _measure(
    model: HookedMTA, given: Given, results: dict[Hashable, Found], keep: Callable[[Found], None], job: Job
) -> None:
    """Results of other texts are let go: they may be large."""
    results.clear()
    job.begin("Reading the passages" if given.measure == LAST_WORD else "Reading the text")
    if given.measure == EVERY_TOKEN:
        text_losses(model, given.text, keep=keep, progress=job.report)
        return
    passages = (given.text,) if given.file is None else parse_passages(given.text, given.file)
    score_passages(model, passages, keep=keep, progress=job.report)


def _draw_found(page: Page, given: Given, key: object, found: Found | None, running: bool) -> None:
    """What is known so far."""
    if found is None:
        if not running:
            st.info("Not measured yet. Press Measure; long files can be stopped, and keep what is measured.")
        return
    state.put(SHOWN, given.digest if given.file is None else "")
    if isinstance(found, PassageScores):
        draw_words(page, found, running=running)
    else:
        draw_losses(page, found, key, running=running)

"""The text lab: the last word of passages, or every token of a text; pasted, or from a file.

Last words on the page: one passage in words, many as accuracy, perplexity and a table.
The losses of a text on the page: perplexity, the text on its losses, every token as a table.
"""

import hashlib
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.analysis.labs.text import PassageScores, TextLosses, WordScore, score_passages, text_losses
from mta_viz.exporting.results import losses_csv, words_csv
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.labs import loss_text
from mta_viz.plots.theme import probability_text
from mta_viz.tasks.passages import FORMAT_WORDS, parse_passages
from mta_viz.ui.labs.parts import Measurement, draw_measurement, kept
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import remember
from mta_viz.ui.shell.link import Box
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.uploads import text_file
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, plain, save_table
from mta_viz.ui.shell.work import Work

SHOWN_WORDS, SHOWN_RUNNING = 5_000, 100  # rows


def word_words(n_ctx: int) -> str:
    """What is measured, and how."""
    return (
        "The last word is the last run of letters and digits, with apostrophes, hyphens and decimal points "
        "inside it; punctuation, quotes and symbols after it are neither read nor asked for. All before it "
        "is read. Where it is several tokens, the rank is that of the first, the probability the product "
        "over all, each after the right ones before it, and it is right when each is the likeliest. What "
        f"would come after the word is not asked. A passage of more than {n_ctx:,} tokens, the length this "
        "model was trained on, is read from its end. A single word has nothing before it and cannot be asked."
    )


def draw_words(page: Page, found: PassageScores, *, running: bool) -> None:
    """One passage's verdict, or the sums and the table."""
    if found.n == 1:
        _draw_one(page, found)
        return
    if found.words:
        st.markdown(plain(sum_words(found)))
    if found.left_out:
        named = "; ".join(f"{one.number}: {one.reason}" for one in found.left_out[:3])
        more = f"; and {len(found.left_out) - 3:,} more, in the CSV" if len(found.left_out) > 3 else ""
        st.warning(plain(f"Left out: {len(found.left_out):,}. Passage {named}{more}."))
    if found.words:
        _draw_table(found, running)


def _draw_one(page: Page, found: PassageScores) -> None:
    if not found.words:
        st.error(plain(f"This passage cannot be asked: {found.left_out[0].reason}."))
        return
    (one,) = found.words
    (st.success if one.greedy else st.warning)(plain(verdict(one, page.model.config.vocab_size)))
    save_table((state.selection().checkpoint, "last-word"), lambda: words_csv(found), "words")


def verdict(one: WordScore, vocabulary: int) -> str:
    """One word's numbers."""
    tokens = f"{len(one.pieces)} token{'s' if len(one.pieces) > 1 else ''}: {' '.join(one.pieces)}"
    missed = "" if one.rank == 1 else f", the likeliest is “{one.instead}”"
    cut = f" Only the last {one.n_read:,} of {one.n_before:,} tokens were read."
    return (
        f"Last word: “{one.word}” {'✓' if one.greedy else '✗'} ({tokens}). "
        f"Its first token has rank {one.rank:,} of {vocabulary:,}{missed}. "
        f"p(word) {probability_text(one.probability)}, perplexity {number_text(one.perplexity)}."
        f"{'' if one.n_read == one.n_before else cut}"
    )


def number_text(value: float) -> str:
    """Three significant digits, or more where the number is large."""
    return f"{value:,.0f}" if 100 <= value < 1e9 else f"{value:#.3g}"


def sum_words(found: PassageScores) -> str:
    """Accuracy with its interval, and perplexity."""
    score, first = found.accuracy, sum(one.rank == 1 for one in found.words)
    low, high = score.interval
    done = len(found.words) + len(found.left_out)
    so_far = "" if done == found.n else f" So far {done:,} of {found.n:,} passages."
    return (
        f"{score.right:,} of {score.n:,} last words right: accuracy {score.accuracy:.1%}, "
        f"95 % interval {low:.1%} to {high:.1%}. First token right in {first / score.n:.1%}. "
        f"Perplexity of the last word {number_text(found.perplexity)}: exp of the mean of −log p(word)."
        f"{so_far}"
    )


def _draw_table(found: PassageScores, running: bool) -> None:
    shown = found.words[: SHOWN_RUNNING if running else SHOWN_WORDS]
    st.dataframe(
        list(map(_words_view_row, shown)),
        hide_index=True,
        height=360 if len(shown) > 9 else "content",
        key="words.table",
    )
    if len(shown) < len(found.words):
        caption(f"The first {len(shown):,} of {len(found.words):,}; the CSV has them all.")
    if not running:
        save_table((state.selection().checkpoint, "last-words"), lambda: words_csv(found), "words")


def _words_view_row(one: WordScore) -> dict[str, Any]:
    return {
        "passage": one.number,
        "last word": one.word,
        "right": "✓" if one.greedy else "✗",
        "rank": one.rank,
        "p(word)": probability_text(one.probability),
        "perplexity": number_text(one.perplexity) if math.isfinite(one.perplexity) else "inf",
        "likeliest first token": one.instead,
        "tokens of the word": " ".join(one.pieces),
        "tokens read": one.n_read,
    }


WIDTH, PART = 900, 1_500  # pixels; tokens drawn at once


def window_words(n_ctx: int) -> str:
    """What is measured, and how."""
    return (
        "Every token after the first is predicted from all before it; perplexity is exp of the mean loss, "
        f"the loss −log p(token) in nats. At most {n_ctx:,} tokens are read at once, the length this model "
        "was trained on. A longer text is read in windows of that length, each "
        f"{n_ctx // 2:,} tokens after the one before, begun with the token that begins texts where there is "
        "one; a token counts in the first window that holds it, with at least half a window before it."
    )


def draw_losses(page: Page, found: TextLosses, key: Hashable, *, running: bool) -> None:
    """The numbers; when nothing runs any more, the text and its table as well."""
    st.markdown(plain(loss_words(found)))
    if running:
        return
    shown = _part(len(found.tokens))
    limit = float(math.ceil(math.log(page.model.config.vocab_size)))
    figure = remember(
        lambda: loss_text(found, shown, limit=limit, width=WIDTH), "losses", key, found.n, shown
    )
    chart(figure, f"losses.{hash((key, found.n, shown))}", alt="The text on the losses of its tokens")
    caption_with_save(
        f"Light: expected. Dark: a surprise; {limit:g} nats, the scale's end, is about a guess among all "
        f"{page.model.config.vocab_size:,} tokens. Hatched: nothing predicts it. Point at a token to read "
        "its probability, its rank, and what was likeliest instead.",
        (state.selection().checkpoint, "losses"),
        figure,
        lambda: losses_csv(found),
        "losses",
    )
    with st.expander("All numbers"):
        st.dataframe([_row(found, at) for at in shown], hide_index=True, key="losses.table")


def loss_words(found: TextLosses) -> str:
    """Perplexity, and over what."""
    total = len(found.tokens)
    if not found.n:
        return f"Nothing measured yet of {total:,} tokens."
    so_far = "" if found.n == total - 1 else f" So far: the text has {total:,} tokens."
    windows = f" in {found.windows:,} windows" if found.windows > 1 else ""
    return (
        f"Perplexity {number_text(found.perplexity)}: exp of {found.loss:.4f} nats, the mean over "
        f"{found.n:,} predicted tokens{windows}.{so_far}"
    )


def _part(n_tokens: int) -> range:
    """Which tokens are drawn: all, or one part of a long text."""
    parts = math.ceil(n_tokens / PART)
    if parts == 1:
        return range(n_tokens)
    number = st.number_input(
        f"Part, 1 to {parts}", 1, parts, width=150, **state.kept("text part", 1, range(1, parts + 1))
    )
    caption(f"Each part is {PART:,} tokens.")
    return range((number - 1) * PART, min(number * PART, n_tokens))


def _row(found: TextLosses, at: int) -> dict[str, Any]:
    loss, rank = float(found.losses[at]), int(found.ranks[at])
    if not rank:
        return {"position": at, "token": found.tokens.pieces[at]}
    return {
        "position": at,
        "token": found.tokens.pieces[at],
        "probability": probability_text(math.exp(-loss)),
        "rank": rank,
        "loss in nats": round(loss, 4),
        "likeliest": found.expected[at],
    }


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
    """The form, the work, and what it found so far."""
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
            **state.kept("text typed", state.part(Box).text or ""),
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
    model: HookedMTA, given: Given, results: dict[Hashable, Found], keep: Callable[[Found], None], work: Work
) -> None:
    """Results of other texts are let go: they may be large."""
    results.clear()
    work.begin("Reading the passages" if given.measure == LAST_WORD else "Reading the text")
    if given.measure == EVERY_TOKEN:
        text_losses(model, given.text, keep=keep, progress=work.report)
        return
    passages = (given.text,) if given.file is None else parse_passages(given.text, given.file)
    score_passages(model, passages, keep=keep, progress=work.report)


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

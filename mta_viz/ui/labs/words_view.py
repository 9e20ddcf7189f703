"""Last words on the page: one passage in words, many as accuracy, perplexity and a table."""

import math
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.passages import PassageScores, WordScore
from mta_viz.exporting.labs import words_csv
from mta_viz.plots.theme import probability_text
from mta_viz.ui import state
from mta_viz.ui.open_page import Page
from mta_viz.ui.widgets import caption, plain, save_table

SHOWN, SHOWN_RUNNING = 5_000, 100  # rows


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
    save_table((state.view().checkpoint, "last-word"), lambda: words_csv(found), "words")


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
    shown = found.words[: SHOWN_RUNNING if running else SHOWN]
    st.dataframe(
        list(map(_row, shown)),
        hide_index=True,
        height=360 if len(shown) > 9 else "content",
        key="words.table",
    )
    if len(shown) < len(found.words):
        caption(f"The first {len(shown):,} of {len(found.words):,}; the CSV has them all.")
    if not running:
        save_table((state.view().checkpoint, "last-words"), lambda: words_csv(found), "words")


def _row(one: WordScore) -> dict[str, Any]:
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

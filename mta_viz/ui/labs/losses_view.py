"""The losses of a text on the page: perplexity, the text on its losses, every token as a table."""

import math
from collections.abc import Hashable
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.text_losses import TextLosses
from mta_viz.exporting.labs import losses_csv
from mta_viz.plots.loss_text import loss_text
from mta_viz.plots.theme import probability_text
from mta_viz.ui import state
from mta_viz.ui.cache import remember
from mta_viz.ui.labs.words_view import number_text
from mta_viz.ui.open_page import Page
from mta_viz.ui.widgets import caption, caption_with_save, chart, plain

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
        (state.view().checkpoint, "losses"),
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

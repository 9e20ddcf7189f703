"""The text lab: the last word of passages, or every token of a text; typed, or from a file."""

import hashlib
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.analysis.labs.text import PassageScores, TextLosses, WordScore, score_passages, text_losses
from mta_viz.figures.labs import measured as figures
from mta_viz.figures.labs.measured import LastWords, LossText
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import probability_text
from mta_viz.tasks.written import FORMAT_WORDS, parse_passages
from mta_viz.tokenizers.base import quoted
from mta_viz.ui.labs.parts import draw_verdict, source_of
from mta_viz.ui.shell import link, show, state
from mta_viz.ui.shell.measuring import Keep, Measurement, all_results, draw_measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import bar, caption, plain, text_file
from mta_viz.ui.shell.work import Work

NAME = "text"
LAST_WORD, EVERY_TOKEN = MEASURES = ("the last word", "every token")
MEGABYTES = {LAST_WORD: 50, EVERY_TOKEN: 5}
MEASURED = {
    LAST_WORD: (
        "The last word is the last run of letters and digits, with apostrophes, hyphens and decimal points "
        "inside it; punctuation, quotes and symbols after it are neither read nor asked for. All before it "
        "is read. Where it is several tokens, the rank is that of the first, the probability the product "
        "over all, each after the right ones before it, and it is right when each is the likeliest. What "
        "would come after the word is not asked. A passage of more than {n_ctx:,} tokens, the length this "
        "model was trained on, is read from its end. A single word has nothing before it and cannot be asked."
    ),
    EVERY_TOKEN: (
        "Every token after the first is predicted from all before it; perplexity is exp of the mean loss, "
        "the loss −log p(token) in nats. At most {n_ctx:,} tokens are read at once, the length this model "
        "was trained on. A longer text is read in windows of that length, each {half:,} tokens after the one "
        "before, begun with the token that begins texts where there is one; a token counts in the first "
        "window that holds it, with at least half a window before it."
    ),
}
SHOWN_WORDS, SHOWN_RUNNING = 5_000, 100  # rows
MEASURE, TYPED, PART = Setting("text measure", LAST_WORD), Setting("text typed", ""), Setting("text part", 1)
SHOWN = Setting("text shown", "")  # the digest of the text whose result is shown
Result = PassageScores | TextLosses


@dataclass(frozen=True)
class _Given:
    measure: str
    text: str
    file: str | None  # its name; None for what was typed

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.measure, self.file is None, self.text)).encode()).hexdigest()[:16]

    def passages(self) -> tuple[str, ...]:
        """What was typed is one. Raises PromptError for a file that holds none."""
        return (self.text,) if self.file is None else parse_passages(self.text, self.file)


@dataclass
class _Linked:
    done: bool = False  # whether a link's text was looked at


def draw_text(page: Page) -> None:
    """The form, the work, and what there is so far."""
    check_vocabulary(page.model, page.model.tokenizer)
    given = _draw_form()
    n_ctx = page.model.config.n_ctx
    with st.expander("What is measured"):
        caption(MEASURED[given.measure].format(n_ctx=n_ctx, half=n_ctx // 2))
    if not given.text.strip():
        st.info("There is no text yet. Type or paste one above, or open a file, then press Measure.")
        return
    key, measure = (NAME, page.model_key, given.digest), partial(_measure, page.model, given)
    words, linked = "What is measured so far stays when it is stopped.", state.part(_Linked)
    # A link of a page that showed this text's result measures it, once; no file has such a link.
    by_link = SHOWN.declare() == given.digest and not linked.done and not all_results(NAME)
    linked.done = True
    measurement = Measurement(NAME, key, "Measure", measure, words, by_itself=by_link, large=True)
    draw_measured(measurement, partial(_draw_result, page, given))


def _draw_form() -> _Given:
    measure = bar("Measure", MEASURES, MEASURE)
    last = measure == LAST_WORD
    left, right = st.columns((3, 2))
    with right:
        label, kinds = "A file of passages" if last else "A text file", ["txt", "md", "jsonl", "json"]
        kinds = kinds if last else kinds[:2]
        close = "Use the typed text again"
        file = text_file(f"text file {measure}", label, kinds, MEGABYTES[measure], close)
        caption(FORMAT_WORDS if last else "Plain text in UTF-8.")
    with left:
        look: Any = {"disabled": file is not None, **TYPED.widget(default=state.part(link.Box).text or "")}
        typed = st.text_area("A passage" if last else "A text", height=170, **look)
    return _Given(measure, typed, None) if file is None else _Given(measure, file[1], file[0])


def _measure(model: HookedMTA, given: _Given, running: Work, keep: Keep) -> Result:
    if given.measure == EVERY_TOKEN:
        running.begin("Reading the text")
        return text_losses(model, given.text, keep=keep, progress=running.report)
    running.begin("Reading the passages")
    return score_passages(model, given.passages(), keep=keep, progress=running.report)


def _draw_result(page: Page, given: _Given, result: Result | None, running: bool) -> None:
    if result is None:
        if not running:
            st.info("Not measured yet. Press Measure; long files can be stopped, and keep what is measured.")
        return
    SHOWN.put(given.digest if given.file is None else "")
    if isinstance(result, PassageScores):
        _draw_words(page, given, result, running)
    else:
        _draw_losses(page, given, result, running)


def _draw_words(page: Page, given: _Given, scores: PassageScores, running: bool) -> None:
    if scores.n == 1 and not scores.words:
        st.error(plain(f"This passage cannot be asked: {scores.left_out[0].reason}."))
        return
    if scores.n == 1:
        (word,) = scores.words
        draw_verdict(_verdict(word, page.model.config.vocab_size))
    elif scores.words:
        st.markdown(plain(_sum_words(scores)))
    if scores.n > 1 and scores.left_out:
        reasons = "; ".join(f"{passage.number}: {passage.reason}" for passage in scores.left_out[:3])
        count = len(scores.left_out)
        more = f"; and {count - 3:,} more, in the CSV" if count > 3 else ""
        st.warning(plain(f"Left out: {count:,}. Passage {reasons}{more}."))
    if scores.n > 1 and scores.words:
        _draw_table(scores, running)
    if scores.words and not running:
        show.show(source_of(page), LastWords(given.passages()), result=scores)


def _verdict(word: WordScore, vocabulary: int) -> str:
    tokens = f"{len(word.pieces)} token{'s' if len(word.pieces) > 1 else ''}: {' '.join(word.pieces)}"
    missed = "" if word.rank == 1 else f", the likeliest is {quoted(word.instead)}"
    cut = f" Only the last {word.n_read:,} of {word.n_before:,} tokens were read."
    return (
        f"Last word: {quoted(word.word)} {'✓' if word.greedy else '✗'} ({tokens}). "
        f"Its first token has rank {word.rank:,} of {vocabulary:,}{missed}. "
        f"p(word) {probability_text(word.probability)}, perplexity {_number_text(word.perplexity)}."
        f"{'' if word.n_read == word.n_before else cut}"
    )


def _number_text(value: float) -> str:
    """Three significant digits, or more where the number is large."""
    return f"{value:,.0f}" if 100 <= value < 1e9 else f"{value:#.3g}"


def _sum_words(scores: PassageScores) -> str:
    score, first = scores.accuracy, sum(word.rank == 1 for word in scores.words)
    low, high = score.interval
    done = len(scores.words) + len(scores.left_out)
    so_far = "" if done == scores.n else f" So far {done:,} of {scores.n:,} passages."
    return (
        f"{score.right:,} of {score.n:,} last words right: accuracy {score.accuracy:.1%}, "
        f"95 % interval {low:.1%} to {high:.1%}. First token right in {first / score.n:.1%}. "
        f"Perplexity of the last word {_number_text(scores.perplexity)}: exp of the mean of −log p(word)."
        f"{so_far}"
    )


def _draw_table(scores: PassageScores, running: bool) -> None:
    shown = scores.words[: SHOWN_RUNNING if running else SHOWN_WORDS]
    height: Any = 360 if len(shown) > 9 else "content"
    rows = replace(scores, words=shown, left_out=()).table().frame().drop(columns="left_out")
    st.dataframe(rows, hide_index=True, height=height, key="words.table")
    if len(shown) < len(scores.words):
        caption(f"The first {len(shown):,} of {len(scores.words):,}; the CSV has them all.")


def _draw_losses(page: Page, given: _Given, losses: TextLosses, running: bool) -> None:
    st.markdown(plain(_loss_words(losses)))
    if running:
        return
    parts, part = math.ceil(len(losses.tokens) / figures.PART), 1
    if parts > 1:
        widget = PART.widget(range(1, parts + 1))
        part = 1 + widget.pop("index")
        part = int(st.number_input(f"Part, 1 to {parts}", 1, parts, part, width=150, **widget))
        caption(f"Each part is {figures.PART:,} tokens.")
    figure = LossText(given.text, part)
    show.show(source_of(page), figure, result=losses, widget=f"losses.{hash((figure, losses.n))}")
    with st.expander("All numbers"):
        rows = [_loss_row(losses, place) for place in figure.tokens(len(losses.tokens))]
        st.dataframe(rows, hide_index=True, key="losses.table")


def _loss_words(losses: TextLosses) -> str:
    total = len(losses.tokens)
    if not losses.n:
        return f"Nothing measured yet of {total:,} tokens."
    so_far = "" if losses.n == total - 1 else f" So far: the text has {total:,} tokens."
    windows = f" in {losses.windows:,} windows" if losses.windows > 1 else ""
    return (
        f"Perplexity {_number_text(losses.perplexity)}: exp of {losses.loss:.4f} nats, the mean over "
        f"{losses.n:,} predicted tokens{windows}.{so_far}"
    )


def _loss_row(losses: TextLosses, place: int) -> dict[str, Any]:
    loss, rank = float(losses.losses[place]), int(losses.ranks[place])
    row: dict[str, Any] = {"position": place, "token": losses.tokens.pieces[place]}
    if not rank:
        return row
    return row | {
        "probability": probability_text(math.exp(-loss)),
        "rank": rank,
        "loss in nats": round(loss, 4),
        "likeliest": losses.expected[place],
    }

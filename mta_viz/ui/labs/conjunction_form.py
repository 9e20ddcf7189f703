"""The conjunction lab's form: blocks of letters, or a text of one's own with lines of words."""

from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.labs.four_prompts import FourPrompts, block_prompts, words_of, written_prompts
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockTask
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.tracing import tokenize
from mta_viz.ui import state
from mta_viz.ui.open_page import Page

KINDS = ("Blocks", "My own text")
TEXT = (
    "A boy fed the {B} in the yard. {A} saw the {B} by the gate. Then {A} went home with a book. "
    "Where did {A?} see the {B?}?"
)
SPAN = "{A} saw the {B} by the gate"
LINES = (
    "Alice, rabbit, Peter, parrot",
    "Maria, weasel, James, monkey",
    "Helen, donkey, Susan, salmon",
    "Felix, sheep, Alice, mouse",
    "Jacob, goat, Laura, duck",
    "Mark, lamb, Kate, duck",
    "Diana, monkey, Julia, beaver",
    "Emily, goose, Sarah, mouse",
)
LETTERS = ("hjnvt.q{A}gz{B}.aoxsb#{A?}{B?}", "q{A}gz{B}", "d, f, m, p\ne, r, m, p\nu, w, k, y")


@dataclass(frozen=True)
class BlockForm:
    """Sequences of a block task."""

    task: BlockTask
    n: int
    seed: int

    def samples(self, tokenizer: Tokenizer) -> tuple[FourPrompts, ...]:
        """Raises ConfigError where too few sequences will do."""
        return block_prompts(self.task, self.n, self.seed)


@dataclass(frozen=True)
class TextForm:
    """A text, its span, and a line of four words for each sample."""

    text: str
    span: str
    lines: str

    @property
    def n(self) -> int:
        """How many samples the lines are."""
        return len(words_of(self.lines))

    def samples(self, tokenizer: Tokenizer) -> tuple[FourPrompts, ...]:
        """Raises PromptError saying what is missing, or by how many tokens the prompts differ."""
        return written_prompts(tokenizer, self.text, self.span, words_of(self.lines))


Form = BlockForm | TextForm


def draw_form(page: Page) -> Form:
    """Blocks are offered where the model has the block task's letters."""
    letters = page.model.config.vocab_size == VOCAB_SIZE
    kinds = KINDS if letters else KINDS[1:]
    kind = kinds[0]
    if len(kinds) > 1:
        kind = st.segmented_control(
            "Prompts", kinds, required=True, **state.kept("conjunction prompts", kinds[0], kinds)
        )
    return _draw_blocks() if kind == KINDS[0] else _draw_text(page, letters)


def _draw_blocks() -> BlockForm:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        n_letters = st.number_input(
            "Letters a block, N",
            3,
            25,
            width=150,
            **state.kept("conjunction letters a block", 5, within=(3, 25)),
        )
        count = st.number_input(
            "Blocks", 1, 10_000, width=120, **state.kept("conjunction blocks", 52, within=(1, 10_000))
        )
        n = st.number_input(
            "Samples", 1, 500, width=120, **state.kept("conjunction samples", 20, within=(1, 500))
        )
        seed = st.number_input(
            "Seed", 0, 10**6, width=120, **state.kept("conjunction seed", 0, within=(0, 10**6))
        )
    return BlockForm(BlockTask(int(n_letters), 2, int(count)), int(n), int(seed))


def _draw_text(page: Page, letters: bool) -> TextForm:
    text, span, lines = LETTERS if letters else (TEXT, SPAN, _fitting(page))
    which = "letters" if letters else "text"  # each vocabulary keeps its own
    text = st.text_area(
        "Text: {A} and {B} are the two words, {A?} and {B?} where they are asked for",
        height=96,
        help="{A} and {B} stay in all four prompts; {A?} and {B?} are exchanged, so they stand after the "
        "span. The last token's row is measured.",
        **state.kept(f"conjunction {which}", text),
    )
    span = st.text_input(
        "Span: the part of the text whose attention is measured",
        **state.kept(f"conjunction {which} span", span),
    )
    lines = st.text_area(
        "A line a sample: A, B, what stands for A, what stands for B",
        height=120,
        help="What stands for a word needs as many tokens as the word. With one line there is no interval.",
        **state.kept(f"conjunction {which} lines", lines),
    )
    return TextForm(text, span, lines)


def _fitting(page: Page) -> str:
    """The example lines whose words this tokenizer cuts into as many tokens."""
    there = [line for line in LINES if _fits(page, line)]
    return "\n".join(there or LINES[:1])


def _fits(page: Page, line: str) -> bool:
    lengths = [len(tokenize(page.model, f"the {word}")) for word in words_of(line)[0]]
    return lengths[:2] == lengths[2:]

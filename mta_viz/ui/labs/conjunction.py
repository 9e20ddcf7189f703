"""The conjunction lab: do two words together find a span that each alone does not?

The conjunction lab's form: blocks of letters, or a text of one's own with lines of words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.conjunction import Conjunction, at_identity, check_reads_alike, conjunction
from mta_viz.analysis.labs.four_prompts import PROMPTS, FourPrompts, block_prompts, words_of, written_prompts
from mta_viz.errors import PromptError
from mta_viz.model.plans import everything_to_identity
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import KERNELS_ONLY, estimate_seconds, tokenize
from mta_viz.tasks.blocks import VOCAB_SIZE, BlockTask
from mta_viz.tokenizers.base import Tokenizer
from mta_viz.ui.labs.conjunction_view import draw_results
from mta_viz.ui.labs.parts import Measurement, draw_measurement
from mta_viz.ui.shell import cache, state
from mta_viz.ui.shell.cache import ModelKey, Stores
from mta_viz.ui.shell.loading import model_of
from mta_viz.ui.shell.models import twin_beside
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text

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


NAME = "conjunction"
ITSELF = "the same model, kernels at identity"
ALONE = "nothing"
SHOWN_END = 80  # characters of a prompt: the end, where the prompts differ
Found = dict[str, Conjunction]  # by the names of the models


def draw_conjunction(page: Page) -> None:
    """The form, the four prompts of the first sample, and what every head makes of them."""
    if page.model.kernels_only:
        raise PromptError(KERNELS_ONLY)
    if page.model.tokenizer is None:
        raise PromptError("this checkpoint came without its tokenizer; give the file at the left")
    caption(
        "The paper says that a convolution finds the sentence with both “Alice” and “rabbit”. Four "
        "prompts test it: both words asked for, each alone, neither. I = f(both) − f(A only) − f(B only) + "
        "f(neither), f what the last token gives the span."
    )
    form = draw_form(page)
    first = BlockForm(form.task, 1, form.seed) if isinstance(form, BlockForm) else form
    samples = first.samples(page.model.tokenizer)
    _draw_prompts(samples[0], isinstance(form, BlockForm))
    _draw_run(page, form, len(samples[0].prompts[0]))


def _draw_prompts(sample: FourPrompts, blocks: bool) -> None:
    texts = [prompt.text or "" for prompt in sample.prompts]
    ends = [text if len(text) <= SHOWN_END else f"… {text[-SHOWN_END:]}" for text in texts]
    st.dataframe(
        [{"prompt": name, "of the first sample": end} for name, end in zip(PROMPTS, ends, strict=True)],
        hide_index=True,
        column_config={"prompt": st.column_config.TextColumn(width="small")},
    )
    words = f"{len(sample.prompts[0])} tokens each; the span is “{sample.span.name}”."
    if blocks:
        words += (
            " Only the two letters at the end differ. A letter is replaced by one that the target block "
            "lacks, such that no block holds both letters of any of the other three prompts; sequences "
            "without such letters are passed over."
        )
    caption(words)


def _pick_beside(page: Page) -> tuple[str, ModelKey | None]:
    """What runs on the same samples: the twin, this model at identity, or nothing."""
    twin = twin_beside(page.model_key) if page.model_key is not None else None
    names = [twin[0]] if twin else []
    if everything_to_identity(page.model.config):
        names.append(ITSELF)
    names.append(ALONE)
    name = st.selectbox("Beside", names, width=330, **state.kept("conjunction beside", names[0], names))
    return name, twin[1] if twin and name == twin[0] else None


def _draw_run(page: Page, form: Form, n_tokens: int) -> None:
    name, twin = _pick_beside(page)
    runs = form.n * len(PROMPTS) * (1 if name == ALONE else 2)
    seconds = runs * estimate_seconds(page.model, n_tokens)
    key = (NAME, page.model_key, form, name)
    own = state.selection().checkpoint or "this model"
    draw_measurement(
        Measurement(
            NAME,
            key,
            "Run the test",
            f"{runs:,} runs of a prompt, about {time_text(seconds)} here. Results so far are kept.",
            partial(_work, page.model, own, form, (name, twin), cache.stores()),
            partial(_draw_found, page, key),
        )
    )


def _work(
    model: HookedMTA,
    own: str,
    form: Form,
    beside: tuple[str, ModelKey | None],
    stores: Stores,
    keep: Callable[[Found], None],
    work: Work,
) -> None:
    """Test the model, then what stands beside it, on the same samples."""
    work.begin("Making the prompts")
    if model.tokenizer is None:
        raise PromptError("this checkpoint came without its tokenizer")
    samples, found = form.samples(model.tokenizer), dict[str, Conjunction]()
    name, key = beside

    def measure(one: HookedMTA, called: str) -> None:
        work.begin(f"Running {called}")
        so_far = dict(found)
        found[called] = conjunction(
            one, samples, keep=lambda part: keep({**so_far, called: part}), progress=work.report
        )

    measure(model, own)
    if key is not None:
        twin: HookedMTA = model_of(key, stores, work)
        check_reads_alike(twin, name, samples)
        measure(twin, name)
    elif name == ITSELF and (plain_one := at_identity(model)) is not None:
        measure(plain_one, ITSELF)


def _draw_found(page: Page, key: object, found: Found | None, running: bool) -> None:
    """What there is so far."""
    if found:
        draw_results(page, found, key)
    else:
        st.info(plain("The first sample is on its way." if running else "Not run yet. Press Run the test."))

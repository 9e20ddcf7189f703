"""The block lab: one sequence letter by letter, the heads that find its block, the error over many."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from mta_viz.analysis.labs.blocks import (
    BlockAnswer,
    BlockSample,
    BlocksEvaluation,
    answer_block,
    block_parts,
    block_region,
    block_sample,
    chance_error,
    check_characters,
    evaluate_blocks,
)
from mta_viz.analysis.labs.finder import Finder, find
from mta_viz.analysis.labs.needle import at_once
from mta_viz.errors import PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import capture, estimate_seconds
from mta_viz.tasks.blocks import OUTPUTS, VOCAB_SIZE, BlockTask
from mta_viz.ui.labs.finder import Asked, Prompt, draw_crop, draw_finder
from mta_viz.ui.labs.parts import Measurement, draw_measurement
from mta_viz.ui.shell import state, work
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text


def writes_blocks(page: Page) -> bool:
    """Whether this model has the block task's characters as its vocabulary."""
    return page.model.config.vocab_size == VOCAB_SIZE


def draw_blocks(page: Page) -> None:
    """The form, one sequence, the error over many."""
    try:
        check_characters(page.model)
    except PromptError as error:
        st.info(plain(f"{error} blocks-n5-mta is one; a language model belongs to the tab Needle."))
        return
    task, number = _draw_form()
    st.subheader("One sequence")
    _draw_sample(page, task, number)
    st.subheader("Error over many sequences")
    _draw_error(page, task)


def _draw_form() -> tuple[BlockTask, int]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        n = st.number_input(
            "Letters a block, N", 2, 25, width=150, **state.kept("block letters", 5, within=(2, 25))
        )
        query = st.number_input(
            "Letters asked, L",
            1,
            24,
            width=150,
            help="Fewer than N: the model sees these and answers with their block.",
            **state.kept("block query", 2, within=(1, 24)),
        )
        count = st.number_input(
            "Blocks", 1, 10_000, width=120, **state.kept("block count", 52, within=(1, 10_000))
        )
        output = st.selectbox(
            "Answer",
            OUTPUTS,
            format_func=lambda one: "all letters" if one == "all" else f"the {one} letter",
            width=150,
            **state.kept("block output", OUTPUTS[0], OUTPUTS),
        )
        number = st.number_input(
            "Sample", 0, 10**6, width=120, **state.kept("block sample", 0, within=(0, 10**6))
        )
    return BlockTask(int(n), int(query), int(count), output), int(number)


def _draw_sample(page: Page, task: BlockTask, number: int) -> None:
    sample = block_sample(task, number)
    st.button("New sequence", key="blocks.new", on_click=state.put, args=("block sample", number + 1))
    key = ("blocks", page.model_key, task, number)
    found = work.finished("blocks", key, partial(_work, page.model, sample))
    if found is None:
        return
    answer, finder = found
    words = f"Model: {answer.letters}. Gold: {sample.answer} {'✓' if answer.all_right else '✗'}"
    verdict = (
        f"Asked: the block with {' and '.join(sample.query)}. {words}  "
        f"p(gold) {probability_text(answer.probability)}."
    )
    (st.success if answer.all_right else st.warning)(plain(verdict))
    st.html(sequence_html(sample, answer))
    caption(
        f"{len(sample.tokens)} tokens, {len(sample.blocks)} blocks; the target block is outlined. Under the "
        "letters of the answer: what the model predicts after the gold letters before it."
    )
    text = sample.tokens.text or ""
    draw_finder(page, finder, key, "Block", Prompt(text, lambda: finder.parts.all))
    words = "query letters x target block"
    draw_crop(page, Asked(sample.tokens, block_region(sample), words, key))


def _work(model: HookedMTA, sample: BlockSample, work: Work) -> tuple[BlockAnswer, Finder]:
    work.begin("Running the sequence")
    trace = capture(model, sample.tokens, progress=work.report)
    work.begin("Looking where every head looks")
    return answer_block(model, sample), find(trace, block_parts(sample), progress=work.report)


def sequence_html(sample: BlockSample, answer: BlockAnswer) -> str:
    """Blocks as chips, the target outlined, query letters marked; the answer with a tick or cross each."""
    chips = [
        _chip(block, sample.query, "target") if index == sample.target else _chip(block)
        for index, block in enumerate(sample.blocks)
    ]
    letters = "".join(
        f'<span class="letter {"right" if right else "wrong"}">{gold}<small>{said} {"✓" if right else "✗"}'
        "</small></span>"
        for gold, said, right in zip(sample.answer, answer.letters, answer.right, strict=True)
    )
    asked = _chip(sample.query, sample.query)
    return f'<div class="blocks">{" ".join(chips)} # {asked} → {letters}</div>'


def _chip(block: str, marked: str = "", kind: str = "") -> str:
    letters = "".join(f"<b>{one}</b>" if one in marked else one for one in block)
    return f'<span class="chip {kind}">{letters}</span>'


def _draw_error(page: Page, task: BlockTask) -> None:
    n = st.number_input(
        "Sequences", 1, 100_000, step=100, width=140, **state.kept("block n", 200, within=(1, 100_000))
    )
    seconds = n * estimate_seconds(page.model, task.n_tokens)
    draw_measurement(
        Measurement(
            "error",
            ("blocks error", page.model_key, task, int(n)),
            "Measure the error",
            f"About {time_text(seconds)} here. {chance_words(task)}",
            partial(_measure, page.model, task, int(n)),
            partial(_draw_measured, task),
        )
    )


def _measure(
    model: HookedMTA,
    task: BlockTask,
    n: int,
    keep: Callable[[BlocksEvaluation], None],
    work: Work,
) -> None:
    batch = at_once(model, task.n_tokens)
    evaluate_blocks(model, task, n=n, batch=batch, keep=keep, progress=work.report)


def _draw_measured(task: BlockTask, found: BlocksEvaluation | None, running: bool) -> None:
    """The error so far."""
    if found is not None:
        st.markdown(plain(error_words(found, task)))
    else:
        st.info("The first sequences are on their way." if running else "Not measured yet.")


def error_words(found: BlocksEvaluation, task: BlockTask) -> str:
    """The error with its interval, letter by letter, beside chance."""
    low, high = found.interval
    letters = ", ".join(f"{share:.3f}" for share in found.letter_accuracy)
    names = "letters" if task.output == "all" else f"{task.output} letter"
    return (
        f"{found.wrong:,} of {found.n:,} wrong: error {found.error:.1%}, "
        f"95 % interval {low:.1%} to {high:.1%}. "
        f"Right answers of the {names}, each after the right ones before it: {letters}. {chance_words(task)}"
    )


def chance_words(task: BlockTask) -> str:
    """What guessing gives."""
    return f"A random block: {chance_error(task):.1%} wrong."

"""The block lab: one sequence letter by letter, the heads that find its block, the error over many."""

from functools import partial

import streamlit as st

from mta_viz.analysis.labs import blocks
from mta_viz.analysis.labs.blocks import BlockAnswer, BlockSample, BlocksEvaluation
from mta_viz.analysis.labs.finder import Finder, find
from mta_viz.analysis.labs.needle import at_once
from mta_viz.errors import PromptError
from mta_viz.figures.labs.samples import BlockCrop, BlockFinder, Blocks
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.theme import probability_text
from mta_viz.run.tracing import capture, estimate_seconds
from mta_viz.tasks.blocks import OUTPUTS, BlockTask
from mta_viz.ui.fields import menu, number
from mta_viz.ui.labs.parts import draw_crops, draw_finder, draw_verdict
from mta_viz.ui.shell import work
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, plain
from mta_viz.ui.shell.work import Work, time_text

LETTERS, QUERY, COUNT = Setting("block letters", 5), Setting("block query", 2), Setting("block count", 52)
OUTPUT, NUMBER = Setting("block output", OUTPUTS[0]), Setting("block sample", 0)
MANY = Setting("block n", 200)


def draw_blocks(page: Page) -> None:
    """The form, one sequence, the error over many."""
    try:
        blocks.check_characters(page.model)
    except PromptError as error:
        st.info(plain(f"{error} blocks-n5-mta is one; a language model belongs to the tab Needle."))
        return
    form = _draw_form()
    st.subheader("One sequence")
    _draw_sample(page, form)
    st.subheader("Error over many sequences")
    _draw_error(page, form.task)


def _draw_form() -> Blocks:
    asked_help = "Fewer than N: the model sees these and answers with their block."
    answers = {output: "all letters" if output == "all" else f"the {output} letter" for output in OUTPUTS}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return Blocks(
            number("Letters a block, N", LETTERS, (2, 25), width=150),
            number("Letters asked, L", QUERY, (1, 24), width=150, help=asked_help),
            number("Blocks", COUNT, (1, 10_000), width=120),
            menu("Answer", answers, OUTPUT, width=150),
            number("Sample", NUMBER, (0, 10**6), width=120),
        )


def _draw_sample(page: Page, form: Blocks) -> None:
    sample = blocks.block_sample(form.task, form.number)
    st.button("New sequence", key="blocks.new", on_click=NUMBER.put, args=(form.number + 1,))
    run = work.finished("blocks", ("blocks", page.model_key, form), partial(_run, page.model, sample))
    if run is None:
        return
    answer, finder = run
    words = f"Model: {answer.letters}. Gold: {sample.answer} {'✓' if answer.all_right else '✗'}"
    asked = f"Asked: the block with {' and '.join(sample.query)}."
    draw_verdict(answer.all_right, f"{asked} {words}  p(gold) {probability_text(answer.probability)}.")
    st.html(_sequence_html(sample, answer))
    caption(
        f"{len(sample.tokens)} tokens, {len(sample.blocks)} blocks; the target block is outlined. Under the "
        "letters of the answer: what the model predicts after the gold letters before it."
    )
    prompt = (sample.tokens.text or "", lambda: finder.parts.all)
    draw_finder(page, BlockFinder(**vars(form)), finder, "Block", prompt)
    draw_crops(page, BlockCrop(**vars(form)), "query letters x target block")


def _run(model: HookedMTA, sample: BlockSample, running: Work) -> tuple[BlockAnswer, Finder]:
    running.begin("Running the sequence")
    trace = capture(model, sample.tokens, progress=running.report)
    running.begin("Looking where every head looks")
    parts = blocks.block_parts(sample)
    return blocks.answer_block(model, sample), find(trace, parts, progress=running.report)


def _sequence_html(sample: BlockSample, answer: BlockAnswer) -> str:
    """Blocks as chips, the target outlined, query letters marked; the answer with a tick or cross each."""
    chips = [
        _chip(block, sample.query, "target") if index == sample.target else _chip(block)
        for index, block in enumerate(sample.blocks)
    ]
    letters = "".join(
        f'<span class="letter {"right" if right else "wrong"}">{gold}<small>{letter} {"✓" if right else "✗"}'
        "</small></span>"
        for gold, letter, right in zip(sample.answer, answer.letters, answer.right, strict=True)
    )
    asked = _chip(sample.query, sample.query)
    return f'<div class="blocks">{" ".join(chips)} # {asked} → {letters}</div>'


def _chip(block: str, marked: str = "", kind: str = "") -> str:
    letters = "".join(f"<b>{letter}</b>" if letter in marked else letter for letter in block)
    return f'<span class="chip {kind}">{letters}</span>'


def _draw_error(page: Page, task: BlockTask) -> None:
    n = number("Sequences", MANY, (1, 100_000), step=100, width=140)
    batch = at_once(page.model, task.n_tokens)
    seconds = n * estimate_seconds(page.model, task.n_tokens)

    def measure(work: Work, keep: Keep) -> BlocksEvaluation:
        return blocks.evaluate_blocks(page.model, task, n=n, batch=batch, keep=keep, progress=work.report)

    def draw(result: BlocksEvaluation | None, running: bool) -> None:
        if result is not None:
            st.markdown(plain(error_words(result, task)))
        else:
            st.info("The first sequences are on their way." if running else "Not measured yet.")

    key = ("blocks error", page.model_key, task, n)
    words = f"About {time_text(seconds)} here. {_chance(task)}"
    draw_measured(Measurement("error", key, "Measure the error", measure, words), draw)


def error_words(result: BlocksEvaluation, task: BlockTask) -> str:
    """The error with its interval, letter by letter, beside chance."""
    low, high = result.interval
    letters = ", ".join(f"{share:.3f}" for share in result.letter_accuracy)
    names = "letters" if task.output == "all" else f"{task.output} letter"
    return (
        f"{result.wrong:,} of {result.n:,} wrong: error {result.error:.1%}, "
        f"95 % interval {low:.1%} to {high:.1%}. "
        f"Right answers of the {names}, each after the right ones before it: {letters}. {_chance(task)}"
    )


def _chance(task: BlockTask) -> str:
    return f"A random block: {blocks.chance_error(task):.1%} wrong."

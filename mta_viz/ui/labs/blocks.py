"""The block lab: one sequence letter by letter, the heads that find its block, the error over many."""

from functools import partial

import streamlit as st

from mta_viz.analysis.labs import blocks
from mta_viz.analysis.labs.blocks import BlockAnswer, BlockSample, BlocksEvaluation
from mta_viz.analysis.labs.finder import Finder
from mta_viz.analysis.labs.needle import NeedleScore, at_once, counted, run_finder
from mta_viz.errors import PromptError
from mta_viz.figures.labs.samples import BlockCrop, BlockFinder, Blocks
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.parts import colors_of
from mta_viz.printed import probability_text, time_text
from mta_viz.run.tracing import Progress, estimate_seconds
from mta_viz.tasks.blocks import OUTPUTS, BlockTask
from mta_viz.ui.labs import fits, parts
from mta_viz.ui.shell.measuring import Keep, Measurement, draw_measured
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import menu, number, plain
from mta_viz.ui.shell.work import Work

LETTERS, QUERY, COUNT = Setting("block letters", 5), Setting("block query", 2), Setting("block count", 52)
OUTPUT, NUMBER = Setting("block output", OUTPUTS[0]), Setting("block sample", 0)
MANY, SHOWN = Setting("block n", 200), Setting("block shown", False)
RUNS = 2.5  # a sequence takes as long as so many runs of it: capture, finder, answer


def draw_blocks(page: Page) -> None:
    """How often it is right, one sequence, the error over many."""
    try:
        blocks.check_characters(page.model)
    except PromptError as error:
        fits.draw_unfit(page, "blocks", str(error))
        return
    with parts.settings("blocks", NUMBER) as beside:
        form = _draw_form()
    task = form.task
    words = f"{task.n_blocks} blocks of {task.n_letters} letters, asked by {task.n_query}. {_chance(task)}"
    _draw_sample(page, form)
    with beside:  # after what a visitor waits for
        fits.draw_often(page, task, 0, task.n_tokens, partial(_right, task), words, fits.SAMPLES)
    with st.expander("The error over many sequences, letter by letter"):
        _draw_error(page, task)


def _right(task: BlockTask, model: HookedMTA, n: int, progress: Progress) -> NeedleScore:
    batch = at_once(model, task.n_tokens)
    wrong = blocks.evaluate_blocks(model, task, n=n, batch=batch, progress=progress).wrong
    return counted(n - wrong, n)


def _draw_form() -> Blocks:
    asked_help = "Fewer than N: the model sees these and answers with their block."
    answers = {output: "all letters" if output == "all" else f"the {output} letter" for output in OUTPUTS}
    return Blocks(
        number("Letters a block, N", LETTERS, (2, 25), width=150),
        number("Letters asked, L", QUERY, (1, 24), width=150, help=asked_help),
        number("Blocks", COUNT, (1, 10_000), width=120),
        menu("Answer", answers, OUTPUT, width=150),
        number("Sample", NUMBER, (0, 10**6), width=120),
    )


def _draw_sample(page: Page, form: Blocks) -> None:
    sample = blocks.block_sample(form.task, form.number)
    seconds = fits.seconds_here(page.model, form.task.n_tokens, RUNS)

    def do(work: Work, keep: Keep) -> tuple[BlockAnswer, Finder]:
        asked = blocks.block_parts(sample)
        finder = run_finder(page.model, sample.tokens, asked, work.begin, work.report)
        return blocks.answer_block(page.model, sample), finder

    key = (page.model_key, form)
    run: tuple[BlockAnswer, Finder] | None = parts.sample_run("blocks", key, NUMBER, SHOWN, seconds, do)
    if run is None:
        return
    answer, finder = run
    words = f"Model: {answer.letters}. Gold: {sample.answer} {'✓' if answer.all_right else '✗'}"
    asked = f"Asked: the block with {' and '.join(sample.query)}."
    parts.draw_verdict(f"{asked} {words}  p(gold) {probability_text(answer.probability)}.")
    st.html(_sequence_html(sample, answer))
    prompt = (sample.tokens.text or "", lambda: finder.parts.all)
    crop = BlockCrop(**vars(form))
    parts.draw_heads(page, BlockFinder(**vars(form)), crop, finder, "Block", prompt)


def _sequence_html(sample: BlockSample, answer: BlockAnswer) -> str:
    """Blocks as chips, target and query outlined in their colours; the answer with a tick or cross each."""
    region = blocks.block_region(sample)
    target, asking = (color.line for color in colors_of((region.asked, region.asking)))
    chips = [
        _chip(block, sample.query, target) if index == sample.target else _chip(block)
        for index, block in enumerate(sample.blocks)
    ]
    letters = "".join(
        f'<span class="letter {"right" if right else "wrong"}">{gold}<small>{letter} {"✓" if right else "✗"}'
        "</small></span>"
        for gold, letter, right in zip(sample.answer, answer.letters, answer.right, strict=True)
    )
    asked = _chip(sample.query, sample.query, asking)
    return f'<div class="blocks">{" ".join(chips)} # {asked} → {letters}</div>'


def _chip(block: str, marked: str = "", color: str = "") -> str:
    letters = "".join(f"<b>{letter}</b>" if letter in marked else letter for letter in block)
    look = f' style="outline: 2px solid {color}"' if color else ""
    return f'<span class="chip"{look}>{letters}</span>'


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

"""Matters: what is lost when one kernel is set to identity, at the model's task and on this prompt."""

import math
import shlex
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

import streamlit as st

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.cause.effects import Absent, Effect, Effects, find_effects
from mta_viz.analysis.cause.kernel_effect import KernelEffect, kernel_effect
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.figures.kernels.gallery import KernelEffects
from mta_viz.plots.theme import probability_text, weight_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tokenizers.labels import label
from mta_viz.ui.attention.spans import spans_of
from mta_viz.ui.kernels.model import weights_source
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import changed, remember, stores
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.show import show
from mta_viz.ui.shell.widgets import caption, head_name, lines, plain

ASK_FROM = 1.0  # seconds
RUNS = 2.5  # measuring one kernel takes as long as so many runs of the prompt
NOT_TESTED = "Matters: not tested yet."
TASKS = {"needle": "the needle task", "blocks": "block finding"}


@dataclass
class Asked:
    """The measurement on a prompt that the visitor asked for, by its key."""

    key: tuple[Hashable, ...] | None = None


def draw_matters(page: Page, kernel: KernelId) -> None:
    """The card's section: the measured table first, then this prompt."""
    st.markdown("**Matters**")
    effects = effects_of(page)
    if isinstance(effects, Absent) or effects.of(kernel) is None:
        _draw_absent(page, effects)
    else:
        caption(_setting(effects))
        spec = KernelEffects(kernel.layer, kernel.head, kernel.where)
        show(weights_source(page), spec, on_head, widget=f"effects.{page.key}.{hash(spec)}")
    st.markdown("**On this prompt**")
    _draw_prompt(page, kernel)


def effects_of(page: Page) -> Effects | Absent:
    """The measured effects of this page's checkpoint; read and checked once for each state of its folder."""
    if page.model.source is None:
        return Absent("This model is not from a file, so no effects belong to it.")
    folder = page.model.source.path
    return remember(partial(find_effects, folder), "effects", str(folder), changed(folder))


def matters_sentence(effects: Effects | Absent, kernel: KernelId) -> str:
    """The verdict in one sentence: accuracy with and without, their interval, nats, and the rank."""
    effect = None if isinstance(effects, Absent) else effects.of(kernel)
    if isinstance(effects, Absent) or effect is None:
        return NOT_TESTED
    change, logs = effect.accuracy_change, effect.log_probability_change
    what = "set to identity" if kernel.where in ("pre", "post") else "with its row at identity"
    ends = f"{_signed(change.value)}, 95 % interval {_signed(change.low)} to {_signed(change.high)}"
    nats = f"{_signed(logs.value)} nats" if math.isfinite(logs.value) else "not a finite number"
    ranked = list(effects.of_each())
    return (
        f"Matters: {what}, accuracy on {TASKS[effects.task]} {_moves(effects.accuracy, effect)} "
        f"({ends}, {effects.samples:,} samples); log-probability of the answer {nats}: "
        f"rank {ranked.index(kernel) + 1} of {len(ranked)} kernels by that."
    )


def _moves(before: float, effect: Effect) -> str:
    change, old, new = effect.accuracy_change, weight_text(before), weight_text(effect.accuracy)
    if change.low <= 0 <= change.high:
        return f"stays as it is within chance: {old}, then {new}"
    return f"{'falls' if change.value < 0 else 'rises'} from {old} to {new}"


def _signed(value: float) -> str:
    size = abs(value)
    text = f"{size:.3f}" if size < 1 else f"{size:.2f}"
    return ("−" if value < 0 and float(text) else "+") + text


def _setting(effects: Effects) -> str:
    everything = max(effects.effects, key=lambda effect: len(effect.plan))
    words = (
        f"Each sample: {effects.setting}; the same {effects.samples:,} samples with and without the kernel."
    )
    if len(everything.plan) > 1:
        words += f" With everything at identity at once accuracy is {weight_text(everything.accuracy)}."
    return words


def _draw_absent(page: Page, effects: Effects | Absent) -> None:
    if isinstance(effects, Absent):
        why = effects.reason
    else:
        why = f"{len(effects.effects)} effects are measured so far, this kernel's is not among them."
    st.info(plain(f"{why} This command measures every kernel, and goes on where it stopped:"))
    lines(effects_command(page), "effects-command")


def effects_command(page: Page) -> str:
    """What to type to measure this checkpoint."""
    task = "blocks" if page.model.config.vocab_size == VOCAB_SIZE else "needle"
    path = shlex.quote(str(page.model.source.path)) if page.model.source else "PATH"
    return f"python -m mta_viz effects {path} --task {task}"


def _draw_prompt(page: Page, kernel: KernelId) -> None:
    if page.trace is None:
        caption("Press Run to measure it on a prompt.")
        return
    span = next((span for span in spans_of(page) if span.name.endswith("(asked)")), None)
    key = ("kernel effect", page.key, kernel, span)
    if not _wanted(page, key):
        return
    with st.spinner("Running the prompt with the kernel at identity ..."):
        effect = remember(lambda: kernel_effect(page.trace, kernel, span), *key)
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in prompt_sentences(effect, page, span)))


def _wanted(page: Page, key: tuple[Hashable, ...]) -> bool:
    """Whether to measure: what is measured already or quick, the rest after its button."""
    seconds = RUNS * estimate_seconds(page.model, len(page.trace.tokens))
    if seconds <= ASK_FROM or state.part(Asked).key == key or stores().drawn.get(key) is not None:
        return True
    st.button(
        f"Measure it on this prompt, about {math.ceil(seconds)} s",
        key="kernel-effect",
        on_click=_ask,
        args=(key,),
    )
    return False


def _ask(key: tuple[Hashable, ...]) -> None:
    state.part(Asked).key = key


def prompt_sentences(effect: KernelEffect, page: Page, span: Span | None) -> list[str]:
    """What the kernel does here: to its own map, to the attention, to the needle, to the next token."""
    kernel, change = effect.kernel, effect.change
    head = head_name(kernel.layer, kernel.head, page.numbering)
    centred = ", each row less its mean" if change.before.value.unit == "score" else ""
    sentences = [
        f"It changes the map by {change.size:.2f} of the map's own size: {change.before.value.long} against "
        f"{change.after.value.long}{centred}.",
        f"With the identity instead and the same layer input, {effect.mass_moved:.1%} of {head}'s final "
        f"attention lies on other keys (mean over {len(page.trace.tokens):,} queries).",
    ]
    if effect.gain is not None and span is not None:
        gain = effect.gain.gain
        sentences.append(
            f"Of the last token's attention, “{span.name}” gets {weight_text(effect.gain.with_kernel)} "
            f"with it and {weight_text(effect.gain.without)} without: "
            f"it {'adds' if gain >= 0 else 'takes'} {weight_text(abs(gain))}."
        )
    return [*sentences, _answer_sentence(effect, page)]


def _answer_sentence(effect: KernelEffect, page: Page) -> str:
    answer, tokenizer = effect.answer, page.model.tokenizer

    def name(token: int) -> str:
        return label(tokenizer.decode((token,))) if tokenizer else f"token {token}"

    now, then = (probability_text(math.exp(nats)) for nats in (answer.log_probability, answer.without))
    words = (
        f"The next token “{name(answer.token)}” has probability {now} with it and {then} without "
        f"({_signed(answer.change)} nats)"
    )
    if answer.token_without == answer.token:
        return f"{words}, and stays the most probable."
    return f"{words}; the most probable is then “{name(answer.token_without)}”."

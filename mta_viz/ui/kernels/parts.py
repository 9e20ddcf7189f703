"""What the parts of the Kernels page share: source, choosing a kernel, what is missing, what one matters.

Matters: what is lost when a kernel is set to identity, at the model's task and on this prompt.
"""

import math
import shlex
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from mta_viz.analysis.attention.matches import AtMatches
from mta_viz.analysis.attention.spans import Span, asked_span
from mta_viz.analysis.cause.effects import Absent, Effect, Effects, edits_differ
from mta_viz.analysis.cause.kernel_effect import KernelEffect, kernel_effect
from mta_viz.analysis.cause.shapley_file import TaskShapley, find_shapley
from mta_viz.analysis.kernels.kernels import KEY_QUERY, WHERE, KernelId
from mta_viz.analysis.labs.cards import trained_for
from mta_viz.config import Where
from mta_viz.figures.attention.kernels import KernelOperator, TapGainMap
from mta_viz.figures.base import NamedFigure, Source
from mta_viz.figures.cause import TASKS
from mta_viz.figures.cause.worth import EDITS
from mta_viz.figures.kernels.card import CardKernel, kernel_at_matches
from mta_viz.figures.kernels.gallery import KernelEffects, measured_effects
from mta_viz.model.plans import Edit
from mta_viz.plots.kernels.card import WIDTH as CARD_WIDTH
from mta_viz.plots.kernels.mosaic import Scale
from mta_viz.plots.theme import weight_text
from mta_viz.printed import head_name, layer_label, probability_text
from mta_viz.run.tracing import estimate_seconds
from mta_viz.tasks.blocks import VOCAB_SIZE
from mta_viz.tasks.intervals import level_text
from mta_viz.ui.attention.head import spans_of
from mta_viz.ui.kernels.inserting import draw_inserting
from mta_viz.ui.shell import state
from mta_viz.ui.shell.address import draw_address
from mta_viz.ui.shell.cache import remember, stores
from mta_viz.ui.shell.machine import draw_models
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.page import Page, errors_as_messages
from mta_viz.ui.shell.pickers import on_head
from mta_viz.ui.shell.show import show, source_of
from mta_viz.ui.shell.state import Setting, Wanted
from mta_viz.ui.shell.widgets import Bases, bar, caption, layer_list, lines, plain, window_button

# By their names in addresses; those beside the bar are drawn as buttons.
PARTS = {"Gallery": "Atlas"} | {name: name for name in ("One layer", "Over training", "Recurrence")}
BESIDE = {"Paper figures": ":material/download:", "Definitions": ":material/help:"}
PART, SCALE = Setting("part", "Gallery"), Setting[Scale]("kernel_scale", "shared")
ASK_FROM = 1.0  # seconds
FOLDED, TAPS_WIDTH = Setting("sign_folded", False), CARD_WIDTH
LAYER_RUNS = 2.0  # reading a layer's maps takes as long as so many of its shares of a run
RUNS = 2.5  # measuring one kernel takes as long as so many runs of the prompt
LEAST = 0.0005  # of a share, and nats: what is less would be written as 0
NOT_TESTED = "Matters: not tested yet."


def weights_source(page: Page) -> Source:
    """What figures of the weights alone are drawn from: kept for the file and its time, not the prompt."""
    source = source_of(page)
    return replace(source, run=None, remember=source.remember_weights)


def select_kernel(kernel: KernelId) -> None:
    """Make a kernel the chosen one, here and on the other pages."""
    state.select(layer=kernel.layer, head=kernel.head, place=kernel.where)


def has_kernels(page: Page) -> bool:
    """Whether any layer has key-query kernels or mixes heads; says so where none does."""
    config = page.model.config
    there = any(config.kernels(layer).any for layer in range(config.n_layers))
    if not there:
        say_no_kernels(page)
    return there


def say_no_kernels(page: Page) -> None:
    """What stands in the place of kernels: a plain model can be given some."""
    variant = page.model.config.variant
    plain_model = variant == "transformer"
    kind = f"{'plain ' if plain_model else ''}{VARIANTS[variant]}"
    give = ", or give it some: train them, or insert them at the identity" if plain_model else ""
    draw_address(f"{state.selection().checkpoint} · no kernels")
    st.info(plain(f"This checkpoint has no key-query kernels ({kind}). Open another, or an adapter{give}."))
    with st.container(horizontal=True):
        if plain_model:
            look: dict[str, Any] = {"icon": ":material/model_training:", "type": "primary"}
            go = partial(st.switch_page, "pages/train.py")
            st.button("Train kernels", key="train.open", on_click=go, **look)
            draw_inserting(page)
        window_button("Open another", "models.open", draw_models, icon=":material/table:")


def missing_text(page: Page, layer: int, where: Where) -> str:
    """What to say of a layer without such kernels: which layers have some."""
    config = page.model.config
    having = [at for at in range(config.n_layers) if getattr(config.kernels(at), where)]
    others = f"Layers that have one: {layer_list(having, page.numbering)}." if having else "No layer has one."
    return f"{layer_label(layer, page.numbering)} has no key-query kernel {WHERE[where]}. {others}"


def pick_scale() -> Scale:
    """One colour scale for all, or each its own."""
    words = "shared: one colour scale for all; own: each its own."
    scale: Scale = bar("Scale", ("shared", "own"), SCALE, help=words)
    return scale


def draw_matters(page: Page, kernel: KernelId) -> None:
    """The card's section: the measured table, or how to measure it."""
    st.markdown("**Matters on the task**")
    effects = effects_of(page)
    if isinstance(effects, Absent) or effects.of(kernel) is None:
        why = (
            effects.reason
            if isinstance(effects, Absent)
            else f"{len(effects.effects)} effects are measured so far, this kernel's is not among them."
        )
        st.info(plain(f"{why} This command measures every kernel, and goes on where it stopped:"))
        lines(effects_command(page), "effects-command")
    else:
        caption(_setting(effects))
        spec = KernelEffects(kernel.layer, kernel.head, kernel.where)
        show(weights_source(page), spec, on_head, widget=f"effects.{page.key}.{hash(spec)}")
    for words in (
        edits_sentence(effects, effects_of(page, "own-tap"), kernel),
        worth_sentence(worth_of(page), kernel),
    ):
        if words:
            st.markdown(plain(words))


def matches_of(page: Page, card: CardKernel) -> AtMatches | None:
    """What the kernel does where the prompt's tokens match; None without a prompt, or until it is asked for.

    One layer's maps are computed once for a prompt; only where that takes long a button stands before it.
    """
    if page.trace is None:
        return None
    key, asked = ("at matches", page.key, card.kernel.layer), state.part(Wanted)
    seconds = LAYER_RUNS * estimate_seconds(page.model, len(page.trace.tokens)) / page.model.config.n_layers
    if seconds > ASK_FROM and key not in asked.keys:
        words = f"Measure its signs on this prompt, about {math.ceil(seconds)} s"
        st.button(words, key="kernel-matches", on_click=lambda: asked.keys.add(key))
        return None
    with errors_as_messages(), st.spinner("Reading the maps where tokens match ..."):
        return kernel_at_matches(source_of(page), card)
    return None


def matches_sentence(page: Page, at: AtMatches | None) -> str:
    """What it does at matches, as measured on this prompt, or that it was not measured."""
    if at is not None:
        return f"On this prompt: {at.sentence}"
    why = "no prompt has run" if page.trace is None else "not yet"
    return f"On this model's scores: not measured, {why}. Which way the taps act is not in the taps."


def effects_of(page: Page, edit: Edit = "identity") -> Effects | Absent:
    """The measured effects of this page's checkpoint; read and checked once for each state of its folder."""
    return measured_effects(weights_source(page), edit)


def worth_of(page: Page) -> TaskShapley | Absent:
    """What each kernel is worth, as measured beforehand; read and checked once in the same way."""
    return weights_source(page).remember(partial(find_shapley, page.model.path), "worth")


def edits_sentence(identity: Effects | Absent, own_tap: Effects | Absent, kernel: KernelId) -> str:
    """What is lost at the own tap only beside the identity, and whether they differ; empty without both."""
    if isinstance(identity, Absent) or isinstance(own_tap, Absent):
        return ""
    first, second = identity.of(kernel), own_tap.of(kernel)
    if first is None or second is None:
        return ""
    words = (
        f"At its own tap only, gain and sign kept (the table's {own_tap.samples:,} samples): {_nats(second)}"
    )
    tested = first.log_probability_change_median and second.log_probability_change_median
    how = "intervals apart" if tested else "the means are more than a factor of two and 0.1 nats apart"
    if edits_differ(first, second):
        return f"{words}. That differs from the identity ({how}): gain or sign has a part beside the shape."
    return f"{words}; not clearly different from the identity."


def worth_sentence(worth: TaskShapley | Absent, kernel: KernelId) -> str:
    """Necessary, sufficient and the Shapley value; empty where they are not measured."""
    value = None if isinstance(worth, Absent) else worth.of(kernel)
    if isinstance(worth, Absent) or value is None:
        return ""
    return (
        f"On Shapley's {worth.shared.n_samples:,} samples a kernel taken out {EDITS[worth.shared.edit]}. "
        f"Alone removed (necessary): {_signed(-value.necessary)} nats. All others removed (sufficient): it "
        f"gives {_signed(value.sufficient)} of the {_signed(worth.shared.effect)} that all kernels give "
        f"together. Shapley value {_signed(value.shapley)}, standard error {value.standard_error:.2g} "
        "(a sweep in the workspace has all kernels)."
    )


def matters_sentence(effects: Effects | Absent, kernel: KernelId) -> str:
    """The verdict in one sentence: accuracy with and without, their interval, nats, and the rank."""
    effect = None if isinstance(effects, Absent) else effects.of(kernel)
    if isinstance(effects, Absent) or effect is None:
        return NOT_TESTED
    change = effect.accuracy_change
    what = "set to identity" if kernel.where in KEY_QUERY else "with its row at identity"
    what = "with its own tap alone" if effects.edit == "own-tap" else what
    ends = f"{_signed(change.value)}, 95 % interval {_signed(change.low)} to {_signed(change.high)}"
    ranked = list(effects.of_each())
    return (
        f"Matters: {what}, accuracy on {TASKS[effects.task]} {_moves(effects.accuracy, effect)} "
        f"({ends}, {effects.samples:,} samples); log-probability of the answer {_nats(effect)}: "
        f"rank {ranked.index(kernel) + 1} of {len(ranked)} kernels by the mean."
    )


def _nats(effect: Effect) -> str:
    """The mean change, and the median with its interval where it was measured."""
    mean, median = effect.log_probability_change.value, effect.log_probability_change_median
    if not math.isfinite(mean):
        return "not a finite number"
    words = f"{_signed(mean)} nats in the mean"
    if median is None:
        return words
    ends = f"{level_text(median.level)} interval {_signed(median.low)} to {_signed(median.high)}"
    return f"{words}, median {_signed(median.value)} ({ends})"


def _moves(before: float, effect: Effect) -> str:
    change, old, new = effect.accuracy_change, weight_text(before), weight_text(effect.accuracy)
    if change.low <= 0 <= change.high:
        return f"is {old} with it and {new} without; the interval of the change holds 0"
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


def effects_command(page: Page, command: str = "effects") -> str:
    """What to type to measure this checkpoint, its effects or by another command."""
    readable = "blocks" if page.model.config.vocab_size == VOCAB_SIZE else "needle"
    task = "pairs" if trained_for(page.model.path) == "pairs" else readable
    path = shlex.quote(str(page.model.path)) if page.model.path else "PATH"
    if page.model_key is not None and page.model_key.path in state.part(Bases):
        path += f" --base {shlex.quote(state.part(Bases)[page.model_key.path])}"
    return f"python -m mta_viz {command} {path} --task {task}"


def draw_prompt(page: Page, kernel: KernelId) -> None:
    """What is measured already or quick; the rest after its button."""
    if page.trace is None:
        caption(page.empty)
        return
    span = asked_span(spans_of(page))
    key, asked = ("kernel effect", page.key, kernel, span), state.part(Wanted)
    seconds = RUNS * estimate_seconds(page.model, len(page.trace.tokens))
    if seconds > ASK_FROM and key not in asked.keys and stores().drawn.get(key) is None:
        words = f"Measure it on this prompt, about {math.ceil(seconds)} s"
        st.button(words, key="kernel-effect", on_click=lambda: asked.keys.add(key))
        return
    with st.spinner("Running the prompt with the kernel at identity ..."):
        effect = remember(lambda: kernel_effect(page.trace, kernel, span), *key)
    st.markdown("\n".join(f"- {plain(sentence)}" for sentence in _prompt_sentences(effect, page, span)))
    words = "The kernel acts on scores whose sign differs from head to head: this shows the sign as measured."
    if kernel.where in KEY_QUERY and st.toggle("Sign and scale folded out", help=words, **FOLDED.widget()):
        _draw_taps(page, kernel, span)


def _draw_taps(page: Page, kernel: KernelId, span: Span | None) -> None:
    """The shape on the prompt's own scores, and what each tap adds to a needle that is asked for."""
    run, where = source_of(page), "pre" if kernel.where == "pre" else "post"
    place: dict[str, Any] = {"layer": kernel.layer, "head": kernel.head, "where": where}
    figures: list[NamedFigure[Any]] = [KernelOperator(**place)]
    if span is not None:
        figures.append(TapGainMap(keys=(span.start, span.stop), **place))
    with st.container(horizontal=True, gap="medium", vertical_alignment="top"):
        for figure in figures:
            with st.container(width=TAPS_WIDTH), errors_as_messages():
                show(run, figure, widget=f"{figure.name}.{page.key}.{hash(figure)}")


def _prompt_sentences(effect: KernelEffect, page: Page, span: Span | None) -> list[str]:
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
        gain, moved = effect.gain.gain, "no difference"
        if abs(gain) >= LEAST:
            moved = f"it {'adds' if gain >= 0 else 'takes'} {weight_text(abs(gain))}"
        sentences.append(
            f"Of the last token's attention, {span.words} gets {weight_text(effect.gain.with_kernel)} "
            f"with it and {weight_text(effect.gain.without)} without: {moved}."
        )
    return [*sentences, _answer_sentence(effect)]


def _answer_sentence(effect: KernelEffect) -> str:
    own, without = effect.standing, effect.without
    now, then = (probability_text(at.probability) for at in (own, without))
    change = without.log_probability - own.log_probability
    nats = f" ({_signed(change)} nats)" if abs(change) >= LEAST else ""
    rank = f" Its rank is {without.rank} instead of {own.rank}." if without.rank != own.rank else ""
    return f"The answer {effect.answer.words} has probability {now} with it and {then} without{nats}.{rank}"

"""Many interventions on one answer: sweeps, a greedy set, and patching heads from another prompt's run."""

import math
from dataclasses import dataclass

import streamlit as st

from mta_viz.analysis.cause.answers import AnswerMeter
from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.cause.sweeps import (
    MAX_SET,
    RANDOM_SETS,
    SWEEPS,
    GreedySet,
    SweepRow,
    Where,
    harm,
    kernels_alone,
    where_of,
)
from mta_viz.errors import MtaVizError
from mta_viz.figures.cause import (
    CRITERION,
    MAP_PX,
    TASKS,
    NeededKernels,
    PatchedHeads,
    Sweep,
    TaskAccuracy,
    effects_at,
    meter_of,
)
from mta_viz.model.interventions import HOOKS, PatchHead
from mta_viz.model.plans import Listed
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import probability_text, score_text
from mta_viz.run.tracing import tokenize
from mta_viz.tokenizers.pasted import ids_from_text
from mta_viz.ui.kernels.matters import effects_command, effects_of
from mta_viz.ui.shell import plan, state
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head
from mta_viz.ui.shell.plan import ANSWER, key_of
from mta_viz.ui.shell.show import show, source_of
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.widgets import caption, head_name, lines, plain
from mta_viz.ui.surgery.board import measured_beside

KINDS = {"kernels": "key-query kernels", "mixing": "rows of head mixing", "heads": "heads off"}
KIND = Setting("sweep kind", "kernels")
STAGE, OTHER_PROMPT = Setting("patch stage", "z"), Setting("other prompt", "")
WORST = 8


def draw_sweep(page: Page, selected: Selected) -> None:
    """A kind, its button or its result; then the same at the task. The plan plays no part."""
    caption(
        "One at a time, all else as in the original model: what it adds to the log-probability of the answer "
        "on this prompt. Brown: the answer loses. The plan above plays no part here."
    )
    kind = st.segmented_control(
        "What", list(KINDS), format_func=KINDS.__getitem__, required=True, **KIND.widget(list(KINDS))
    )
    tried = SWEEPS[kind](page.model.config)
    if not tried:
        st.info(plain(f"This model has no {KINDS[kind]}; sweep over heads off instead."))
        return
    place, answer = (selected.layer, selected.head), ANSWER.value or None
    wheres = list(dict.fromkeys(map(where_of, tried)))
    specs = {where: Sweep(where=where, answer=answer, selected=place) for where in wheres}
    first, label = specs[wheres[0]], f"Run the sweep: {len(tried)} {KINDS[kind]}"
    rows = measured_beside(page, "sweep", first, label)
    if rows is not None:
        with st.container(horizontal=True):
            for where, spec in specs.items():
                with st.container(width=MAP_PX):
                    show(
                        source_of(page), spec, on_head, result=rows, widget=f"sweep.{page.key}.{kind}.{where}"
                    )
        _draw_worst(page, rows)
    _draw_task(page, selected, kind, wheres)


def _draw_worst(page: Page, rows: tuple[SweepRow, ...]) -> None:
    worst = sorted(rows, key=lambda row: harm(row.change))[:WORST]
    st.dataframe(
        [{"alone": row.intervention.text(page.numbering), "change (nats)": row.change} for row in worst],
        hide_index=True,
        column_config={"change (nats)": st.column_config.NumberColumn(format="%+.3f")},
    )
    first = worst[0].intervention
    words = plain(f"Add the worst to the plan: {first.text(page.numbering)}")
    st.button(words, key="sweep.add", on_click=plan.add, args=(first,))


def _draw_task(page: Page, selected: Selected, kind: str, wheres: list[Where]) -> None:
    """The measured accuracies, where there are any; else how to get them."""
    st.markdown("**Accuracy at the model's task**")
    effects = effects_of(page)
    why = (
        effects.reason if isinstance(effects, Absent) else f"The effect of {KINDS[kind]} is not measured yet."
    )
    there = {} if isinstance(effects, Absent) else effects_at(page.model.config, effects)
    wheres = [where for where in wheres if there.get(where)]
    if isinstance(effects, Absent) or not wheres:
        st.info(plain(f"{why} This command measures it, on paired samples:"))
        lines(effects_command(page) + " --heads" * (kind == "heads"), "sweep-effects-command")
        return
    with st.container(horizontal=True):
        for where in wheres:
            with st.container(width=MAP_PX):
                spec = TaskAccuracy(where=where, selected=(selected.layer, selected.head))
                show(source_of(page), spec, on_head, result=effects, widget=f"task.{page.key}.{where}")
    caption(
        f"Change of accuracy on {TASKS[effects.task]}, the same {effects.samples:,} samples with and "
        f"without. Each sample: {effects.setting}. A dot: the 95 % interval covers 0. Hover for the interval."
    )


def draw_greedy_set(page: Page, selected: Selected) -> None:
    """The criterion, the button or the result."""
    if not kernels_alone(page.model.config):
        st.info("This model has no key-query kernels, so no answer of it needs one.")
        return
    caption(CRITERION)
    spec = NeededKernels(answer=ANSWER.value or None)
    needed = measured_beside(page, "needed", spec, "Find a set")
    if needed is not None:
        _draw_set(page, spec, needed)


def _draw_set(page: Page, spec: NeededKernels, needed: GreedySet) -> None:
    meter = meter_of(source_of(page), spec.answer)
    if not needed.reached:
        p = probability_text(math.exp(meter.before))
        st.info(
            plain(
                f"No set of up to {MAX_SET} of the {needed.n_candidates} kernels takes this answer "
                f"(probability {p}) down to a tenth. All kernels at identity change it by "
                f"{score_text(needed.everything)} nats."
            )
        )
        return
    st.markdown(plain(_sentence(meter, needed)))
    for kernel in needed.plan:
        st.markdown(f"- {plain(kernel.text(page.numbering))}")
    listing = (tuple(map(Listed, needed.plan)),)
    st.button("Make it the plan", key="needed.plan", on_click=plan.change, args=listing)
    if needed.random:
        words = "The chosen set beside random sets of its size."
        show(source_of(page), spec, result=needed, widget=f"needed.{page.key}", words=words)


def _sentence(meter: AnswerMeter, needed: GreedySet) -> str:
    before, after = (
        probability_text(math.exp(value)) for value in (meter.before, meter.before + needed.change)
    )
    size, n = len(needed.plan), len(needed.random)
    worse = sum(change <= needed.change for change in needed.random)
    kernels = "1 kernel" if size == 1 else f"{size} kernels"
    random = ""
    if n:
        random = (
            f" Of {n} random sets of that size {worse} do as much; the most harmful changes it by "
            f"{score_text(min(needed.random))} nats, the mean is {score_text(sum(needed.random) / n)}."
        )
    fewer = "" if n == RANDOM_SETS or not n else " There are no more sets of that size."
    return (
        f"{kernels} of {needed.n_candidates}: with them at identity the answer's probability falls from "
        f"{before} to {after} ({score_text(needed.change)} nats).{random}{fewer} "
        f"All kernels at once: {score_text(needed.everything)} nats."
    )


@dataclass
class OtherOf:
    """The run whose other prompt stands in the field."""

    run: str = ""


def draw_patch(page: Page, selected: Selected) -> None:
    """The other prompt, the stage, Add; then the map of every head patched in turn."""
    caption(
        "Activation patching: the chosen head gets what it holds when the original model runs another "
        "prompt, position by position. Change one word (another asked city, another number) and see "
        "which heads carry it."
    )
    other = _other_prompt(page)
    if other is None:
        return
    config, place = page.model.config, (selected.layer, selected.head)
    stages = [key for key in HOOKS if not PatchHead(*place, key, other).problems(config)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        stage = st.selectbox(
            "Stage", stages, format_func=_stage_words, width=320, **STAGE.widget(stages, default="z")
        )
        label = f"Patch {head_name(*place, page.numbering)}"
        st.button(label, key="patch.add", on_click=plan.add, args=(PatchHead(*place, stage, other),))
    spec = PatchedHeads(prompt=other, answer=ANSWER.value or None, selected=place)
    rows = measured_beside(page, "patched", spec, "Patch each head's output in turn")
    if rows is not None:
        show(source_of(page), spec, on_head, result=rows, widget=f"patch.{page.key}.{key_of(other)}")


def _stage_words(key: str) -> str:
    return "output (weighted values)" if key == "z" else Stage.from_key(key).value.long


def _other_prompt(page: Page) -> str | tuple[int, ...] | None:
    """What is typed, if it can be patched from; else it is said why not."""
    tokens, of = page.trace.tokens, state.part(OtherOf)
    own = tokens.text if tokens.text is not None else ", ".join(map(str, tokens.ids))
    if of.run not in ("", page.key):
        OTHER_PROMPT.put(own)
    of.run = page.key
    typed = st.text_area("Other prompt", height=140, **OTHER_PROMPT.widget(default=own))
    try:
        other = typed if tokens.text is not None else ids_from_text(typed)
        count = len(tokenize(page.model, other)) if other else 0
    except MtaVizError as error:
        st.error(plain(str(error)))
        return None
    if count != len(tokens):
        words = f"The other prompt has {count:,} tokens, this one {len(tokens):,}; they must be equally many."
        st.warning(words)
        return None
    if typed == own:
        st.info("This is the prompt itself: change a word of it, keeping the number of tokens.")
        return None
    return other

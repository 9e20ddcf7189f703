"""Sweep: every kernel to identity, or every head off, one at a time, on this prompt and at the task.

Minimal set: the smallest set of kernels the answer needs, found greedily, beside random sets.
"""

import math

import numpy as np
import streamlit as st

from mta_viz.analysis.attention.maps import round_up
from mta_viz.analysis.cause.answers import AnswerMeter
from mta_viz.analysis.cause.effects import Absent, Effect, Effects
from mta_viz.analysis.cause.sweeps import (
    FALL,
    MAX_SET,
    RANDOM_SETS,
    SWEEPS,
    TRIED,
    Needed,
    SweepRow,
    harm,
    kernels_alone,
    needed_kernels,
    sweep,
)
from mta_viz.exporting.data import effects_csv, sweep_csv
from mta_viz.model.interventions import Intervention
from mta_viz.model.plans import Plan
from mta_viz.plots.cause import set_beside_random, sweep_map
from mta_viz.plots.theme import probability_text, score_text
from mta_viz.ui.kernels.matters import TASKS, effects_command, effects_of
from mta_viz.ui.shell import plan, state
from mta_viz.ui.shell import plan as plan_state
from mta_viz.ui.shell.cache import remember, stores
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected, on_head
from mta_viz.ui.shell.widgets import caption, caption_with_save, chart, lines, plain
from mta_viz.ui.surgery.board import Report, meter_of, result_of

KINDS = {"kernels": "key-query kernels", "mixing": "rows of head mixing", "heads": "heads off"}
WHERE = {
    "pre": "kernels before the softmax",
    "post": "kernels after the softmax",
    "head_pre": "mixing before the softmax",
    "head_post": "mixing after the softmax",
    None: "heads off",
}
MAP_PX, WORST, LEAST = 452, 8, 0.1  # the last: a share, the end of the smallest scale


def draw_sweep(page: Page, selected: Selected) -> None:
    """A kind, its button or its result; then the same at the task. The plan plays no part."""
    caption(
        "One at a time, all else as in the original model: what it adds to the log-probability of the answer "
        "on this prompt. Brown: the answer loses. The plan above plays no part here."
    )
    kind = st.segmented_control(
        "What",
        list(KINDS),
        format_func=KINDS.__getitem__,
        required=True,
        **state.kept("sweep kind", "kernels", list(KINDS)),
    )
    tried = SWEEPS[kind](page.model.config)
    if not tried:
        st.info(plain(f"This model has no {KINDS[kind]}; sweep over heads off instead."))
        return
    rows = swept(page, meter_of(page), kind, tried, f"Run the sweep: {len(tried)} {KINDS[kind]}")
    if rows is not None:
        _draw_rows(page, selected, kind, rows)
    _draw_task(page, selected, kind)


def swept(page: Page, meter: AnswerMeter, kind: str, tried: Plan, words: str) -> tuple[SweepRow, ...] | None:
    """The rows, once they are measured; before that a button with `words` or the progress."""
    return result_of(
        "sweep",
        ("sweep", page.key, meter.answer, kind),
        words,
        lambda report: sweep(meter, tried, report),
    )


def by_place(rows: tuple[SweepRow, ...]) -> dict[str | None, list[SweepRow]]:
    """Rows by the kind of kernel they are about."""
    found: dict[str | None, list[SweepRow]] = {}
    for row in rows:
        found.setdefault(getattr(row.intervention, "where", None), []).append(row)
    return found


def grid(page: Page, rows: list[SweepRow]) -> np.ndarray:
    """[layer, head] of changes, NaN where nothing was tried."""
    config = page.model.config
    values = np.full((config.n_layers, config.n_heads), np.nan)
    for row in rows:
        values[_place(row.intervention)] = row.change
    return values.round(3) + 0.0  # no -0.0


def _place(one: Intervention) -> tuple[int, int]:
    return one.layer, vars(one)["head"]


def _draw_rows(page: Page, selected: Selected, kind: str, rows: tuple[SweepRow, ...]) -> None:
    with st.container(horizontal=True):
        for where in by_place(rows):
            with st.container(width=MAP_PX):
                _draw_place(page, selected, kind, rows, where)
    _draw_worst(page, rows)


def _draw_place(
    page: Page, selected: Selected, kind: str, rows: tuple[SweepRow, ...], where: str | None
) -> None:
    """The map of one kind of kernel, on the scale of all of them."""
    part, place = by_place(rows)[where], (selected.layer, selected.head)
    limit = round_up(max((abs(row.change) for row in rows if math.isfinite(row.change)), default=1.0))
    figure = remember(
        lambda: sweep_map(
            f"Change on this prompt, {WHERE[where]}", grid(page, part), limit=limit,
            numbering_from=page.numbering, selected=place, width=MAP_PX,
        ),
        "sweep map", page.key, rows, where, place, page.numbering,
    )  # fmt: skip
    chart(figure, f"sweep.{page.key}.{kind}.{where}", on_head, alt=f"Change, {WHERE[where]}")
    told, parts = "Click a head to choose it. Hatched: there is none.", ("sweep", kind, where)
    caption_with_save(told, parts, figure, lambda: sweep_csv(part), f"sweep.{where}")


def _draw_worst(page: Page, rows: tuple[SweepRow, ...]) -> None:
    worst = sorted(rows, key=lambda row: harm(row.change))[:WORST]
    st.dataframe(
        [{"alone": row.intervention.text(page.numbering), "change (nats)": row.change} for row in worst],
        hide_index=True,
        column_config={"change (nats)": st.column_config.NumberColumn(format="%+.3f")},
    )
    name = worst[0].intervention.text(page.numbering)
    st.button(
        plain(f"Add the worst to the plan: {name}"),
        key="sweep.add",
        on_click=plan.add,
        args=(worst[0].intervention,),
    )


def _draw_task(page: Page, selected: Selected, kind: str) -> None:
    """The measured accuracies, where there are any; else how to get them."""
    st.markdown("**Accuracy at the model's task**")
    found = effects_of(page)
    parts = {} if isinstance(found, Absent) else _effects_by_place(found, kind, page)
    if isinstance(found, Absent) or not parts:
        why = (
            found.reason if isinstance(found, Absent) else f"The effect of {KINDS[kind]} is not measured yet."
        )
        st.info(plain(f"{why} This command measures it, on paired samples:"))
        lines(effects_command(page) + " --heads" * (kind == "heads"), "sweep-effects-command")
        return
    with st.container(horizontal=True):
        for where, effects in parts.items():
            with st.container(width=MAP_PX):
                _draw_effects(page, selected, found, where, effects)
    caption(
        f"Change of accuracy on {TASKS[found.task]}, the same {found.samples:,} samples with and without. "
        f"Each sample: {found.setting}. A dot: the 95 % interval covers 0. Hover for the interval."
    )


def _effects_by_place(found: Effects, kind: str, page: Page) -> dict[str | None, list[Effect]]:
    wanted, parts = set(SWEEPS[kind](page.model.config)), dict[str | None, list[Effect]]()
    for effect in found.effects:
        if len(effect.plan) == 1 and effect.plan[0] in wanted:
            parts.setdefault(getattr(effect.plan[0], "where", None), []).append(effect)
    return parts


def _draw_effects(
    page: Page, selected: Selected, found: Effects, where: str | None, effects: list[Effect]
) -> None:
    values = np.full((page.model.config.n_layers, page.model.config.n_heads), np.nan)
    limit = round_up(max(LEAST, *(abs(one.accuracy_change.value) for one in effects)))
    told, unsure = {}, []
    for effect in effects:
        change, place = effect.accuracy_change, _place(effect.plan[0])
        values[place] = change.value
        told[place] = f"accuracy {effect.accuracy:.3f}, 95 % interval {change.low:+.3f} to {change.high:+.3f}"
        unsure += [place] if change.low <= 0 <= change.high else []
    figure = sweep_map(
        f"Change of accuracy, {WHERE[where]}",
        values.round(3) + 0.0,
        unit="share",
        limit=limit,
        told=told,
        unsure=unsure,
        numbering_from=page.numbering,
        selected=(selected.layer, selected.head),
        width=MAP_PX,
    )
    chart(figure, f"task.{page.key}.{where}", on_head, alt=f"Change of accuracy, {WHERE[where]}")
    caption_with_save(
        f"Without: {found.accuracy:.3f} right.",
        ("accuracy", where),
        figure,
        lambda: effects_csv(found),
        f"task.{where}",
    )


WIDTH = 560
SWEEP_SHARE = 0.5  # of the work, where the kernels were not swept yet

CRITERION = (
    "Which kernels does this answer need? A set counts when, with all of it at identity, the answer's "
    f"probability falls to a tenth (its log-probability by {FALL:.2f} nats). Greedy: of the {TRIED} "
    "kernels most harmful alone, the worst joins the set at each step; then what the set can do without "
    f"is taken out. At most {MAX_SET} kernels. Kernels that matter only together can be missed."
)


def draw_needed(page: Page) -> None:
    """The criterion, the button or the result."""
    tried = kernels_alone(page.model.config)
    if not tried:
        st.info("This model has no key-query kernels, so no answer of it needs one.")
        return
    caption(CRITERION)
    meter = meter_of(page)
    found: Needed | None = result_of(
        "needed",
        ("needed", page.key, meter.answer),
        "Find the smallest set",
        lambda report: _find(page, meter, tried, report),
    )
    if found is not None:
        _draw(page, meter, found)


def _find(page: Page, meter: AnswerMeter, tried: Plan, report: Report) -> Needed:
    """From the kernels' sweep, which is made if it is not there."""
    key = ("sweep", page.key, meter.answer, "kernels")
    known = stores().drawn.get(key)
    share = 0.0 if known is not None else SWEEP_SHARE
    alone = known or stores().drawn.get_or_make(
        key, lambda: sweep(meter, tried, lambda done: report(share * done))
    )
    return needed_kernels(meter, alone, progress=lambda done: report(share + (1 - share) * done))


def _draw(page: Page, meter: AnswerMeter, found: Needed) -> None:
    p = probability_text(math.exp(meter.before))
    if not found.reached:
        st.info(
            plain(
                f"No set of up to {MAX_SET} of the {found.n_candidates} kernels takes this answer "
                f"(probability {p}) down to a tenth. All kernels at identity change it by "
                f"{score_text(found.everything)} nats."
            )
        )
        return
    st.markdown(plain(_sentence(meter, found)))
    for one in found.plan:
        st.markdown(f"- {plain(one.text(page.numbering))}")
    with st.container(horizontal=True):
        st.button("Make it the plan", key="needed.plan", on_click=_take, args=(found.plan,))
    if found.random:
        chart(
            set_beside_random(found.change, found.random, width=WIDTH),
            f"needed.{page.key}",
            alt="The change by the chosen set beside random sets",
        )


def _sentence(meter: AnswerMeter, found: Needed) -> str:
    before, after = (
        probability_text(math.exp(value)) for value in (meter.before, meter.before + found.change)
    )
    size, n = len(found.plan), len(found.random)
    worse = sum(change <= found.change for change in found.random)
    kernels = "1 kernel" if size == 1 else f"{size} kernels"
    random = (
        ""
        if not n
        else (
            f" Of {n} random sets of that size {worse} do as much; the most harmful changes it by "
            f"{score_text(min(found.random))} nats, the mean is {score_text(sum(found.random) / n)}."
        )
    )
    fewer = "" if n == RANDOM_SETS or not n else " There are no more sets of that size."
    return (
        f"{kernels} of {found.n_candidates}: with them at identity the answer's probability falls from "
        f"{before} to {after} ({score_text(found.change)} nats).{random}{fewer} "
        f"All kernels at once: {score_text(found.everything)} nats."
    )


def _take(plan: Plan) -> None:
    plan_state.change(tuple(map(plan_state.Listed, plan)))

"""Patch: a head at a stage gets what it holds in another prompt's run; and each head so in turn."""

import streamlit as st

from mta_viz.analysis.sweeps import heads_patched
from mta_viz.errors import MtaVizError
from mta_viz.exporting.tables import sweep_csv
from mta_viz.interventions.patches import HOOKS, PatchHead
from mta_viz.model.stages import Stage
from mta_viz.plots.sweep import sweep_map
from mta_viz.tokenizers.pasted import ids_from_text
from mta_viz.tracing import tokenize
from mta_viz.ui import state
from mta_viz.ui.clicks import on_head
from mta_viz.ui.numbering import head_label, layer_label
from mta_viz.ui.open_page import Page
from mta_viz.ui.selection import Selected
from mta_viz.ui.surgery import plan_state
from mta_viz.ui.surgery.board import meter_of
from mta_viz.ui.surgery.sweep_tab import MAP_PX, grid, swept
from mta_viz.ui.widgets import caption, caption_with_save, chart, plain

OUTPUT = "output (weighted values)"


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
    stages = [
        key
        for key in HOOKS
        if not PatchHead(selected.layer, selected.head, key, other).problems(page.model.config)
    ]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        stage = st.selectbox(
            "Stage", stages, format_func=_stage_words, width=320, **state.kept("patch stage", "z", stages)
        )
        patch = PatchHead(selected.layer, selected.head, stage, other)
        head = f"{layer_label(selected.layer, page.numbering)} {head_label(selected.head, page.numbering)}"
        st.button(f"Patch {head}", key="patch.add", on_click=plan_state.add, args=(patch,))
    _draw_every_head(page, selected, other)


def _stage_words(key: str) -> str:
    return OUTPUT if key == "z" else Stage.from_key(key).value.long


def _other_prompt(page: Page) -> str | tuple[int, ...] | None:
    """What is typed, if it can be patched from; else it is said why not."""
    tokens = page.trace.tokens
    own = tokens.text if tokens.text is not None else ", ".join(map(str, tokens.ids))
    if state.get("other prompt of", page.key) != page.key:
        state.put("other prompt", own)
    state.put("other prompt of", page.key)
    typed = st.text_area("Other prompt", height=140, **state.kept("other prompt", own))
    try:
        other = typed if tokens.text is not None else ids_from_text(typed)
        count = len(tokenize(page.model, other)) if other else 0
    except MtaVizError as error:
        st.error(plain(str(error)))
        return None
    if count != len(tokens):
        st.warning(
            f"The other prompt has {count:,} tokens, this one {len(tokens):,}; they must be equally many."
        )
        return None
    if typed == own:
        st.info("This is the prompt itself: change a word of it, keeping the number of tokens.")
        return None
    return other


def _draw_every_head(page: Page, selected: Selected, other: str | tuple[int, ...]) -> None:
    tried, place = heads_patched(page.model.config, other), (selected.layer, selected.head)
    rows = swept(
        page, meter_of(page), f"heads patched from {other}", tried, "Patch each head's output in turn"
    )
    if rows is None:
        return
    figure = sweep_map(
        "Change, output patched",
        grid(page, list(rows)),
        selected=place,
        numbering_from=page.numbering,
        width=MAP_PX,
    )
    chart(figure, f"patch.{page.key}.{hash(other)}", on_head, alt="Change by patching each head's output")
    caption_with_save(
        "Each head's output patched alone: what that adds to the log-probability of this prompt's answer. "
        "Brown: the answer loses. Click a head to choose it.",
        ("patched",),
        figure,
        lambda: sweep_csv(rows),
        "patched",
    )

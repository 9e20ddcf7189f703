"""The run this session opened from a file, in the place of the same run computed here.

Kept in the session alone: what a file holds must not reach other visitors' pages, nor what is drawn of it.

Two windows: one saves the page's run as a file, the other opens such a file.
"""

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import streamlit as st

from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.exporting.saved import file_name
from mta_viz.figures.attention.maps import HeadMap
from mta_viz.figures.base import Source, drawn
from mta_viz.model.stages import Stage, model_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import size_text
from mta_viz.run.files import SavedRun, read_run, trace_bytes, trace_size
from mta_viz.run.trace import StoredTrace
from mta_viz.run.tracing import Trace
from mta_viz.ui.shell import plan as plan_state
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import ModelKey, RunKey
from mta_viz.ui.shell.link import Box
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.plan import EDITED, ORIGINAL, edited_run
from mta_viz.ui.shell.sidebar import request_run, use_prompt
from mta_viz.ui.shell.uploads import keep_upload
from mta_viz.ui.shell.widgets import caption, chart, head_label, layer_label, plain


@dataclass(frozen=True)
class OpenedRun:
    """A run that takes the place of a computed one. `key` is equal only for equal files and runs."""

    name: str
    run: RunKey
    trace: StoredTrace
    key: str


@dataclass
class Opened:
    """The file read last, by where it lies, and the run that is shown in the place of the computed one."""

    file: tuple[Path, SavedRun] | None = None
    run: OpenedRun | None = None


def read_upload(name: str, content: bytes) -> SavedRun:
    """The uploaded file, read once for a session. Raises MtaVizError saying why it cannot be opened."""
    path = keep_upload(name, content)
    opened = state.part(Opened)
    if opened.file is None or opened.file[0] != path:
        opened.file = path, read_run(path)
    return opened.file[1]


def prompt_of(run: SavedRun, model: HookedMTA) -> str | tuple[int, ...] | None:
    """What gives the run's tokens when it is typed into the page's box; None where nothing does."""
    tokens = run.tokens
    if model.tokenizer is None:
        return tokens.ids
    if tokens.text is None:
        return None
    try:
        return tokens.text if model.tokenizer.encode(tokens.text).ids == tokens.ids else None
    except TokenizerError:  # another tokenizer file was chosen for these weights
        return None


def show(
    name: str, run: SavedRun, trace: StoredTrace, model: ModelKey, prompt: str | tuple[int, ...]
) -> None:
    """From now on this is what the page shows when it is to show this prompt through this model."""
    key = RunKey(model, prompt)
    maps = hashlib.sha256(run.about.to_text().encode())
    maps.update(run.residuals.numpy().data)
    for one in run.maps.values():
        maps.update(one.numpy().data)
    state.part(Opened).run = OpenedRun(name, key, trace, f"{key.text}.{maps.hexdigest()[:16]}")


def find(wanted: RunKey | ModelKey | None) -> OpenedRun | None:
    """The opened run, if it is the one that is wanted."""
    opened = state.part(Opened).run
    return opened if opened is not None and opened.run == wanted else None


def forget() -> None:
    """Compute runs here again."""
    state.part(Opened).run = None


MOST_MB = 200  # what a browser is asked to take, and the app takes back
MAP_PX = 560


def draw_saved_runs(page: Page) -> None:
    """The two buttons in the sidebar, and whether the page's run came from a file."""
    with st.container(horizontal=True):
        if page.trace is not None and st.button("Save run", icon=":material/save:", key="run.save"):
            save_run(page)
        if st.button("Open run", icon=":material/folder_open:", key="run.open"):
            open_run(page)
    opened = state.part(Opened).run
    if opened is not None and opened.key == page.key:
        caption(f"This run was read from {opened.name}, not computed here.")
        st.button("Run the prompt here instead", key="run.forget", on_click=forget)


@st.dialog("Save this run")
def save_run(page: Page) -> None:
    """The window around `draw_save`."""
    draw_save(page)


def draw_save(page: Page) -> None:
    """Which maps go into the file, how large it will be, and the file."""
    caption(
        "One safetensors file: tokens, the residual stream of every layer, settings and interventions. "
        "Opened with its checkpoint it gives every map again; maps stored in it are seen without."
    )
    trace = _pick_trace(page)
    config = trace.model.config
    there = [stage for stage in Stage if any(stage in stages for stages in model_stages(config))]
    stages = st.multiselect(
        "Maps to store", there, format_func=_stage_words, key="run.stages", placeholder="none"
    )
    layers = st.multiselect(
        "Of layers",
        range(config.n_layers),
        format_func=lambda layer: layer_label(layer, page.numbering),
        key="run.layers",
        placeholder="all",
        disabled=not stages,
    )
    try:
        _draw_file(page, trace, stages, layers or None)
    except MtaVizError as error:
        st.error(plain(str(error)))


def _pick_trace(page: Page) -> Trace:
    """The run of the original model or, while a plan is active, of the edited one."""
    plan = plan_state.current_plan(page.model.config)
    if not plan:
        return page.trace
    chosen = st.radio("Run of the", (EDITED, ORIGINAL), key="run.which", horizontal=True)
    return edited_run(page, plan) if chosen == EDITED else page.trace


def _stage_words(stage: Stage) -> str:
    return stage.value.long


def _draw_file(page: Page, trace: Trace, stages: list[Stage], layers: list[int] | None) -> None:
    n_bytes = trace_size(trace, stages=stages, layers=layers)
    st.markdown(f"The file will take **{plain(size_text(n_bytes))}**.")
    if n_bytes > MOST_MB * 1e6:
        raise PromptError(
            f"A browser is given at most {MOST_MB} MB. Store fewer maps, or write the file with "
            "python -m mta_viz trace PATH ... --format run --out FILE"
        )
    st.download_button(
        "Save",
        data=partial(trace_bytes, trace, stages=stages, layers=layers),
        file_name=file_name(
            state.selection().checkpoint, "run", f"{len(trace.tokens)}-tokens", suffix="safetensors"
        ),
        mime="application/octet-stream",
        key="run.file",
        on_click="ignore",
        type="primary",
        icon=":material/download:",
    )


@st.dialog("Open a run", width="large")
def open_run(page: Page) -> None:
    """The window around `draw_open`."""
    draw_open(page)


def draw_open(page: Page) -> None:
    """A file, what it is of, its maps; and the way to make it the page's run."""
    upload = st.file_uploader(
        "A run saved by this app", type=["safetensors"], key="run.upload", max_upload_size=MOST_MB
    )
    if upload is None:
        caption("The file of Save run, of save_trace, or of the command trace with --format run.")
        return
    try:
        _draw_run(page, upload.name, read_upload(upload.name, upload.getvalue()))
    except MtaVizError as error:
        st.error(plain(str(error)))


def _draw_run(page: Page, name: str, run: SavedRun) -> None:
    about = run.about
    edits = (
        f" Interventions: {', '.join(one.text(page.numbering) for one in about.plan)}." if about.plan else ""
    )
    caption(f"{len(run.ids):,} tokens through {about.checkpoint or 'a model'}, {about.dtype}.{edits}")
    trace, problem = _with_weights(page, run)
    if trace is None:
        caption(f"Without its checkpoint only the stored maps are here: {problem}.")
        trace = run.trace()
    elif about.plan:
        caption("The page shows the original model's runs, so this one is shown here; every stage is there.")
    elif (prompt := prompt_of(run, page.model)) is None:
        caption("This model's prompt box cannot hold these tokens, so the run is shown here.")
    elif page.model_key is not None and st.button(
        "Show it on the page",
        type="primary",
        key="run.show",
        help="Prompt and run, without computing it again.",
    ):
        show(name, run, trace, page.model_key, prompt)
        _ask(prompt)
        st.rerun()
    _draw_maps(page, trace)


def _with_weights(page: Page, run: SavedRun) -> tuple[StoredTrace | None, str]:
    """The run with the page's model, or None and why it is not that model's."""
    try:
        return run.trace(page.model), ""
    except MtaVizError as error:
        return None, str(error)


def _ask(prompt: str | tuple[int, ...]) -> None:
    """Put the prompt into its box and ask for its run."""
    if isinstance(prompt, str):
        use_prompt(prompt)
        return
    state.part(Box).ask(prompt)
    request_run(prompt)


def _draw_maps(page: Page, trace: StoredTrace) -> None:
    """One map at a time: layer, head, stage."""
    config, numbering = trace.model.config, page.numbering
    by_layer = {
        layer: [stage for stage in Stage if trace.has(layer, stage)] for layer in range(config.n_layers)
    }
    layers = [layer for layer, stages in by_layer.items() if stages]
    if not layers:
        st.info("The file stores no maps. Choose its checkpoint in the sidebar to see them.")
        return
    with st.container(horizontal=True):
        layer = st.selectbox(
            "Layer", layers, format_func=lambda layer: layer_label(layer, numbering), key="run.layer"
        )
        head = st.selectbox(
            "Head",
            range(config.n_heads),
            format_func=lambda head: head_label(head, numbering),
            key="run.head",
        )
        stage = st.selectbox("Stage", by_layer[layer], format_func=_stage_words, key=f"run.stage.{layer}")
    spec = HeadMap(layer, head, stage.value.key, first_token=page.first_token, size=MAP_PX)
    figure = drawn(spec, Source(trace.model, trace, numbering=numbering))
    chart(figure.figure, "run.map", alt=f"The map of the opened run at {stage.value.long}")
    caption(figure.caption)
    st.download_button(
        "CSV",
        data=lambda: figure.table.csv().encode(),
        file_name=file_name("run", *spec.file_parts(), suffix="csv"),
        mime="text/csv",
        key="save.run.map.csv",
        on_click="ignore",
    )

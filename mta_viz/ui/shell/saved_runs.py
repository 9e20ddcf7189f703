"""The run this session opened from a file, in the place of the same run computed here.

Kept in the session alone: what a file holds must not reach other visitors' pages, nor what is drawn of it.
"""

import hashlib
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import streamlit as st

from mta_viz.checkpoint import dumps
from mta_viz.errors import MtaVizError, PromptError, TokenizerError
from mta_viz.exporting.saved import file_name
from mta_viz.figures.attention.maps import HeadMap
from mta_viz.figures.base import Source, drawn
from mta_viz.model.stages import Stage, model_stages
from mta_viz.model.transformer import HookedMTA
from mta_viz.printed import head_label, layer_label, size_text
from mta_viz.run.files import SavedRun, read_run, trace_bytes, trace_size
from mta_viz.run.trace import StoredTrace
from mta_viz.run.tracing import Trace
from mta_viz.ui.shell import plan as plans
from mta_viz.ui.shell import state
from mta_viz.ui.shell.cache import ModelKey, RunKey
from mta_viz.ui.shell.models import roots
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.sidebar import use_prompt
from mta_viz.ui.shell.uploads import keep_upload, upload
from mta_viz.ui.shell.widgets import (
    caption,
    chart,
    close_window,
    file_button,
    plain,
    pressed,
    window,
    window_button,
)

MOST_MB = 200  # what a browser is asked to take, and the app takes back
_words_of = attrgetter("value.long")  # a stage


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


def find(wanted: RunKey | ModelKey | None) -> OpenedRun | None:
    """The opened run, if it is the one that is wanted."""
    opened = state.part(Opened).run
    return opened if opened is not None and opened.run == wanted else None


def draw_saved_runs(page: Page) -> None:
    """The two buttons in the sidebar, and whether the page's run came from a file."""
    with st.container(horizontal=True):
        if page.trace is not None:
            window_button("Save run", "run.save", partial(draw_save, page), icon=":material/save:")
        window_button("Open run", "run.open", partial(draw_open, page), icon=":material/folder_open:")
    opened = state.part(Opened)
    if opened.run is not None and opened.run.key == page.key:
        caption(f"This run was read from {opened.run.name}, not computed here.")
        forget = partial(setattr, opened, "run", None)
        st.button("Run the prompt here instead", key="run.forget", on_click=forget)


@window("Save this run")
def draw_save(page: Page) -> None:
    """Which maps go into the file, how large it will be, and the file."""
    caption(
        "One safetensors file: tokens, the residual stream of every layer, settings and interventions. "
        "Opened with its checkpoint it gives every map again; maps stored in it are seen without."
    )
    trace, plan = page.trace, plans.current_plan(page.model.config)
    if plan:
        words = (plans.EDITED, plans.ORIGINAL)
        if st.radio("Run of the", words, key="run.which", horizontal=True) == plans.EDITED:
            trace = plans.edited_run(page, plan)
    config = trace.model.config
    there = [stage for stage in Stage if any(stage in stages for stages in model_stages(config))]
    stages = st.multiselect(
        "Maps to store", there, format_func=_words_of, key="run.stages", placeholder="none"
    )
    layer_of = partial(layer_label, numbering=page.numbering)
    look: dict[str, Any] = {"format_func": layer_of, "placeholder": "all", "disabled": not stages}
    layers = st.multiselect("Of layers", range(config.n_layers), key="run.layers", **look)
    try:
        _draw_file(page, trace, stages, layers or None)
    except MtaVizError as error:
        st.error(plain(str(error)))


def _draw_file(page: Page, trace: Trace, stages: list[Stage], layers: list[int] | None) -> None:
    n_bytes = trace_size(trace, stages=stages, layers=layers)
    st.markdown(f"The file will take **{plain(size_text(n_bytes))}**.")
    if n_bytes > MOST_MB * 1e6:
        raise PromptError(
            f"A browser is given at most {MOST_MB} MB. Store fewer maps, or write the file with "
            "python -m mta_viz trace PATH ... --format run --out FILE"
        )
    n_tokens = f"{len(trace.tokens)}-tokens"
    name = file_name(state.selection().checkpoint, "run", n_tokens, suffix="safetensors")
    content = partial(trace_bytes, trace, stages=stages, layers=layers)
    file_button("Save", content, name, "run.file", type="primary", icon=":material/download:")


@window("Open a run", width="large")
def draw_open(page: Page) -> None:
    """A file, what it is of, its maps; and the way to make it the page's run."""
    given = upload("A run saved by this app", ["safetensors"], MOST_MB, "run.upload")
    folder = _pick_dump() if given is None else None
    try:
        if given is not None:
            _draw_run(page, given.name, _read_once(keep_upload(given.name, given.getvalue())))
        elif folder is not None:
            _draw_run(page, folder.name, _read_once(folder))
        else:
            caption("The file of Save run, of save_trace, or of the command trace with --format run.")
    except MtaVizError as error:
        st.error(plain(str(error)))


def _read_once(path: Path) -> SavedRun:
    """What lies there, read once for a session."""
    opened = state.part(Opened)
    if opened.file is None or opened.file[0] != path:
        opened.file = path, read_run(path)
    return opened.file[1]


def _pick_dump() -> Path | None:
    """A folder of attention dumps that the reference wrote, where the models lie."""
    folders = dumps.find_attention(roots())
    words = "Or attention dumps of the reference"
    look: dict[str, Any] = {"format_func": lambda folder: plain(folder.name), "placeholder": "none"}
    return st.selectbox(words, folders, index=None, key="run.dump", **look) if folders else None


def _draw_run(page: Page, name: str, run: SavedRun) -> None:
    about = run.about
    if run.is_dump:
        caption(f"{len(run.ids):,} rows of {about.checkpoint}, maps only: {'; '.join(dumps.LIMITS)}.")
        _draw_maps(page, run.trace())
        return
    edits = f" Interventions: {', '.join(edit.text(page.numbering) for edit in about.plan)}."
    caption(
        f"{len(run.ids):,} tokens through {about.checkpoint or 'a model'}, {about.dtype}."
        f"{edits if about.plan else ''}"
    )
    try:
        trace = run.trace(page.model)
    except MtaVizError as error:
        caption(f"Without its checkpoint only the stored maps are here: {error}.")
        trace = run.trace()
    else:
        _draw_use(page, name, run, trace)
    _draw_maps(page, trace)


def _draw_use(page: Page, name: str, run: SavedRun, trace: StoredTrace) -> None:
    prompt = prompt_of(run, page.model)
    if run.about.plan:
        caption("The page shows the original model's runs, so this one is shown here; every stage is there.")
    elif prompt is None:
        caption("This model's prompt box cannot hold these tokens, so the run is shown here.")
    else:
        help = "Prompt and run, without computing it again."
        if pressed("Show it on the page", "run.show", type="primary", help=help):
            maps = hashlib.sha256(run.about.to_text().encode())
            for numbers in (run.residuals, *run.maps.values()):
                maps.update(numbers.numpy().data)
            key = RunKey(page.model_key, prompt)
            shown = OpenedRun(name, key, trace, f"{key.text}.{maps.hexdigest()[:16]}")
            state.part(Opened).run = shown
            use_prompt(prompt)
            close_window()
            st.rerun()


def _draw_maps(page: Page, trace: StoredTrace) -> None:
    config, numbering = trace.model.config, page.numbering
    by_layer = {
        layer: [stage for stage in Stage if trace.has(layer, stage)] for layer in range(config.n_layers)
    }
    layers = [layer for layer, stages in by_layer.items() if stages]
    if not layers:
        st.info("The file stores no maps. Choose its checkpoint in the sidebar to see them.")
        return
    with st.container(horizontal=True):
        layer_of, head_of = (partial(label, numbering=numbering) for label in (layer_label, head_label))
        layer = st.selectbox("Layer", layers, format_func=layer_of, key="run.layer")
        head = st.selectbox("Head", range(config.n_heads), format_func=head_of, key="run.head")
        stage = st.selectbox("Stage", by_layer[layer], format_func=_words_of, key=f"run.stage.{layer}")
    spec = HeadMap(layer, head, stage.value.key, first_token=page.first_token, size=560)
    figure = drawn(spec, Source(trace.model, trace, numbering=numbering))
    chart(figure.figure, "run.map", alt=f"The map of the opened run at {stage.value.long}")
    caption(figure.caption)
    name = file_name("run", *spec.file_parts(), suffix="csv")
    file_button("CSV", figure.table.csv, name, "save.run.map.csv")

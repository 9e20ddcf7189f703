"""The window for all figures of a page at once: one PDF or ZIP, or a session that can be opened again."""

from collections.abc import Mapping
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import Format
from mta_viz.exporting.saved import Choices, Progress, Saved, file_name, saved, together
from mta_viz.exporting.session import Carried, Session, fitting, read_session, session_bytes
from mta_viz.ui.shell import cache, kept_prompts, state, work
from mta_viz.ui.shell.export import digest_of, pick_colours, pick_format, pick_size
from mta_viz.ui.shell.link import Box, PromptLink
from mta_viz.ui.shell.preparing import PageRun
from mta_viz.ui.shell.saved_runs import Opened
from mta_viz.ui.shell.show import OnPage
from mta_viz.ui.shell.site import PAGES
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.uploads import TextFiles, TokenizerFiles, bring, files_of_page
from mta_viz.ui.shell.widgets import MIME_TYPES, caption, plain

MAX_UPLOAD_MB = 200
SESSION, PDF, ZIP = KINDS = ("Session", "One PDF", "ZIP of pictures")
KIND = Setting("export kind", SESSION, private=True)
EXPLAINED = {
    SESSION: "Prompt, selection, settings, plan, and the texts and files given to this page, with every "
    "figure as an HTML page that works offline, its numbers and caption. It can be opened again here.",
    PDF: "Every figure of this page on a page of its own, in lines; an outline names them.",
    ZIP: "Every figure of this page as a picture, with its numbers, caption and sidecar.",
}


@st.dialog("Save or open everything", width="large")
def everything() -> None:
    """All figures of the page in one file, and the way back."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Save")
        _draw_save()
    with right:
        st.subheader("Open a session")
        _draw_open()


def _draw_save() -> None:
    kind = st.radio("As", KINDS, **KIND.widget(KINDS))
    caption(EXPLAINED[kind])
    if kind == SESSION and (words := _not_carried()):
        st.info(plain(words))
    format, choices = _looks(kind)
    if st.button("Make the file", type="primary", key="everything.make"):
        _make(kind, format, choices)


def _looks(kind: str) -> tuple[Format, Choices]:
    if kind == SESSION:
        return "html", Choices()
    format = pick_format() if kind == ZIP else "pdf"
    return format, Choices(pick_size(), pick_colours())


def _make(kind: str, format: Format, choices: Choices) -> None:
    """The file and its button; what cannot be made is said."""
    bar = st.progress(0.0, text="Collecting the numbers")
    try:
        figures = _saved(partial(_show, bar, "Collecting the numbers", 0.0))
        if not figures and kind != SESSION:
            raise MtaVizError("This page shows no figure yet. Run a prompt, or choose a tab with a figure.")
        content = _content(kind, figures, format, choices, partial(_show, bar, "Drawing", 0.5))
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    bar.empty()
    suffix = "pdf" if kind == PDF else "zip"
    names = ", ".join(one.provenance.figure for one in figures)
    caption(f"{len(figures)} figures: {names}." if figures else "")
    st.download_button(
        f"Save ({len(content) / 1e6:.1f} MB)",
        content,
        file_name(state.selection().checkpoint, state.session().page, kind, suffix=suffix),
        MIME_TYPES[suffix],
        key="everything.save",
        on_click="ignore",
    )


def _show(bar: DeltaGenerator, words: str, start: float, done: float) -> None:
    """Half of the bar is for the numbers, half for the pictures."""
    bar.progress(start + done / 2, text=words)


def _content(kind: str, figures: list[Saved], format: Format, choices: Choices, told: Progress) -> bytes:
    if kind == SESSION:
        return session_bytes(_session(), figures)
    return together(figures, "pdf" if kind == PDF else "zip", format, choices, told)


def _saved(progress: Progress) -> list[Saved]:
    """Every figure of the page with its numbers."""
    shown, files = list(state.part(OnPage).drawn.values()), []
    for place, figure in enumerate(shown):
        if figure.figure is not None:
            files.append(saved(figure, digest_of))
        progress((place + 1) / len(shown))
    return files


def _session() -> Session:
    shown, view = state.part(PageRun), state.parameters()
    prompt = None if shown.run is None else shown.run.prompt
    weights = "" if shown.model is None else cache.digest(shown.model)
    given = fitting(_given(view))
    typed = list(prompt) if isinstance(prompt, tuple) else prompt
    return Session(state.session().page, view, typed, weights, given)


def _given(view: Mapping[str, str]) -> list[Carried]:
    """The long texts of the address, and the files of this page."""
    texts = [Carried(kept_prompts.text_at(one)) for one in view.values() if kept_prompts.is_address(one)]
    return texts + [Carried(text, place, name) for place, (name, text) in files_of_page().items()]


def _not_carried() -> str:
    """What this session's file will lack, in words."""
    view, lacking = state.parameters(), []
    given = _given(view)
    there = fitting(given)
    lacking += [one.name or "a long text" for one in given if one not in there]
    model = state.part(PageRun).model
    if model is not None and model.path in state.part(TokenizerFiles).of:
        lacking.append("the tokenizer's file")
    if state.part(Opened).run is not None:
        lacking.append("the run opened from a file (save it with Save run)")
    return f"Not in the session: {', '.join(lacking)}." if lacking else ""


def _draw_open() -> None:
    caption("A ZIP saved as a session. It takes the place of what is shown now; nothing in it is run.")
    upload = st.file_uploader("Session", type="zip", key="everything.open", max_upload_size=MAX_UPLOAD_MB)
    if upload is None:
        return
    try:
        session = read_session(upload.getvalue())
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    script = next((path for path, (title, _) in PAGES.items() if title == session.page), None)
    if script is None:
        st.error(plain(f"The session is of a page {session.page!r}, which this version does not have."))
        return
    open_session(session, script)


def open_session(session: Session, script: str) -> None:
    """Forget what this visitor chose and go to the session's page by its address."""
    places = list(state.part(TextFiles).at)
    work.stop_all("page", "model")
    state.begin_anew(session.view)
    if session.prompt is not None:
        state.part(Box).ask(session.prompt if isinstance(session.prompt, str) else tuple(session.prompt))
    for carried in session.carried:
        if not carried.place:
            kept_prompts.address_of(carried.text)  # where the view's address finds it
    files = {carried.place: (carried.name, carried.text) for carried in session.carried if carried.place}
    bring(files, places)
    state.part(PromptLink).weights = session.sha256
    st.switch_page(script, query_params=session.view)

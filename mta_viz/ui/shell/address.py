"""The line under the header of every page: where you are, its link, everything in one file, the help.

And, where a page asks for it, a report of its model and run. What is done of a report stays with the session:
after Stop it goes on where it was. It is a job, which goes on without its reader.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from mta_viz.errors import MtaVizError
from mta_viz.exporting import saved as files
from mta_viz.exporting.pictures import Format
from mta_viz.printed import short_repr
from mta_viz.ui.shell import cache, kept_prompts, state, widgets, work
from mta_viz.ui.shell.link import MAX_CHARACTERS, NOT_KEPT, Box, PromptLink
from mta_viz.ui.shell.measuring import Keep, Measurement, measured
from mta_viz.ui.shell.page import ASSETS, OLDER, PAGES, WORKSPACE, Page, of_older
from mta_viz.ui.shell.preparing import PageRun
from mta_viz.ui.shell.saved_runs import Opened
from mta_viz.ui.shell.show import OnPage, digest_of, pick_colours, pick_format, pick_size
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.uploads import upload
from mta_viz.ui.shell.widgets import caption, file_button, plain
from mta_viz.ui.shell.work import Work

if TYPE_CHECKING:
    from mta_viz.exporting.report import Report

SESSION, PDF, ZIP = KINDS = ("Session", "One PDF", "ZIP of pictures")
KIND = Setting("export kind", SESSION, private=True)
EXPLAINED = {
    SESSION: "Prompt, selection, settings, plan, and the texts and files given to this page, with every "
    "figure as an HTML page that works offline, its numbers and caption. It can be opened again here.",
    PDF: "Every figure of this page on a page of its own, in lines; an outline names them.",
    ZIP: "Every figure of this page as a picture, with its numbers, caption and sidecar.",
}


def draw_address(text: str, more: Callable[[], None] = lambda: None) -> None:
    """One line: the place in words, what `more` draws, a copyable link, everything, help."""
    with st.container(horizontal=True, vertical_alignment="center", key="address"):
        with st.container():
            st.text(widgets.isolated(text))
        more()
        with st.container(width="content"):
            _draw_link()
        help = "Save all figures of this page in one file, or the whole session; open a saved session."
        look: dict[str, Any] = {"icon": ":material/folder_zip:", "help": help}
        widgets.window_button("Everything", "everything", _everything, **look)
        with st.popover("?", width="content"):
            st.markdown((ASSETS / "help.md").read_text(encoding="utf-8"))
            with st.expander("Terms"):  # keys reach it, and so scroll the help
                st.markdown(widgets.help_of(*widgets.texts()))


def draw_stale(page: Page) -> None:
    """Says so of the run before, in a line that is there anyway: what moved the page would take the click
    that left the prompt. The style dims what is drawn in a container `of-run`."""
    if page.stale:
        with st.container(width="content", key="stale"):
            words = f"{page.empty or 'Prompt changed.'} Shown: the previous run."
            st.badge(plain(words), icon=":material/history:", color="orange")


@st.fragment
def _draw_link() -> None:
    """What the browser's address holds; opening it draws it anew, when the page has said all of it."""
    with st.popover("Link", icon=":material/link:", key="link", on_change="rerun"):
        st.caption(_what_is_in_it())
        address = with_parameters(st.context.url or "", dict(st.query_params))
        st.code(address, language=None, wrap_lines=True)  # a line that scrolls takes no keys


def _what_is_in_it() -> str:
    words = (
        "Copy with the button at the right of the line. It opens this page with its selection and settings"
    )
    held = state.session().link.prompt
    if not state.part(Box).run:
        return f"{words}; there is no prompt yet."
    if held.get("kept") == NOT_KEPT:
        return f"{words}, but not the prompt, which is too long and cannot be kept here: send it along."
    if "kept" in held:
        return (
            f"{words}. The prompt has more than {MAX_CHARACTERS:,} characters: this machine keeps it for its "
            "own links; to open the link elsewhere, send the prompt along."
        )
    if any(map(kept_prompts.is_address, dict(st.query_params).values())):
        return f"{words} on this prompt. A long text in a field of this page is kept on this machine only."
    return f"{words} on this prompt."


def with_parameters(url: str, parameters: Mapping[str, str]) -> str:
    """The address with these parameters; with the slash after the host that Streamlit leaves out at times."""
    parts = urlsplit(url)
    path = parts.path or ("/" if parts.netloc else "")
    return urlunsplit(parts._replace(path=path, query=urlencode(parameters), fragment=""))


@widgets.window("Save or open everything", width="large")
def _everything() -> None:
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
    format: Format = pick_format() if kind == ZIP else "pdf"
    choices = files.Choices()
    if kind != SESSION:
        choices = files.Choices(pick_size(), pick_colours())
    elif words := _not_carried():
        st.info(plain(words))
    window, made_as = state.part(widgets.Window), (kind, format, choices)
    if widgets.pressed("Make the file", "everything.make", type="primary"):
        try:
            window.made = made_as, _made(kind, format, choices)
        except MtaVizError as error:
            st.error(plain(str(error)))
    if window.made is not None and window.made[0] == made_as:
        _draw_made(kind, *window.made[1])


def _made(kind: str, format: Format, choices: files.Choices) -> tuple[bytes, list[str], files.Form]:
    """The file, what is in it, its kind. Half of the bar is for the numbers, half for the pictures."""
    bar = st.progress(0.0, text="Collecting the numbers")

    def drawing(done: float) -> None:
        bar.progress((1 + done) / 2, text="Drawing")

    suffix: files.Form = "pdf" if kind == PDF else "zip"
    shown, figures = list(state.part(OnPage).values()), []
    for place, figure in enumerate(shown):
        if figure.figure is not None:
            figures.append(files.saved(figure, digest_of))
        bar.progress((place + 1) / len(shown) / 2, text="Collecting the numbers")
    if kind == SESSION:
        content = files.session_bytes(_session(), figures)
    elif figures:
        content = files.together(figures, suffix, format, choices, drawing)
    else:
        raise MtaVizError("This page shows no figure yet. Run a prompt, or choose a tab with a figure.")
    bar.empty()
    return content, [figure.provenance.figure for figure in figures], suffix


def _draw_made(kind: str, content: bytes, figures: list[str], suffix: files.Form) -> None:
    caption(f"{len(figures)} figures: {', '.join(figures)}." if figures else "")
    name = files.file_name(state.selection().checkpoint, state.session().page, kind, suffix=suffix)
    label, key = f"Save ({len(content) / 1e6:.1f} MB)", "everything.save"
    st.download_button(label, content, name, widgets.MIME_TYPES[suffix], key=key, on_click="ignore")


def _session() -> files.Session:
    shown = state.part(PageRun)
    prompt = None if shown.run is None else shown.run.prompt
    weights = "" if shown.model is None else cache.digest(shown.model)
    typed = list(prompt) if isinstance(prompt, tuple) else prompt
    return files.Session(state.session().page, state.parameters(), typed, weights, files.fitting(_given()))


def _given() -> list[files.Carried]:
    texts = [text for text in state.parameters().values() if kept_prompts.is_address(text)]
    long = [files.Carried(kept_prompts.text_at(text)) for text in texts]
    return long + [
        files.Carried(text, place, name) for place, (name, text) in widgets.files_of_page().items()
    ]


def _not_carried() -> str:
    given, model = _given(), state.part(PageRun).model
    there = files.fitting(given)
    lacking = [carried.name or "a long text" for carried in given if carried not in there]
    if model is not None and model.path in state.part(widgets.TokenizerFiles):
        lacking.append("the tokenizer's file")
    if model is not None and model.path in state.part(widgets.Bases):
        lacking.append("where the adapter's base lies")
    if state.part(Opened).run is not None:
        lacking.append("the run opened from a file (save it with Save run)")
    return f"Not in the session: {', '.join(lacking)}." if lacking else ""


def _draw_open() -> None:
    caption("A ZIP saved as a session. It takes the place of what is shown now; nothing in it is run.")
    given = upload("Session", ["zip"], 200, "everything.open")
    if given is None:
        return
    try:
        session = _brought_up(files.read_session(given.getvalue()))
        script = next((path for path, (title, _) in PAGES.items() if title == session.page), None)
        if script is None:
            raise MtaVizError(
                f"The session is of a page {short_repr(session.page)}, which this version does not have."
            )
    except MtaVizError as error:
        st.error(plain(str(error)))
    else:
        open_session(session, script)


def _brought_up(session: files.Session) -> files.Session:
    """A session of a page of before as one of the workspace."""
    if session.page not in OLDER:
        return session
    return replace(
        session, page=PAGES[WORKSPACE][0], view=session.view | of_older(session.page, session.view)
    )


def open_session(session: files.Session, script: str) -> None:
    """Forget what this visitor chose and go to the session's page by its address."""
    places = list(state.part(widgets.TextFiles).at)
    work.stop_all("page", "model")
    state.begin_anew(session.view)
    if session.prompt is not None:
        state.part(Box).ask(session.prompt if isinstance(session.prompt, str) else tuple(session.prompt))
    for carried in session.carried:
        if not carried.place:
            kept_prompts.address_of(
                carried.text, state.part(kept_prompts.Own)
            )  # where the view's address finds it
    brought = {carried.place: (carried.name, carried.text) for carried in session.carried if carried.place}
    widgets.bring(brought, places)
    state.part(PromptLink).weights = session.sha256
    st.switch_page(script, query_params=session.view)


REPORT_TASK = Setting("report task", False, private=True)
REPORT_WORDS = "Model, kernels, what they do on the prompt, and methods for a paper, in one file."


class ReportParts(dict[str, str]):
    """What is done of this session's reports, by name."""


def draw_report_button(page: Page) -> None:
    """Choose whether a task is measured too, make the report, download it."""
    from mta_viz.exporting.report import SAMPLES, usual_task  # not on pages without reports

    with st.popover("Report", icon=":material/description:"):
        task, runs = usual_task(page.model), page.model.tokenizer is not None and not page.model.kernels_only
        label = f"Also {SAMPLES} prompts of the task “{task}”, the model beside its plain twin"
        asked = runs and st.checkbox(label, **REPORT_TASK.widget())
        made: Any = measured(_measurement(page, task if asked else None))
        if made is None and state.part(ReportParts):
            caption("What is done stays: it goes on from there.")
        elif made is not None:
            makes: dict[str, Any] = {"html": lambda: made[1], "pdf": partial(made[0].pdf, page=made[1])}
            for suffix, content in makes.items():
                name = files.file_name(made[0].name, "report", suffix=suffix)
                words = f"Download {suffix.upper()}"
                file_button(words, content, name, f"report.{suffix}", width="stretch")


def _measurement(page: Page, task: str | None) -> Measurement:
    from mta_viz.exporting.report import report

    parts, prompt = state.part(ReportParts), None if page.trace is None else page.trace.tokens

    def do(work: Work, keep: Keep) -> "tuple[Report, bytes]":
        keep(None)  # what there is after Stop is in the parts
        settings: dict[str, Any] = {"numbering": page.numbering, "kept": parts, "begin": work.begin}
        made = report(page.model, prompt, task, **settings, progress=work.report)
        work.begin("Drawing")
        return made, made.html(work.report)

    key = ("report", page.key, task, page.numbering)
    return Measurement("report", key, "Make the report", do, REPORT_WORDS, owner="job", large=True)

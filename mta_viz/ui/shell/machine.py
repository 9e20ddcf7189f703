"""What the sidebar opens: the table of models, what runs on this machine, and whether the machine is well.

The table is of what the folders with models hold, the newest first, to search and to choose from, with a
place for a model of one's own, a file or a ZIP, which stands in it for this session. What runs is of all
readers: what, whose, since when, how far; Stop for one's own. The check is the same as the command `doctor`.
"""

import hashlib
import time
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipInfo

import streamlit as st

from mta_viz.checkpoint.pickles import opened_zip
from mta_viz.checkpoint.reading import Found
from mta_viz.errors import MtaVizError
from mta_viz.exporting.doctor import diagnose
from mta_viz.exporting.saved import DAMAGED_ZIP
from mta_viz.printed import printable, size_text
from mta_viz.run.devices import resident_bytes
from mta_viz.tokenizers import worker
from mta_viz.ui.shell import cache, models, ray_jobs, state, uploads, work
from mta_viz.ui.shell.cache import ModelKey
from mta_viz.ui.shell.models import VARIANTS
from mta_viz.ui.shell.page import errors_as_messages
from mta_viz.ui.shell.ray_jobs import RayJob
from mta_viz.ui.shell.state import Setting
from mta_viz.ui.shell.trainings import find_trainings
from mta_viz.ui.shell.widgets import (
    caption,
    close_window,
    menu,
    picked,
    plain,
    pressed,
    window,
    window_button,
)
from mta_viz.ui.shell.work import Reader, Work
from mta_viz.writing import write_folder

TABLE, SEARCH = "models.table", "models.search"
MOST_MB, MOST_FILES = 200, 200  # of an upload, packed and unpacked
FILES = ("zip", "gguf", "safetensors")


def row_of(found: Found) -> dict[str, Any]:
    """A checkpoint's line in the table; what a broken one has none of is empty."""
    summary = found.summary
    row = {"model": found.name, "changed": cache.written(found.path) // 10**9, "kind": "cannot be read"}
    if summary is not None:
        row |= {
            "kind": summary.format,
            "variant": VARIANTS[summary.config.variant],
            "step": "" if summary.step is None else str(summary.step),
            "size": size_text(summary.n_bytes),
            "tokenizer": summary.tokenizer_name or "none",
        }
    return {**row, "why not": printable(found.problem or ""), "path": printable(str(found.path))}


def rows_of(found: tuple[Found, ...], search: str) -> list[tuple[Found, dict[str, Any]]]:
    """The lines that hold every word of `search`, the newest first."""
    rows = [(model, row_of(model)) for model in found]
    words = search.lower().split()
    holding = [
        row for row in rows if all(word in " ".join(map(str, row[1].values())).lower() for word in words)
    ]
    return sorted(holding, key=lambda row: -row[1]["changed"])


@window("Models", width="large")
def draw_models() -> None:
    """The table; a click on a line chooses its model."""
    found = models.found()
    rows = rows_of(
        found, st.text_input("Search", key=SEARCH, placeholder="name, kind, tokenizer, folder ...")
    )
    caption(f"{len(rows)} of {len(found)} models; a click on a line chooses it.")
    shown = [
        {**row, "changed": time.strftime("%Y-%m-%d %H:%M", time.localtime(row["changed"]))} for _, row in rows
    ]
    look: dict[str, Any] = {"hide_index": True, "on_select": "rerun", "selection_mode": "single-row"}
    st.dataframe(shown, key=f"{TABLE}.{len(rows)}", **look)
    at = picked(f"{TABLE}.{len(rows)}")
    if at is not None and at < len(rows):
        choose(rows[at][0], found)
    _draw_upload()


def choose(model: Found, found: tuple[Found, ...]) -> None:
    """Go on with this model, on another head and place."""
    name = models.identity(model, [other.name for other in found])
    if name != state.selection().checkpoint:
        state.session().selection = state.Selection(checkpoint=name)
    close_window()
    st.rerun()


def _draw_upload() -> None:
    given = uploads.upload(
        f"A model of your own: a .gguf or .safetensors file, or a .zip of a folder (at most {MOST_MB} MB)",
        FILES,
        MOST_MB,
        "models.upload",
    )
    if given is None:
        return
    try:
        folder = keep_model(given.name, given.getvalue())
    except MtaVizError as error:
        st.error(plain(str(error)))
        return
    own = state.part(models.Uploaded)
    if str(folder) not in own:
        own.append(str(folder))
        st.rerun()
    caption(f"{given.name} stands in the table for this session.")


def keep_model(name: str, content: bytes) -> Path:
    """The folder an uploaded model lies in. Raises MtaVizError for a damaged or too large one."""
    if not name.lower().endswith(".zip"):
        return uploads.keep_upload(name, content).parent
    uploads.checked_name(name)
    folder = uploads.folder_of(hashlib.sha256(content).hexdigest())
    try:
        with uploads.one_at_a_time:
            if not folder.is_dir():
                write_folder(folder, partial(_unpack, content, folder), overwrite=False)
    except DAMAGED_ZIP as error:
        raise MtaVizError(f"{printable(name)} cannot be unpacked: {printable(error)}") from error
    return folder


def _unpack(content: bytes, folder: Path, hidden: Path) -> None:
    """Regular files alone, inside the folder, no more bytes than they say. Raises ValueError otherwise."""
    with opened_zip(BytesIO(content), len(content)) as archive:
        members = {_place(info): info for info in archive.infolist() if not info.is_dir()}
        size = sum(info.file_size for info in members.values())
        if size > MOST_MB * 2**20 or len(members) > MOST_FILES:
            raise ValueError(
                f"it has {len(members):,} files of {size_text(size)}, more than {MOST_FILES} or {MOST_MB} MB"
            )
        uploads.make_room(size, folder)
        for place, info in members.items():
            file = hidden / place
            file.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as packed:
                file.write_bytes(packed.read(info.file_size))


def _place(info: ZipInfo) -> PurePosixPath:
    place = PurePosixPath(info.filename)
    parts = [uploads.checked_name(part) for part in place.parts]
    if place.is_absolute() or ".." in parts or parts != list(place.parts) or info.external_attr >> 28 == 0xA:
        raise ValueError(f"its {printable(info.filename)} is a link or leads out of the folder")
    return place


LIST = "jobs"  # the key of the list, which holds whether it is open
REFRESH = 2.0  # seconds


def draw_jobs(found: Found | None, model: ModelKey | None) -> None:
    """The list, folded; while it is open it is drawn anew; below it what can be measured on Ray."""
    with st.popover("What runs", icon=":material/list:", key=LIST, on_change="rerun", width="stretch"):
        if state.widget_value(LIST):
            st.fragment(_draw, run_every=REFRESH)()
            if model is not None and ray_jobs.there() and not uploads.read_only():
                letters = found and found.summary and found.summary.tokenizer_name == "char"
                _draw_new(model, "blocks" if letters else "needle")


def _draw() -> None:
    reader, running = work.current_reader(), work.at_work()
    for job in running:
        _draw_job(job, reader)
    trainings = [training for training in find_trainings(models.roots()) if training.alive]
    for training in trainings:
        caption(f"The training in {printable(training.folder.name)}, see the page Train")
    away = [
        job for job in ray_jobs.jobs_of(model.path for model in models.found()) if job.alive or job.failed
    ]
    for measuring in away:
        _draw_away(measuring)
    if not running and not trainings and not away:
        caption("Nothing at the moment.")
    for words in tokenizer_lines():
        caption(words)


def tokenizer_lines() -> list[str]:
    """A line for each tokenizer that has a process of its own, with the memory it takes."""
    sizes = [(kind, resident_bytes(process)) for kind, process in worker.processes()]
    return [f"A tokenizer ({kind}): {size_text(size)} of memory" for kind, size in sizes if size is not None]


def _draw_job(job: Work, reader: Reader) -> None:
    own, left = reader.owns(job.reader), not work.is_here(job.reader)
    whose = "yours" if own else "of a reader who has left" if left else "another reader's"
    since = time.strftime("%H:%M:%S", time.localtime(job.since))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(work.progress_text(job) + plain(f" · {whose}, since {since}, {job.fraction:.0%}"))
        if own or left:
            st.button("Stop", key=f"jobs.stop.{id(job)}", on_click=job.stop)


MEASURED = {"effects": "what a task loses without each kernel", "shapley": "what each kernel is worth"}
TASKS = {"needle": "needles", "pairs": "pairs", "blocks": "blocks of letters"}
KIND, TASK, ON = (
    Setting(f"ray_{name}", usual, private=True)
    for name, usual in (("measured", "effects"), ("task", "needle"), ("on", "ray"))
)


def _draw_away(job: RayJob) -> None:
    """A job on Ray: how far it is, or why it ended, in its own words; whoever sees it may stop it."""
    what, name = MEASURED[job.job.measured], printable(job.folder.name)
    with st.container(horizontal=True, vertical_alignment="center"), errors_as_messages():
        caption(f"On Ray, {what}, {name}, {TASKS[job.job.task]}: {printable(job.words) or 'starting'}")
        if job.alive and pressed("Stop", f"ray.stop.{job.folder}"):
            ray_jobs.stop(job)


def _draw_new(model: ModelKey, usual: ray_jobs.Task) -> None:
    """The form of another, at first on the task that fits."""
    with st.expander("Measure on Ray", icon=":material/hub:"), errors_as_messages():
        measured, task = menu("Measure", MEASURED, KIND), menu("Task", TASKS, TASK, default=usual)
        help = "ray: this machine's, which is started where there is none; or a cluster's ray://HOST:PORT"
        on = st.text_input("Where", help=help, **ON.widget())
        caption("The result lies beside the weights, and the pages show it when it is there.")
        if pressed("Start", "ray.start", type="primary"):
            ray_jobs.start(model, measured, task, on)


MARKS = {"ok": ":material/check:", "note": ":material/info:", "wrong": ":material/error:"}


def draw_doctor() -> None:
    """A button that opens the window."""
    help = (
        "torch and its devices, versions, browser, fonts, models, memory and disk: what is wrong, what to do."
    )
    look: dict[str, Any] = {"icon": ":material/stethoscope:", "help": help}
    window_button("Check this machine", "doctor", _draw_checks, **look)


@window("This machine", width="large")
def _draw_checks() -> None:
    with st.spinner("Looking"):
        diagnosis = diagnose(models.roots(), port=None)
    caption(
        "Whether the server answers, for a proxy or a container: /_stcore/health. The command doctor says "
        "the same as this window."
    )
    for check in diagnosis.checks:
        with st.container(horizontal=True, vertical_alignment="top"):
            st.markdown(MARKS[check.state], width="content")
            with st.container():
                st.text(f"{check.name}: {check.found}")
                if check.remedy:
                    caption(check.remedy)

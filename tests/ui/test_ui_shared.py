"""An app that several people use: lost connections, waiting, limits of jobs and of uploads, read-only."""

import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.checkpoint.reading import Found
from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.model.turns import TurnLock
from mta_viz.tokenizers import worker
from mta_viz.tokenizers.loading import load_tokenizer
from mta_viz.ui.shell import machine, uploads, work
from mta_viz.ui.shell.cache import BoundedStore, changed
from mta_viz.ui.shell.machine import keep_model, rows_of
from mta_viz.ui.shell.work import Reader, Work
from mta_viz.version import ASSETS, HOME
from tests.tiny_models import write_models
from tests.ui.driver import address_of, app_at, said

SOON = 20.0


def until(stop: threading.Event):
    """Work that goes on, reporting, until it is stopped, at most so long."""

    def do(running: Work) -> None:
        while not stop.wait(0.01):
            running.report(0.5)

    return do


@pytest.fixture
def end():
    event = threading.Event()
    threading.Timer(SOON, event.set).start()
    yield event
    event.set()


def test_a_page_is_whole_where_others_runs_push_its_own_out_of_the_stores_at_once(monkeypatch, tmp_path):
    make = BoundedStore.get_or_make

    def kept_by_nobody(store: BoundedStore, key, do):
        value = make(store, key, do)
        store.clear()
        return value

    monkeypatch.setattr(BoundedStore, "get_or_make", kept_by_nobody)
    app = app_at(**address_of("needle-mta", "Oslo is 99.", layer=1, head=0)).run()
    assert not app.exception and not app.error and "Stopped" not in said(app)
    assert "Self-check" in said(app) and "L1 H0" in said(app)


@pytest.mark.parametrize(("owner", "ends"), [("page", True), ("model", True), ("job", False)])
def test_page_runs_end_without_their_reader_and_jobs_go_on(monkeypatch, end, owner, ends):
    for name in ("LOOK_SECONDS", "LOST_SECONDS"):
        monkeypatch.setattr(work, name, 0.05)
    here = [True]
    monkeypatch.setattr(work, "is_here", lambda reader: here[0])
    running = Work(until(end), owner=owner)
    assert not running.wait(0.3)
    here[0] = False
    assert running.wait(2.0 if ends else 0.5) is ends
    assert running.stopped is ends and (running in work.at_work()) is not ends


def test_a_connection_that_is_lost_without_a_word_ends_page_runs_within_20_seconds():
    settings = tomllib.loads((HOME / ".streamlit" / "config.toml").read_text())
    noticed = 2 * settings["server"]["websocketPingInterval"]  # a ping, and as long for its answer
    assert noticed + work.LOOK_SECONDS + work.LOST_SECONDS < 20


def test_a_run_that_was_silent_for_long_is_not_ended_by_a_moment_without_its_reader(monkeypatch):
    now, here = [work.time.monotonic()], [True]
    monkeypatch.setattr(work, "is_here", lambda reader: here[0])
    running = Work(lambda running: None)
    assert running.wait(SOON)
    monkeypatch.setattr(work.time, "monotonic", lambda: now[0])
    now[0], here[0] = now[0] + 10 * work.LOST_SECONDS, False  # the first look in that time
    running.wait_for(0)
    now[0] += work.LOST_SECONDS / 2
    running.wait_for(0)
    here[0] = True
    now[0] += work.LOST_SECONDS
    running.wait_for(0)
    here[0] = False
    now[0] += work.LOST_SECONDS
    running.wait_for(0)
    now[0] += 2 * work.LOST_SECONDS
    with pytest.raises(Cancelled):
        running.wait_for(0)


def test_who_waits_for_a_model_is_told_and_stops_at_once():
    lock = TurnLock()

    def run(running: Work) -> None:
        with lock:
            raise AssertionError("it ran")

    with lock:
        waiting = Work(run)
        while not waiting.n_before:
            assert waiting.running
        assert "waiting, 1 before you" in work.progress_text(waiting)
        waiting.stop()
        assert waiting.wait(SOON) and waiting.stopped


def test_who_waits_for_what_another_makes_stops_at_once(end):
    store = BoundedStore(2)
    maker = Work(lambda running: store.get_or_make("trace", lambda: end.wait(SOON)))
    waiting = Work(lambda running: store.get_or_make("trace", lambda: pytest.fail("made twice")))
    while not waiting.n_before:
        assert waiting.running
    waiting.stop()
    assert waiting.wait(SOON) and isinstance(waiting.error, Cancelled) and maker.running


def _page(n, end) -> None:
    import streamlit as st

    from mta_viz.ui.shell import work

    for at in range(n):
        started = work.start(f"sweep {at}", at, lambda running: end.wait(20), "job")
    started.wait(0.2)
    st.text(str(started.failure))


def test_a_reader_has_so_many_jobs_and_more_are_refused(end):
    text = AppTest.from_function(_page, args=(work.MOST_OWN, end)).run().text[0].value
    assert text == "None"
    text = AppTest.from_function(_page, args=(1, end)).run().text[0].value
    assert f"{work.MOST_OWN} jobs of yours" in text and "What runs" in text


def test_a_tab_owns_its_jobs_and_those_of_the_same_person():
    assert Reader("a").owns(Reader("a")) and not Reader("a").owns(Reader("b"))
    assert Reader("a", "x@y").owns(Reader("b", "x@y")) and not Reader("a", "x@y").owns(Reader("b", "z@y"))


def _uploads(*given) -> None:
    import streamlit as st

    from mta_viz.errors import MtaVizError
    from mta_viz.ui.shell.uploads import keep_upload

    for name, content in given:
        try:
            st.text(str(keep_upload(name, content)))
        except MtaVizError as error:
            st.text(str(error))


def uploaded(*given: tuple[str, bytes]) -> list[str]:
    """What a session hears of its uploads, one after the other."""
    return [text.value for text in AppTest.from_function(_uploads, args=given).run().text]


def test_uploads_have_limits_of_a_session_and_of_all(monkeypatch):
    monkeypatch.setattr(uploads, "MOST_OWN", 5000)
    first, again, refused = uploaded(*[("a.json", b"1" * 3000)] * 2, ("b.json", b"2" * 3000))
    assert first == again and Path(first).read_bytes() == b"1" * 3000
    assert "this session's take 3.0 kB of 5.0 kB" in refused
    monkeypatch.setattr(uploads, "MOST_BYTES", 3000)
    assert "folder with models" in uploaded(("b.json", b"2" * 3000))[0]
    assert Path(first).is_file()


@pytest.mark.parametrize("name", ["x" * 300, "a\0b.json", "", "..", "a/../", "\x1b[2J.json", "ü" * 100])
def test_a_name_no_file_can_have_gets_a_message(name):
    with pytest.raises(MtaVizError, match="is no name of a file here"):
        uploads.keep_upload(name, b"content")


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_a_model_comes_as_a_zip_of_its_folder():
    folder = keep_model("mine.zip", zipped({"run/params.json": b"{}", "run/model.safetensors": b"x"}))
    assert sorted(path.name for path in (folder / "run").iterdir()) == ["model.safetensors", "params.json"]


def test_nobody_sees_half_of_a_zip_that_another_unpacks(monkeypatch):
    members = {f"run/{at}.json": b"{}" for at in range(10)}
    write_bytes = Path.write_bytes

    def slowly(file: Path, content: bytes) -> int:
        time.sleep(0.02)
        return write_bytes(file, content)

    monkeypatch.setattr(Path, "write_bytes", slowly)
    content = zipped(members)
    with ThreadPoolExecutor(3) as threads:
        there = list(
            threads.map(lambda _: len(list((keep_model("m.zip", content) / "run").iterdir())), "abc")
        )
    assert there == [10, 10, 10]


def test_of_a_zip_that_ends_half_way_nothing_stays():
    whole = zipped({"a.json": b"{}", "b.json": bytes(range(256)) * 9})
    at = whole.index(b"b.json") + 10
    content = whole[:at] + b"xxxx" + whole[at + 4 :]
    for _ in range(2):  # not taken for unpacked the second time
        with pytest.raises(MtaVizError, match="cannot be unpacked"):
            keep_model("mine.zip", content)
    assert not uploads.folder_of(hashlib.sha256(content).hexdigest()).exists()


@pytest.mark.parametrize(
    "content",
    [
        zipped({"../out.json": b"{}"}),
        zipped({"/etc/out.json": b"{}"}),
        zipped({"a/" + "n" * 300: b"{}"}),
        zipped({f"{at}.json": b"" for at in range(300)}),
        zipped({"large.bin": bytes(201 * 2**20)}),
        b"PK no zip",
    ],
    ids=["parent", "root", "name", "many", "large", "damaged"],
)
def test_a_zip_that_is_none_or_too_much_is_refused(content):
    with pytest.raises(MtaVizError):
        keep_model("mine.zip", content)


def test_the_table_has_the_newest_first_and_is_searched_by_all_words(tmp_path):

    for at, name in enumerate(("old-bytes", "new-char", "newer-bytes")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (at * 1000, at * 1000))
    found = tuple(Found(path, path.name, None, "broken: no weights") for path in sorted(tmp_path.iterdir()))
    assert [row["model"] for _, row in rows_of(found, "")] == ["newer-bytes", "new-char", "old-bytes"]
    assert [row["model"] for _, row in rows_of(found, "Weights char")] == ["new-char"]
    assert rows_of(found, "weights")[0][1]["why not"] == "broken: no weights"


@pytest.mark.parametrize(("flag", "is_so"), [("1", True), ("0", False), ("", False)])
def test_a_read_only_app_takes_nothing_and_trains_nothing(monkeypatch, tmp_path: Path, flag, is_so):
    from mta_viz.ui.shell.trainings import Settings, start

    monkeypatch.setenv("MTA_VIZ_READ_ONLY", flag)
    assert uploads.read_only() is is_so
    if is_so:
        assert uploads.upload("A file", ["zip"], 1, "key") is None
        with pytest.raises(MtaVizError, match="read-only"):
            start(Settings(base="/base", layers=(0,)), tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_model_whose_files_change_or_go_is_another_and_nothing_fails(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "params.json").write_text("{}")
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    os.utime(folder, (1, 1))
    os.utime(folder / "params.json", (2, 2))
    before = changed(folder)
    assert before > 10**18  # not the time that a copy brought with it
    (folder / "params.json").unlink()
    assert changed(folder) > before
    shutil.rmtree(folder)
    assert changed(folder) > before


def test_what_runs_says_what_tokenizers_take():
    load_tokenizer("tokenizers", "tokenizer.json", folder=ASSETS / "needle-mta")
    before, (_, last) = machine.tokenizer_lines(), worker.processes()[-1]
    assert re.fullmatch(r"A tokenizer \(tokenizers\): [\d.]+ MB of memory", before[-1])
    os.kill(last, signal.SIGKILL)
    os.waitid(os.P_PID, last, os.WEXITED | os.WNOWAIT)
    assert len(machine.tokenizer_lines()) == len(before) - 1


def test_weights_that_change_under_an_open_page_are_said_and_touched_ones_are_not(monkeypatch, tmp_path):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(write_models(tmp_path / "models")))
    app = app_at(**address_of("tiny-mta", "a city")).run()
    weights = tmp_path / "models" / "tiny-mta" / "model.safetensors"
    os.utime(weights, (1, 1))
    app.run()
    assert not app.toast and "on disk" not in said(app)
    weights.write_bytes(
        (tmp_path / "models" / "no-tokenizer" / "model.safetensors").read_bytes()[:-4] + b"\0" * 4
    )
    app.run()
    (toast,) = app.toast
    assert "changed on disk since" in toast.value and "→" in toast.value
    assert "changed on disk since" in said(app)


HOLDS = """
import sys, time
from mta_viz.ui.shell import uploads
print(uploads.folder_of(""), flush=True)
time.sleep(600)
"""


def test_uploads_of_a_killed_app_go_when_the_next_starts_and_those_of_a_live_one_stay(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(uploads, "JUST_MADE", -1.0)
    processes = [subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE) for _ in range(2)]
    live, killed = [Path(process.stdout.readline().decode().strip()) for process in processes]
    (killed / "model.zip").write_text("uploaded")
    (linked := tmp_path / f"{uploads.PREFIX}link").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    processes[1].kill()
    processes[1].wait()
    try:
        uploads.sweep.__wrapped__()
        assert live.is_dir() and not killed.exists() and linked.is_symlink()
    finally:
        processes[0].kill()
        processes[0].wait()
    uploads.sweep.__wrapped__()
    assert not live.exists() and (tmp_path / "mine").is_dir()

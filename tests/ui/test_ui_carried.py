"""Long texts and files given to a page: in its link by an id, in its session as they are, and no others."""

import io
import zipfile
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.errors import MtaVizError
from mta_viz.exporting import saved as module
from mta_viz.exporting.saved import Carried, Session, fitting, read_session, session_bytes
from mta_viz.ui.shell import address as session_dialog
from mta_viz.ui.shell import kept_prompts
from mta_viz.ui.shell.state import mirror
from mta_viz.ui.shell.widgets import TextFile, TextFiles
from tests.ui.driver import ROOT, borrowed, fine, part_of, said, session_of
from tests.ui.driver import view_of as address

LONG = "The cat sat. عربي 😀 <b>$x$</b>\r\n" * 20
LABS = "pages/labs.py"
PASSAGES = ("../my <b>text</b>.txt", "One sentence of my own. Another one follows it.\n\n" * 40)


@pytest.fixture
def lab(open_app):
    """The text lab with a long text typed into it."""
    app = open_app("tiny-mta", "abc", LABS, {"lab": "Text"})
    return borrowed(app.text_area, "text typed").set_value(LONG).run()


def from_link(**found) -> AppTest:
    fresh = AppTest.from_file(ROOT / "app.py", default_timeout=120)
    fresh.switch_page(LABS)
    for name, value in found.items():
        fresh.query_params[name] = value
    return fresh.run()


def test_a_long_text_goes_into_the_link_by_its_id(lab, tmp_path, monkeypatch):
    fine(lab.run())  # as opening its window does
    found = address(lab)
    (shown,) = [one.value for one in lab.get("code") if one.value.startswith("?")]
    assert dict(parse_qsl(shown[1:])) == found  # of the whole page
    assert kept_prompts.is_address(found["text typed"]) and "kept on this machine only" in said(lab)
    again = from_link(**found)
    fine(again)
    assert session_of(again).values["text typed"] == LONG and address(again) == found
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "other machine"))
    elsewhere = from_link(**found)
    fine(elsewhere)
    assert "text typed: its text is kept on the machine the link was made on" in said(elsewhere)


def test_a_typed_id_is_a_text_like_others(lab):
    typed = "kept:" + "0" * 20
    borrowed(lab.text_area, "text typed").set_value(typed).run()
    again = from_link(**address(lab))
    assert session_of(again).values["text typed"] == typed


def give(app, **files: TextFile) -> None:
    """As if these files had been uploaded, which this test runner cannot do to a place of its own."""
    session_of(app).parts.setdefault(TextFiles, TextFiles()).at.update(files)


def window():
    """What the window makes, and what it says is missing."""
    return session_dialog._session(), session_dialog._not_carried()


def at_the_end(monkeypatch, draw) -> list:
    """What `draw` answers after a page is drawn: a window runs alone, which this test runner cannot."""
    found = []
    monkeypatch.setattr("mta_viz.ui.shell.state.leave", lambda: (mirror(), found.append(draw())))
    return found


def test_a_session_carries_long_texts_and_files_into_an_empty_browser(lab, tmp_path, monkeypatch):
    found = at_the_end(monkeypatch, window)
    give(lab, **{"text file the last word": TextFile("Labs", PASSAGES)})
    lab.run()
    fine(lab)
    session, lacking = found[-1]
    assert lacking == ""
    content = session_bytes(session, [])
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert names == ["session.json", "given/0.txt", "given/1.txt"]

    waiting = [read_session(content)]
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "other machine"))
    at_the_end(monkeypatch, lambda: waiting and session_dialog.open_session(waiting.pop(), LABS))
    again = from_link()
    fine(again)
    assert session_of(again).values["text typed"] == LONG
    assert part_of(again, TextFiles).at["text file the last word"].content == PASSAGES
    assert f"{PASSAGES[0]}: {len(PASSAGES[1]):,} characters" in said(again)
    assert "widget.text file the last word.0" not in [one.key for one in again.file_uploader]
    assert address(again) == address(lab) and "could not be restored" not in said(again)


def test_files_of_another_page_stay_out_and_what_has_no_room_is_said(lab, monkeypatch):
    found = at_the_end(monkeypatch, window)
    give(lab, **{"needle haystack": TextFile("Another page", PASSAGES)})
    give(lab, **{"text file the last word": TextFile("Labs", PASSAGES)})
    monkeypatch.setattr(module, "MAX_CARRIED", len(LONG.encode()) + 5)
    lab.run()
    session, lacking = found[-1]
    assert [one.text for one in session.carried] == [LONG]
    assert lacking == f"Not in the session: {PASSAGES[0]}."


GIVEN = Session("Labs", {}, carried=(Carried(LONG), Carried("abc", "needle haystack", "../a.txt")))


def test_texts_come_back_as_they_were():
    assert read_session(session_bytes(GIVEN, [])) == GIVEN
    assert fitting([Carried("a")] * 30) == (Carried("a"),) * module.MAX_FILES


def changed(**members: bytes) -> bytes:
    """The session's file with other content in some of its members, None for one that is gone."""
    old, new = zipfile.ZipFile(io.BytesIO(session_bytes(GIVEN, []))), io.BytesIO()
    with zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            content = members.get(name.split("/")[-1].split(".")[0], old.read(name))
            if content is not None:
                archive.writestr(name, content)
    return new.getvalue()


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"1": b"abd"}, "given/1.txt is damaged: its sha256 is another"),
        ({"1": None}, "it has no given/1.txt"),
        ({"0": b"x" * 3000}, "its given/0.txt is larger than"),
    ],
)
def test_files_that_are_not_as_they_were_are_refused(members, says, monkeypatch):
    monkeypatch.setattr(module, "MAX_CARRIED", 2 * 2**10)
    content = changed(**members)
    with pytest.raises(MtaVizError, match=says):
        read_session(content)

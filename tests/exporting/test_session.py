"""A session's file holds all it takes to open it again, and all figures; other files are refused."""

import io
import json
import zipfile

import plotly.graph_objects as go
import pytest
from pypdf import PdfReader

from mta_viz.errors import MtaVizError
from mta_viz.exporting import saved as module
from mta_viz.exporting.provenance import Provenance, from_text, many_text, read
from mta_viz.exporting.saved import Choices, Saved, Session, one_pdf, read_session, session_bytes, together

VIEW = {"ck": "tiny", "p": "<b> عربي"}


def figure(name: str) -> Saved:
    drawn = go.Figure(
        go.Heatmap(z=[[1, 2]], colorscale="RdBu_r"), layout={"width": 200, "height": 100, "title": name}
    )
    return Saved((name,), drawn, f"Caption of {name}.", "a\n1\n", Provenance(name, VIEW))


@pytest.mark.parametrize("prompt", [None, "a\r\nb 😀", [1, 2, 3]])
def test_a_session_comes_back(prompt):
    session = Session("Attention", VIEW, prompt, "f" * 64)
    assert read_session(session_bytes(session, [figure("one"), figure("two")])) == session


def test_its_pages_work_offline_and_its_files_are_all_there():
    archive = zipfile.ZipFile(
        io.BytesIO(session_bytes(Session("Kernels", VIEW), [figure("one"), figure("one")]))
    )
    names = {f"one{number}.{suffix}" for number in ("", "-2") for suffix in ("html", "csv", "txt", "json")}
    assert set(archive.namelist()) == {"session.json", "plotly.min.js", *names}
    page = archive.read("one.html").decode()
    assert 'src="plotly.min.js"' in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "https://cdn" not in page and from_text(archive.read("one.json").decode()).figure == "one"


def archived(name: str, content: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(name, content)
    return written.getvalue()


GOOD = {"format": module.SESSION_FORMAT, "page": "Attention", "view": VIEW, "prompt": None, "sha256": ""}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read as a session"),
        (b"PK\x03\x04 damaged", "cannot be read as a session"),
        (session_bytes(Session("Attention", VIEW), [])[:-30], "cannot be read as a session"),
        (archived("other.json", "{}"), "no session.json"),
        (archived("session.json", "{"), "cannot be read"),
        (archived("session.json", "[" * 100_000), "cannot be read"),
        (archived("session.json", json.dumps(GOOD | {"format": "x"})), "its format is .x."),
        (
            archived("session.json", json.dumps(GOOD | {"view": {"l": 1}})),
            "view.l is 1",
        ),
        (archived("session.json", json.dumps(GOOD | {"prompt": [1, "a"]})), "prompt"),
        (
            archived("session.json", json.dumps(GOOD | {"carried": [1]})),
            r"carried\[0\] is 1",
        ),
        (archived("session.json", json.dumps(GOOD | {"page": None})), "page is None"),
    ],
    ids=map(str, range(11)),  # an archive holds its time: not the same in every worker
)
def test_what_is_no_session_is_refused(content, says):
    with pytest.raises(MtaVizError, match=says):
        read_session(content)


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(module, "MAX_SESSION", 50)
    with pytest.raises(MtaVizError, match="larger than"):
        read_session(session_bytes(Session("Attention", VIEW), []))


@pytest.mark.browser
def test_one_pdf_has_a_page_a_label_and_an_origin_for_each_figure(tmp_path):
    told: list[float] = []
    content = together([figure("one"), figure("two"), figure("three")], "pdf", progress=told.append)
    reader = PdfReader(io.BytesIO(content))
    assert [page.extract_text().split()[-1] for page in reader.pages] == ["one", "two", "three"]
    assert [item["/Title"] for item in reader.outline] == [
        f"Caption of {n}." for n in ("one", "two", "three")
    ]
    assert told == pytest.approx([1 / 3, 2 / 3, 1])
    (tmp_path / "all.pdf").write_bytes(content)
    said = [read(tmp_path / "all.pdf", page) for page in (1, 2, 3)]
    assert [(one.figure, one.caption) for one in said] == [
        (n, f"Caption of {n}.") for n in ("one", "two", "three")
    ]
    assert said[0].parameters == VIEW
    with pytest.raises(MtaVizError, match=r"3 figures, one a page.*--page N \(1: Caption of one"):
        read(tmp_path / "all.pdf")


@pytest.mark.parametrize(
    ("text", "page", "says"),
    [
        (many_text([Provenance("a", VIEW)]), 2, "1 figures, one a page"),
        (
            many_text([Provenance("a", VIEW)]).replace("[{", "[[{").replace("}]", "}]]"),
            1,
            "figures cannot",
        ),
        (Provenance("a", VIEW).text(), 2, "one figure, not a page 2"),
    ],
)
def test_a_page_that_is_not_there_is_refused(text, page, says):
    with pytest.raises(MtaVizError, match=says):
        from_text(text, page)


def test_a_zip_has_four_files_for_each_figure():
    content = together([figure("one"), figure("two")], "zip", "html", Choices())
    assert len(zipfile.ZipFile(io.BytesIO(content)).namelist()) == 8


def test_no_pages_make_an_empty_pdf():
    assert one_pdf([], "").startswith(b"%PDF")


def test_damaged_bytes_and_halves_of_characters_are_refused():
    good = session_bytes(Session("Attention", VIEW, "a prompt of some length " * 20), [])
    start = good.index(b"session.json") + len(b"session.json")
    for place in range(start, start + 60, 7):
        with pytest.raises(MtaVizError):
            read_session(good[:place] + b"\xff\xff\xff\xff" + good[place + 4 :])
    for broken in (GOOD | {"prompt": "\ud800"}, GOOD | {"view": {"p": "\ud800"}}):
        with pytest.raises(MtaVizError, match="cannot be read"):
            read_session(archived("session.json", json.dumps(broken)))

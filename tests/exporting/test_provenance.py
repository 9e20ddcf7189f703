"""What a figure's file says of itself is what is read back, from every format, and damage is refused."""

import io
import json
import os
import zipfile

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pypdf import PdfReader

from mta_viz.errors import MtaVizError
from mta_viz.exporting import provenance as carriers
from mta_viz.exporting.pictures import PX_PER_MM, has_scales, in_greys, sized
from mta_viz.exporting.provenance import Provenance, RunOf, embed, from_text, read
from mta_viz.exporting.saved import Choices, Saved, all_files, laid_out, picture, zipped

ODD = "</script></metadata><b>$x$ \\ عربي 😀 & ]]> %PDF"
SAID = Provenance(
    "attention-map",
    {"layer": 1, "words": ODD, "queries": [3, 9]},
    RunOf("tiny", "f" * 64, prompt=ODD, tokens=(ODD, "a")),
    limits=((-1.0, 1.0),),
)


def map_figure(width: int = 600) -> go.Figure:
    """A signed map with a label for each of its 40 rows and columns."""
    labels = {
        "tickvals": list(range(40)),
        "ticktext": [f"{at} token" for at in range(40)],
        "range": [-0.5, 39.5],
    }
    figure = go.Figure(go.Heatmap(z=[[0.5, -1.0], [1.0, 0.0]], zmin=-1, zmax=1, colorscale="RdBu_r"))
    return figure.update_layout(
        width=width,
        height=600,
        margin={"l": 100, "r": 20, "t": 60, "b": 100},
        xaxis=labels | {"tickangle": -90, "tickfont": {"size": 10}},
        yaxis=labels | {"tickfont": {"size": 10}},
        font={"size": 12},
    )


def saved(figure: go.Figure) -> Saved:
    return Saved(("tiny", "L1", "con"), figure, "A caption.", "a,b\n1,2\n", SAID)


@pytest.mark.browser
@pytest.mark.parametrize("format", ["png", "svg", "pdf"])
def test_a_picture_says_where_it_comes_from(format, tmp_path):
    content = picture(saved(map_figure()), format, Choices("column", "greys"))
    (tmp_path / "renamed.bin").write_bytes(content)
    found = read(tmp_path / "renamed.bin")
    assert (found.run, found.parameters, found.limits) == (SAID.run, SAID.parameters, SAID.limits)
    assert (found.size, found.colours, found.caption) == ("column", "greys", "A caption.")


@pytest.mark.browser
def test_a_pdf_has_its_size_text_and_fonts():
    page = PdfReader(io.BytesIO(picture(saved(map_figure()), "pdf", Choices("column")))).pages[0]
    assert float(page.mediabox.width) / 72 * 25.4 == pytest.approx(84, abs=0.5)
    assert "21 token" in page.extract_text()
    fonts = page["/Resources"]["/Font"].values()
    inside = [font.get_object()["/DescendantFonts"][0].get_object()["/FontDescriptor"] for font in fonts]
    assert inside and all("/FontFile2" in one.get_object() for one in inside)


@pytest.mark.browser
def test_a_png_has_its_dots_to_the_inch():
    from PIL import Image

    content = picture(saved(map_figure()), "png", Choices("page", dpi=150))
    assert Image.open(io.BytesIO(content)).width == pytest.approx(174 / 25.4 * 150, abs=3)


def test_other_programs_read_a_png_and_what_it_says():
    from PIL import Image

    written = io.BytesIO()
    Image.new("L", (2, 2)).save(written, "png")
    content = embed(written.getvalue(), "png", SAID.text())
    Image.open(io.BytesIO(content)).verify()  # the chunks' checksums
    assert Image.open(io.BytesIO(content)).text["mta_viz"] == SAID.text()


def test_an_html_page_says_where_it_comes_from(tmp_path):
    (tmp_path / "page.html").write_bytes(picture(saved(map_figure()), "html", Choices()))
    assert read(tmp_path / "page.html").run.tokens == (ODD, "a")
    assert "</script></metadata>" not in (tmp_path / "page.html").read_text("utf-8")


def test_all_files_carry_the_same_name(monkeypatch):
    monkeypatch.setattr("mta_viz.exporting.saved.figure_bytes", lambda *_, **__: b"%PDF-damaged")
    monkeypatch.setattr("mta_viz.exporting.saved.embed", lambda content, *_: content)
    files = all_files(saved(map_figure()), "pdf", Choices())
    names = {f"tiny-L1-con.{suffix}" for suffix in ("pdf", "csv", "txt", "json")}
    assert set(files) == names and from_text(files["tiny-L1-con.json"].decode()).figure == "attention-map"
    assert "figure --from tiny-L1-con.json" in json.loads(files["tiny-L1-con.json"])["command"]
    archive = zipfile.ZipFile(io.BytesIO(zipped([*files.items(), *files.items()])))
    assert len(archive.namelist()) == len(set(archive.namelist())) == 8


@given(
    some.text(max_size=30), some.none() | some.text(max_size=30) | some.lists(some.integers(0, 9)).map(tuple)
)
def test_any_provenance_comes_back(name, prompt):
    run = RunOf(name, prompt=prompt, tokens=(name,), interventions=({"kind": name},))
    said = Provenance(name, {"p": name}, run, beside=run)
    assert from_text(said.text(name)) == said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "format"),
        (
            '{"format": "mta_viz figure 1", "page": "Surgery"}',
            r"0\.1\.0 saved it, which named a page \(Surgery\)",
        ),
        ('{"format": "mta_viz figure 2"}', "figure"),
        (SAID.text().replace('"screen"', "3").replace('"attention-map"', "3"), "figure, size"),
        (SAID.text().replace('"checkpoint": "tiny"', '"checkpoint": 1'), r"run\.checkpoint"),
        (SAID.text().replace('"checkpoint": "tiny"', '"checkpoint": "\\ud800"'), "no JSON"),
    ],
)
def test_what_is_no_provenance_is_refused(text, says):
    with pytest.raises(MtaVizError, match=says):
        from_text(text)


def chunk_file(content: bytes) -> bytes:
    empty = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IEND\xaeB`\x82"
    return embed(empty, "png", SAID.text()) if content == b"good" else content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG",
        b"\x89PNG\r\n\x1a\n\0\0\0\0IEND",
        chunk_file(b"good")[:-40],
        b"%PDF-1.4 nothing",
        b"<svg></svg>",
        b"\xff\xfe\x00",
    ],
)
def test_a_file_without_one_says_what_was_expected(content, tmp_path):
    (tmp_path / "file.png").write_bytes(content)
    with pytest.raises(MtaVizError, match=r"file\.png is no figure of this app.*Expected a \.json sidecar"):
        read(tmp_path / "file.png")


def test_a_figure_of_the_version_before_is_told_from_a_file_of_no_figure(tmp_path):
    (tmp_path / "old.json").write_text('{"format": "mta_viz figure 1", "page": "Surgery", "figure": "map"}')
    with pytest.raises(MtaVizError, match=r"old\.json: mta_viz 0\.1\.0 saved it.*save the figure again"):
        read(tmp_path / "old.json")


def test_only_regular_files_are_read_and_in_one_pass(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MtaVizError, match="no regular file"):
        read(tmp_path / "pipe")
    (tmp_path / "a.svg").write_text('<svg><metadata id="mta_viz">' * 40_000)  # minutes when each is tried
    with pytest.raises(MtaVizError, match="does not say where it comes from"):
        read(tmp_path / "a.svg")


def test_a_bomb_of_text_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(carriers, "MAX_TEXT", 100)
    (tmp_path / "a.png").write_bytes(chunk_file(b"good"))
    with pytest.raises(MtaVizError, match="too long"):
        read(tmp_path / "a.png")
    monkeypatch.setattr(carriers, "MAX_BYTES", 10)
    with pytest.raises(MtaVizError, match="more than"):
        read(tmp_path / "a.png")


def test_a_column_keeps_letters_that_can_be_read():
    made = sized(map_figure(), "column")
    assert made.mm[0] == pytest.approx(84) and made.smallest_pt == pytest.approx(7, abs=0.05)
    # 317 px at 7 pt letters (9.33 px), drawn with 10 px letters: 340 px wide, plot 220 of 480 px
    assert made.figure.layout.width == round(84 * PX_PER_MM / (7 * 96 / 72) * 10)
    assert made.figure.layout.height == 160 + round(440 * 220 / 480)


def test_labels_without_room_are_left_out_and_counted():
    made = sized(map_figure(), "column")
    # 40 labels on 220 px: 5.5 px each, 12 px wanted: every third stays (14 of 40); down 5.04 px: the same
    assert len(made.figure.layout.xaxis.tickvals) == len(made.figure.layout.yaxis.tickvals) == 14
    assert made.left_out == 52 and made.figure.layout.xaxis.ticktext[1] == "3 token"


def test_panels_are_not_squeezed_and_nothing_is_changed_in_place():
    wide = map_figure(1000).update_layout(xaxis_domain=[0, 0.3])
    made = sized(wide, "column")
    assert made.figure.layout.width == 800 and made.smallest_pt < 6 and wide.layout.width == 1000
    assert sized(wide).figure.layout.width == 1000 and sized(wide).scale == 1


def test_greys_tell_a_sign_and_leave_the_data():
    figure = map_figure()
    grey = in_greys(figure)
    assert [color for _, color in grey.data[0].colorscale] == [
        "rgb(10,10,10)",
        "rgb(150,150,150)",
        "rgb(255,255,255)",
    ]
    assert grey.data[0].z == figure.data[0].z and figure.data[0].colorscale != grey.data[0].colorscale
    mass = in_greys(figure.update_traces(colorscale="dense")).data[0].colorscale
    assert mass[0][1] == "rgb(255,255,255)"
    assert not has_scales(go.Figure(go.Bar(y=[1])))
    assert laid_out(figure, Choices("slide", "greys")).scale > 1

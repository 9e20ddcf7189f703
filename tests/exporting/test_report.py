"""A report holds nothing foreign, its figures can be made again, and what is done is not done twice."""

import shutil
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest

import mta_viz
from mta_viz.analysis.cause.effects import FILES, read_effects, write_effects
from mta_viz.checkpoint.locate import sha256
from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.exporting import report_sections
from mta_viz.exporting.provenance import make_again, read
from mta_viz.exporting.report import Report, report
from mta_viz.model.interventions import AblateHead
from mta_viz.version import HOME
from tests.tiny_models import write_models

HOSTILE = "</script></metadata><script>alert(1)</script>\u202e\x1b[31m & “a” {{ 7 * 7 }} {% raw %}"


class Page(HTMLParser):
    """Elements, attributes, and the text that is shown."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = list[str](), list[tuple[str, str, str]](), ""
        self.feed(content.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data if self.tags[-1:] != ["script"] else ""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def quick_pictures(request, monkeypatch):
    """Pictures are drawn by a browser in the tests that are about them."""
    if "browser" not in request.keywords:
        monkeypatch.setattr("mta_viz.exporting.report.picture", lambda *_: b"<svg></svg>")


@pytest.fixture(scope="module")
def blocks(models) -> Report:
    return report(models / "tiny-blocks", task="blocks", samples=4)


def test_the_page_is_whole_and_asks_nothing_of_the_network(blocks):
    page = Page(blocks.html())
    assert page.tags[:2] == ["html", "head"] and page.tags.count("img") == len(blocks.figures) > 1
    links = [value for _, name, value in page.attributes if name in ("src", "href", "srcset", "action")]
    assert links and all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    assert page.tags.count("script") == 1 and ("script", "type", "application/json") in page.attributes
    named = {value for _, name, value in page.attributes if name == "id"}
    assert {link[1:] for link in links if link.startswith("#")} <= named
    assert not any(name.startswith("on") for _, name, _ in page.attributes)


def test_every_figure_is_made_again_from_what_the_page_says(blocks, models, tmp_path):
    file = blocks.save(tmp_path / "report.html")
    for number, shown in enumerate(blocks.figures, start=1):
        again = make_again(read(file, number), models / "tiny-blocks")
        assert again.caption == shown.caption and again.table.csv() == shown.csv
    with pytest.raises(MtaVizError, match="exists"):
        blocks.save(file)


def test_hostile_text_stays_text(models):
    model = mta_viz.load(models / "tiny-mta")
    made = report(model, HOSTILE, answer="<b>")
    content = Report("<img src=x onerror=1>", made.made, made.sections).html()
    page = Page(content)
    assert page.tags.count("script") == 1 and page.tags.count("img") == len(made.figures)
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert "\u202e" not in page.text and "\x1b" not in page.text and "{{ 7 * 7 }}" in page.text
    assert "<img src=x onerror=1>" in page.text


def test_what_cannot_be_made_says_why_in_a_line(models, tmp_path):
    made = report(models / "no-tokenizer")
    missing = {section.name: section.missing for section in made.sections}
    assert missing["model"] == missing["kernels"] == ()
    assert "no task was named" in missing["task"][0] and "tokenizer" in missing["story"][0]
    assert "has not been measured" in missing["matters"][0]
    assert all("\n" not in line for lines in missing.values() for line in lines)
    shutil.copytree(models / "tiny-plain", tmp_path / "heads")
    measured = read_effects(HOME / "assets" / "blocks-n5-mta" / "effects.json")
    heads = tuple(effect for effect in measured.effects if isinstance(effect.plan[0], AblateHead))
    write_effects(
        tmp_path / "heads" / FILES["identity"],
        replace(measured, sha256=sha256(tmp_path / "heads"), effects=heads),
    )
    for plain in (report(models / "tiny-plain", "abc"), report(tmp_path / "heads", "abc")):
        missing = {section.name: section.missing for section in plain.sections}
        assert all(
            missing[name] == ("this model has no key-query kernels.",)
            for name in ("matters", "together", "kernels")
        )
    plain = report(models / "tiny-plain", "abc")
    assert plain.sections[1].title == "One prompt: what one head does"
    titles = [table.title for table in plain.sections[1].tables] + [shown.title for shown in plain.figures]
    assert titles and not any("kernel" in title for title in titles)
    nan = report(models / "tiny-nan", "abc")
    assert nan.sections[1].missing and nan.sections[4].tables


def test_a_stopped_report_goes_on_and_runs_nothing_twice(models, tmp_path, monkeypatch):
    calls = {"outcome": 0, "kernel_table": 0}
    for name in calls:
        monkeypatch.setattr(report_sections, name, _counted(calls, name, getattr(report_sections, name)))
    settings = {"task": "blocks", "samples": 14}

    def stop(share: float) -> None:
        if calls["outcome"] == 2:
            raise Cancelled("stopped")

    kept: dict[str, str] = {}
    with pytest.raises(Cancelled):
        report(models / "tiny-blocks", **settings, kept=kept, progress=stop)
    assert calls["outcome"] == 2
    made = report(models / "tiny-blocks", **settings, kept=kept)
    assert calls == {"outcome": 3, "kernel_table": 1}
    again = report(models / "tiny-blocks", **settings, kept=kept)
    assert calls == {"outcome": 3, "kernel_table": 1}
    assert again.html() == made.html()


def _counted(calls, name, function):
    def counted(*arguments):
        calls[name] += 1
        return function(*arguments)

    return counted


def test_a_damaged_section_is_made_anew(models):
    kept: dict[str, str] = {}
    report(models / "tiny-blocks", "abcde.fghij#ca", kept=kept)
    damaged = {name: text if name.startswith("table") else text[:50] for name, text in kept.items()}
    report(models / "tiny-blocks", "abcde.fghij#ca", kept=damaged)
    assert damaged == kept


@pytest.mark.browser
def test_pictures_and_the_pdf_are_real(blocks, tmp_path):
    from pypdf import PdfReader

    small = Report(blocks.name, blocks.made, blocks.sections[1:2])
    file = small.save(tmp_path / "report.pdf")
    text = "".join(page.extract_text() for page in PdfReader(file).pages)
    assert "In short" in text and "Methods" in text and small.sections[0].title in text
    assert read(file, 1).figure == small.figures[0].provenance.figure


@pytest.mark.browser
def test_printed_pages_are_numbered_and_keep_heading_picture_and_caption_together(blocks, monkeypatch):
    from pypdf import PdfReader

    size = 'xmlns="http://www.w3.org/2000/svg" width="{}" height="300"'
    monkeypatch.setattr(
        "mta_viz.exporting.report.picture",
        lambda saved, *_: f"<svg {size.format(saved.figure.layout.width or 700)}/>".encode(),
    )
    first = blocks.figures[0]
    monkeypatch.setattr(first.saved.figure.layout, "width", 1200)
    pages = PdfReader(BytesIO(blocks.pdf())).pages
    texts = [" ".join(page.extract_text().split()) for page in pages]
    for at, text in enumerate(texts, start=1):
        assert f"{at} / {len(pages)}" in text
    sides = [(round(float(page.mediabox.width)), round(float(page.mediabox.height))) for page in pages]
    for at, shown in enumerate(blocks.figures, start=1):
        (place,) = (page for page, text in enumerate(texts) if f"Figure {at}." in text)
        assert shown.title in texts[place]
        across, down = sides[place]
        assert (across > down) == (shown is first) and {across, down} <= {594, 595, 596, 841, 842, 843}
    assert "All it was made from" not in " ".join(texts)


def test_without_a_browser_the_page_says_so_and_a_pdf_is_refused(blocks, monkeypatch):
    from choreographer.browsers.chromium import Chromium

    monkeypatch.undo()  # the pictures' own way
    monkeypatch.setattr(Chromium, "find_browser", lambda **_: None)
    page = Page(blocks.html())
    assert page.tags.count("img") == 0 and page.text.count("needs Chrome or Chromium") == len(blocks.figures)
    with pytest.raises(MtaVizError, match="pdf needs Chrome or Chromium"):
        blocks.pdf()
    with pytest.raises(MtaVizError, match=r"none of \.html, \.pdf"):
        blocks.save("report.txt")

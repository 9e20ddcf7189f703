"""Every figure can be exported, says where it comes from, and is made again from that, with equal numbers."""

import io
import json
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from pypdf import PdfReader

from mta_viz.cli import main
from mta_viz.errors import MtaVizError
from mta_viz.exporting.pictures import NO_BROWSER, limits
from mta_viz.exporting.provenance import provenance_of
from mta_viz.exporting.saved import saved, together
from mta_viz.figures import figure
from mta_viz.figures.base import Drawn, Source
from mta_viz.figures.base import drawn as drawn_again
from mta_viz.figures.kernels.paper import every_kernel
from mta_viz.run.tracing import capture, load
from mta_viz.ui.shell.show import OnPage
from mta_viz.ui.shell.widgets import Making
from tests.ui.driver import fine, part_of, said

PROMPT = "The cat <b>$sat$</b> on the mat, and the cat sat again."


def buttons(app) -> list[str]:
    return [button.proto.label for button in app.get("download_button")]


@pytest.fixture
def no_browser(monkeypatch):
    def refuse(*_, **__):
        raise MtaVizError(NO_BROWSER.format(format="svg"))

    monkeypatch.setattr("mta_viz.exporting.saved.picture", refuse)


def test_the_window_offers_every_file_and_says_why_there_is_no_preview(open_app, no_browser):
    app = open_app("tiny-mta", PROMPT, layer=1, head=0, stage="kq")
    app.button(key="save.attention-map").click().run()
    fine(app)
    wanted = ["Save PNG", "Numbers (CSV)", "Sidecar (JSON)", "All of these and the caption (ZIP)"]
    assert buttons(app)[-4:] == wanted
    assert "No preview" in said(app) and "apt-get install -y chromium" in said(app)
    assert "mm at true size" in said(app)
    assert any(code.value.startswith("L1 H0, after key-query conv") for code in app.get("code"))


def drawn(app, name: str) -> Drawn:
    """The figure or table of this name that the page shows."""
    return next(figure for figure in part_of(app, OnPage).values() if figure.spec.name == name)


def remade(figure: Drawn, folder: Path, capsys) -> tuple[str, str]:
    """Numbers and caption of the figure the command makes from its sidecar."""
    sidecar, out = folder / "figure.json", folder / "again.csv"
    sidecar.write_text(provenance_of(figure).text(), encoding="utf-8")
    assert main(["figure", "--from", str(sidecar), "--out", str(out), "--force"]) == 0, (
        capsys.readouterr().err
    )
    return out.read_text("utf-8"), json.loads(capsys.readouterr().out)["caption"]


@pytest.mark.parametrize(
    ("script", "settings", "names"),
    [
        ("app.py", {"tab": "Difference"}, ("attention-map", "stage-strip", "why")),
        ("app.py", {"tab": "Heads", "heads as": "maps"}, ("head-tiles",)),
        ("app.py", {"tab": "Cells"}, ("top-cells",)),
        ("pages/kernels.py", {}, ("kernel-gallery", "kernel-probe")),
    ],
)
def test_what_a_page_shows_is_made_again_with_its_numbers(
    open_app, tmp_path, capsys, script, settings, names
):
    app = open_app(
        "tiny-mta", PROMPT, script, settings | {"numbering": "1"}, layer=1, head=2, stage="kq", query=9, key=4
    )
    fine(app)
    for name in names:
        figure = drawn(app, name)
        assert remade(figure, tmp_path, capsys) == (figure.table.csv(), figure.caption)


def test_a_table_has_no_picture(open_app, tmp_path, capsys):
    app = open_app("tiny-mta", PROMPT, settings={"tab": "Cells"}, layer=1, head=2, stage="kq")
    app.button(key="save.top-cells").click().run()
    fine(app)
    assert buttons(app)[-3:] == ["Numbers (CSV)", "Sidecar (JSON)", "Both (ZIP)"]
    sidecar = tmp_path / "cells.json"
    sidecar.write_text(provenance_of(drawn(app, "top-cells")).text(), encoding="utf-8")
    assert main(["figure", "--from", str(sidecar), "--out", str(tmp_path / "cells.html")]) == 2
    assert "this is a table, of which there is no picture" in capsys.readouterr().err


def texts(figures) -> list[str]:
    """What can be read on each page of the PDF of many figures."""
    content = together(figures, "pdf")
    return [page.extract_text() for page in PdfReader(io.BytesIO(content)).pages]


@pytest.mark.browser
def test_panels_and_labels_are_in_the_pdf(models_folder):
    """All heads, all stages of a head, and every kernel: a page each, its panels named on it."""
    model = load(models_folder / "tiny-mta")
    trace = capture(model, "The cat sat.")
    tiles, strip, *pages = texts(
        [
            saved(figure("head-tiles", trace, stage="kq")),
            saved(figure("stage-strip", trace, layer=1, head=2, stage="kq")),
            *(saved(drawn_again(spec, Source(model))) for spec in every_kernel(model.config)),
        ]
    )
    heads = [f"H{head}" for head in range(model.config.n_heads)]
    assert [word for word in (*heads, "L0", "L3") if word not in tiles] == []
    assert [stage for stage in ("raw", "kq", "mix", "sm", "final") if stage not in strip] == []
    places = [(layer, place) for layer in range(4) for place in ("pre", "post")]
    there = [(layer, place) for layer, place in places if getattr(model.config.kernels(layer), place)]
    assert len(pages) == len(there) + 2  # and the mixing before and after the softmax
    for page in pages[: len(there)]:
        assert {head: page.count(head) for head in heads} == dict.fromkeys(heads, 1)


def test_other_weights_are_refused(tmp_path, capsys, models_folder, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))
    sidecar, model = tmp_path / "map.json", load(models_folder / "tiny-mta")
    origin = provenance_of(figure("attention-map", capture(model, PROMPT), layer=1, head=0, stage="kq"))
    sidecar.write_text(origin.text(), encoding="utf-8")
    other = next(path for path in sorted(models_folder.iterdir()) if path.name != "tiny-mta")
    assert main(["figure", "--from", str(sidecar), str(other)]) == 2
    assert "has other weights than the figure" in capsys.readouterr().err
    unknown = replace(origin, run=replace(origin.run, sha256="0" * 64))
    sidecar.write_text(unknown.text(), encoding="utf-8")
    assert main(["figure", "--from", str(sidecar)]) == 2
    assert "no model named tiny-mta with the sha256 000000000000" in capsys.readouterr().err


def test_a_file_that_says_nothing_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "a.json").write_text("{}")
    assert main(["figure", "--from", str(tmp_path / "a.json")]) == 2
    assert "no figure of this app" in capsys.readouterr().err
    assert main(["figure", "--from", str(tmp_path / "gone.json")]) == 2
    assert "gone.json is missing; check the path" in capsys.readouterr().err


def test_limits_are_those_of_all_scales():
    figure = go.Figure([go.Heatmap(z=[[1]], zmin=-2, zmax=2), go.Heatmap(z=[[1]], coloraxis="coloraxis")])
    figure.add_scatter(x=[1], y=[1], marker={"cmin": 0, "cmax": 5, "color": [1]})
    figure.update_layout(coloraxis={"cmin": 0, "cmax": 1})
    assert limits(figure) == ((-2.0, 2.0), (0.0, 5.0), (0.0, 1.0))


def test_what_a_button_makes_says_why_it_failed_until_it_is_made():
    making = Making()
    for error, words in (
        (OSError(28, "No space left"), "[Errno 28] No space left"),
        (MemoryError(), "MemoryError"),
    ):
        with pytest.raises(type(error)):
            making.make(lambda error=error: (_ for _ in ()).throw(error))
        assert making.ended.is_set() and making.failure == words
    assert making.make(lambda: b"made") == b"made" and making.failure == ""


def test_a_table_of_weights_that_changed_is_refused_in_words(open_app, monkeypatch):
    def changed(*_):
        raise MtaVizError("the weights changed")

    app = open_app("tiny-mta", PROMPT, settings={"tab": "Cells"}, layer=1, head=0, stage="kq")
    monkeypatch.setattr("mta_viz.ui.shell.show.files.saved", changed)
    app.button(key="save.top-cells").click().run()
    assert "the weights changed" in said(app) and not app.exception

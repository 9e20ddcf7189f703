"""Every figure can be exported, says where it comes from, and is made again from that, with equal numbers."""

import io
import json
import time
from pathlib import Path

import plotly.graph_objects as go
import pytest
from pypdf import PdfReader

from mta_viz.cli import main
from mta_viz.errors import MtaVizError
from mta_viz.exporting.paper import every_kernel
from mta_viz.exporting.pictures import NO_BROWSER, limits
from mta_viz.exporting.provenance import Provenance
from mta_viz.exporting.saved import Saved, together
from mta_viz.run.tracing import load
from mta_viz.ui.shell import export, headless
from mta_viz.ui.shell.cache import stores
from tests.ui.driver import fine, said

PROMPT = "The cat <b>$sat$</b> on the mat, and the cat sat again."


def buttons(app) -> list[str]:
    return [button.proto.label for button in app.get("download_button")]


@pytest.fixture
def no_browser(monkeypatch):
    def refuse(*_, **__):
        raise MtaVizError(NO_BROWSER.format(format="svg"))

    monkeypatch.setattr(export, "picture", refuse)


def test_the_window_offers_every_file_and_says_why_there_is_no_preview(open_app, no_browser):
    app = open_app("tiny-mta", PROMPT, layer=1, head=0, stage="kq")
    app.button(key="save.map").click().run()
    fine(app)
    wanted = ["Save PNG", "Numbers (CSV)", "Sidecar (JSON)", "All of these and the caption (ZIP)"]
    assert buttons(app)[-4:] == wanted
    assert "No preview" in said(app) and "apt-get install -y chromium" in said(app)
    assert "mm at true size" in said(app)
    assert any(code.value.startswith("L1 H0, after key-query conv") for code in app.get("code"))


def exported(app, page: str, key: str) -> Provenance:
    """What the sidecar of a figure or table of this page holds; `facts` needs the session it is called in."""
    shown = app.session_state["shown"].get(key)
    trace = app.session_state["kept.page run"]
    view = {name: "".join(value) for name, value in app.query_params.items()}
    return Provenance(
        page,
        key,
        view,
        view["ck"],
        headless.sha256(Path(app.session_state["kept.page model"].path)),
        prompt=None if trace is None else trace.prompt,
        limits=[] if shown is None else limits(shown.figure),
    )


@pytest.mark.parametrize(
    ("page", "script", "keys"),
    [
        ("Attention", "app.py", ("map", "strip", "why", "tiles")),
        ("Kernels", "pages/kernels.py", ("gallery.pre", "gallery.head_pre")),
    ],
)
def test_a_figure_is_made_again_with_its_numbers(open_app, tmp_path, capsys, page, script, keys):
    app = open_app("tiny-mta", PROMPT, page=script, layer=1, head=2, stage="kq", query=9, key=4)
    app.session_state["kept.tab"] = "Heads"
    app.session_state["kept.numbering"] = 1
    app.run()
    fine(app)
    for key in keys:
        sidecar, out = tmp_path / f"{key}.json", tmp_path / f"{key}.csv"
        sidecar.write_text(exported(app, page, key).text(), encoding="utf-8")
        assert main(["figure", "--from", str(sidecar), "--out", str(out)]) == 0
        answer = json.loads(capsys.readouterr().out)
        shown = app.session_state["shown"][key]
        assert out.read_text("utf-8") == shown.csv() and answer["caption"] == shown.caption


def test_a_table_says_where_it_comes_from_and_is_made_again(open_app, tmp_path, capsys):
    app = open_app("tiny-mta", PROMPT, layer=1, head=2, stage="kq", query=9, key=4)
    app.session_state["kept.tab"] = "Cells"
    app.run()
    app.button(key="save.table.cells").click().run()
    fine(app)
    assert buttons(app)[-3:] == ["Numbers (CSV)", "Sidecar (JSON)", "Both (ZIP)"]
    sidecar, out = tmp_path / "cells.json", tmp_path / "cells.csv"
    sidecar.write_text(exported(app, "Attention", "table.cells").text(), encoding="utf-8")
    assert main(["figure", "--from", str(sidecar), "--out", str(out)]) == 0, capsys.readouterr().err
    assert out.read_text("utf-8") == app.session_state["shown tables"]["table.cells"].csv()
    assert main(["figure", "--from", str(sidecar), "--out", str(tmp_path / "cells.html")]) == 2
    assert "this is a table, of which there is no picture" in capsys.readouterr().err


def test_a_measured_figure_is_measured_again(open_app, tmp_path, capsys):
    app = open_app("tiny-mta", "The cat sat.", page="pages/surgery.py", layer=1, head=2)
    app.session_state["kept.surgery tab"] = "Sweep"
    app.run()
    app.button(key="start.sweep").click().run()
    for _ in range(100):
        if "sweep.pre" in app.session_state["shown"]:
            break
        time.sleep(0.1)
        app.run()
    sidecar, out = tmp_path / "sweep.json", tmp_path / "sweep.csv"
    sidecar.write_text(exported(app, "Surgery", "sweep.pre").text(), encoding="utf-8")
    stores.clear()
    assert main(["figure", "--from", str(sidecar), "--out", str(out)]) == 0, capsys.readouterr().err
    assert out.read_text("utf-8") == app.session_state["shown"]["sweep.pre"].csv()


def texts(figures) -> list[str]:
    """What can be read on each page of the PDF of many figures."""
    content = together(figures, "pdf")
    return [page.extract_text() for page in PdfReader(io.BytesIO(content)).pages]


@pytest.mark.browser
def test_panels_and_labels_are_in_the_pdf(open_app):
    """All heads, all stages of a head, and every kernel: a page each, its panels named on it."""
    app = open_app("tiny-mta", "The cat sat.", layer=1, head=2, stage="kq")
    app.session_state["kept.tab"] = "Heads"
    app.run()
    shown, said = app.session_state["shown"], exported(app, "Attention", "tiles")
    panels = [Saved(("a", key), shown[key].figure, key, "", said) for key in ("tiles", "strip")]
    model = load(app.session_state["kept.page model"].path)
    kernels = list(every_kernel(model.state_dict(), model.config, "tiny-mta"))
    panels += [Saved(one.name, one.figure, one.caption, "", said) for one in kernels]
    tiles, strip, *pages = texts(panels)
    heads = [f"H{head}" for head in range(model.config.n_heads)]
    assert [word for word in (*heads, "L0", "L3") if word not in tiles] == []
    assert [stage for stage in ("raw", "kq", "mix", "sm", "final") if stage not in strip] == []
    places = [(layer, place) for layer in range(4) for place in ("pre", "post")]
    there = [(layer, place) for layer, place in places if getattr(model.config.kernels(layer), place)]
    assert len(pages) == len(there) + 2  # and the mixing before and after the softmax
    for page in pages[: len(there)]:
        assert {head: page.count(head) for head in heads} == dict.fromkeys(heads, 1)


def test_other_weights_are_refused(open_app, tmp_path, capsys, models_folder):
    app = open_app("tiny-mta", PROMPT)
    sidecar = tmp_path / "map.json"
    sidecar.write_text(exported(app, "Attention", "map").text(), encoding="utf-8")
    other = next(path for path in sorted(models_folder.iterdir()) if path.name != "tiny-mta")
    assert main(["figure", "--from", str(sidecar), str(other)]) == 2
    assert "has other weights than the figure" in capsys.readouterr().err
    said = exported(app, "Attention", "map")
    sidecar.write_text(Provenance(**{**vars(said), "sha256": "0" * 64}).text(), encoding="utf-8")
    assert main(["figure", "--from", str(sidecar)]) == 2
    assert "no model named tiny-mta with the sha256 000000000000" in capsys.readouterr().err


def test_a_file_that_says_nothing_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "a.json").write_text("{}")
    assert main(["figure", "--from", str(tmp_path / "a.json")]) == 2
    assert "no figure of this app" in capsys.readouterr().err
    assert main(["figure", "--from", str(tmp_path / "gone.json")]) == 2
    assert "gone.json: No such file" in capsys.readouterr().err


def test_limits_are_those_of_all_scales():
    figure = go.Figure([go.Heatmap(z=[[1]], zmin=-2, zmax=2), go.Heatmap(z=[[1]], coloraxis="coloraxis")])
    figure.add_scatter(x=[1], y=[1], marker={"cmin": 0, "cmax": 5, "color": [1]})
    figure.update_layout(coloraxis={"cmin": 0, "cmax": 1})
    assert limits(figure) == [[-2.0, 2.0], [0.0, 5.0], [0.0, 1.0]]

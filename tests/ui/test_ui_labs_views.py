"""Views of the labs that need no run of a task: results from a file, maps of the chosen head cropped."""

import dataclasses
import json

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.labs.sweep import SampleResult, Sweep
from mta_viz.analysis.labs.sweep_file import ModelResults, empty_results, sweep_text
from mta_viz.errors import PromptError
from mta_viz.ui.labs.sweep import named
from mta_viz.ui.shell.state import View
from mta_viz.ui.shell.uploads import decoded
from tests.ui.conftest import ROOT
from tests.ui.test_ui_labs_text import said

ROWS = tuple(
    SampleResult(needles, 256, depth, seed, "right" if seed else "other", 0, None, -0.5)
    for needles in (1, 2)
    for depth in (0, 100)
    for seed in (0, 1)
)
MODELS = (
    ModelResults("one <b>$x$</b>", "a" * 64, "v", ROWS),
    ModelResults("same", "b" * 64, "v", ROWS),
    ModelResults("same", "c" * 64, "w", ROWS[:4]),
)
RESULTS = dataclasses.replace(empty_results(Sweep()), models=MODELS)


@pytest.fixture
def open_lab(models_folder, monkeypatch):
    """`open_lab("tiny-mta", "Needle", {kept values})`."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))

    def start(checkpoint, lab, kept, view=None):
        app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
        app.switch_page("pages/labs.py")
        app.session_state["view"] = View(checkpoint=checkpoint, **view or {})
        for name, value in ({"lab": lab} | kept).items():
            app.session_state[f"kept.{name}"] = value
        return app.run()

    return start


@pytest.mark.parametrize("checkpoint", ["tiny-mta", "tiny-blocks", "no-tokenizer"])
def test_a_results_file_is_drawn_whatever_the_model(open_lab, checkpoint):
    app = open_lab(checkpoint, "Needle", {"sweep file": ("r.json", sweep_text(RESULTS))})
    assert not app.exception
    words = said(app)
    assert "same bbbbbbbb minus one <b>$x$</b> on the same 8 samples: +0.00" in words
    assert "have different tokenizers, so their samples differ" in words
    assert len(app.get("plotly_chart")) == 4
    origin = app.dataframe[-1].value
    assert origin["sha256 of its weights"].tolist() == [letter * 64 for letter in "abc"]
    assert origin["samples"].tolist() == [8, 8, 4] and "Needle: The magic number of" in words
    app.button(key="forget.sweep file").click().run()
    assert not app.get("plotly_chart") and "nothing is run" in said(app)


def test_files_that_are_no_results_are_refused_with_the_reason(open_lab):
    row = json.loads(sweep_text(RESULTS))["models"][0]["samples"][0]
    wide = tuple(dataclasses.replace(ROWS[0], length=length) for length in range(1, 50))
    files = {
        "[1]": "its format is not 'mta_viz needle sweep 1'",
        sweep_text(RESULTS)[:-30]: "holds no needle sweep that this version reads",
        sweep_text(RESULTS).replace('"place": 0', '"place": 7', 1): "place cannot be",
        sweep_text(dataclasses.replace(RESULTS, models=(ModelResults("m", "a", "v", wide),))): "49 lengths",
    }
    assert row["place"] == 0
    for text, words in files.items():
        app = open_lab("tiny-blocks", "Needle", {"sweep file": ("r.json", text)})
        assert not app.exception and words in app.error[0].value.replace("\\", ""), words
    app = open_lab("tiny-blocks", "Needle", {"sweep file": ("r.json", sweep_text(empty_results(Sweep())))})
    assert "holds no sample yet" in said(app)


def test_more_models_than_lines_can_be_chosen_from(open_lab):
    many = tuple(ModelResults(f"m{n}", f"{n}" * 64, "v", ROWS) for n in range(6))
    text = sweep_text(dataclasses.replace(RESULTS, models=many))
    app = open_lab("tiny-blocks", "Needle", {"sweep file": ("r.json", text)})
    assert not app.exception and len(app.get("plotly_chart")) == 5
    app.multiselect(key="widget.opened models").set_value(["m5"]).run()
    assert not app.exception and len(app.get("plotly_chart")) == 2


def test_a_file_that_is_too_large_or_no_text_is_refused():
    assert decoded("f", "\ufeffa\u2028ש".encode(), 1) == "a\u2028ש"
    with pytest.raises(PromptError, match=r"f has 1\.0 MB; at most 1 MB"):
        decoded("f", b" " * (2**20 + 1), 1)
    with pytest.raises(PromptError, match="f is not UTF-8 text"):
        decoded("f", b"\xff\xfea", 1)


def test_names_are_told_apart():
    twins = tuple(ModelResults(name, sha, "v", ()) for name, sha in (("m", "a"), ("m", "a"), ("", "c")))
    assert list(named(dataclasses.replace(RESULTS, models=twins))) == ["m a", "m a (2)", " (3)"]


def test_the_block_lab_shows_the_head_s_maps_around_the_target(open_lab):
    app = open_lab("tiny-blocks", "Blocks", {"block count": 6, "block n": 12})
    before = len(app.get("plotly_chart"))
    app.toggle(key="widget.crop shown").set_value(True).run()
    assert not app.exception and not app.error
    assert len(app.get("plotly_chart")) == before + 3
    assert "x “" in said(app) and "in the last query's row alone" in said(app)


def test_the_needle_lab_shows_question_x_needle_for_any_head(open_lab):
    small = {"needle number": 2, "needle length": 300, "needle seed": 3, "crop shown": True}
    app = open_lab("tiny-mta", "Needle", small)
    app.button(key="needle.run").click().run()
    app.session_state["view"] = dataclasses.replace(app.session_state["view"], layer=1, head=2)
    app.run()
    assert not app.exception and not app.error
    assert "Maps of L1 H2: question x asked needle" in app.toggle(key="widget.crop shown").label
    assert len(app.get("plotly_chart")) == 7  # the finder's map, three maps for each convolution
    app.session_state["view"] = dataclasses.replace(app.session_state["view"], layer=0, head=2)
    app.run()
    assert "L0 H2 has no key-query convolution; layers with one: L1, L3" in said(app)

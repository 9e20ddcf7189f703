"""The part "Paper figures" of the Kernels page: every figure, its caption and files, and what is missing."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.attention.spans import Span
from mta_viz.checkpoint.native import write_kernels
from mta_viz.run.tracing import load
from mta_viz.ui.kernels.figures import NAMES
from tests.tiny_models import write_models

ASSETS = Path(__file__).parents[2] / "assets"
NEEDLE = "Fog. The magic number of Oslo is 12. Rain. The magic number of Oslo is"


def script(folder: str, prompt: str | None, spans, numbering: int):
    from mta_viz.run.tracing import capture, load
    from mta_viz.ui.kernels.figures import draw_figures
    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.page import Page

    if "loaded" not in state.st.session_state:
        model = load(folder)
        state.st.session_state["loaded"] = model, None if prompt is None else capture(model, prompt)
        state.select(checkpoint="tiny")
    state.enter("Kernels")
    model, trace = state.st.session_state["loaded"]
    key = f"{folder}{prompt}{spans}"
    if spans is not None:
        state.put("spans", (key, spans))
    draw_figures(Page(model, trace, key, "Press Run.", stale=False, numbering=numbering, first_token=False))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("figures"))


@pytest.fixture
def draw(models):
    """`draw("head-ratio")`: that figure of the tiny model."""

    def draw(figure: str, name: str = "tiny-mta", prompt=None, spans=None, numbering: int = 0) -> AppTest:
        folder = ASSETS / name if (ASSETS / name).is_dir() else models / name
        arguments = (str(folder), prompt, spans, numbering)
        app = AppTest.from_function(script, args=arguments, default_timeout=120)
        app.session_state["kept.figure"] = figure
        app.run()
        assert not app.exception, app.exception[0].message
        return app

    return draw


def spec(app: AppTest) -> dict:
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def words_to_copy(app: AppTest) -> str:
    """The caption; the address line's link is code too, and comes first."""
    return app.get("code")[-1].value


def told(app: AppTest) -> str:
    return " ".join(one.value for one in [*app.info, *app.caption]).replace("\\", "")


@pytest.mark.parametrize("figure", NAMES)
def test_every_figure_has_its_caption_and_numbers(draw, figure):
    app = draw(figure, prompt=NEEDLE)
    assert len(app.get("plotly_chart")) == 1 and not app.info
    assert spec(app)["layout"]["width"] == 658 and "174 x" in told(app)
    assert "of tiny" in words_to_copy(app)
    assert app.session_state["shown"]["paper"].csv().count("\n") > 1
    app.session_state["kept.figure_width"] = "column"
    app.run()
    assert not app.exception and spec(app)["layout"]["width"] == 317


def test_the_shipped_models_draw_their_kernels(draw):
    assert "2 queries x 9 keys" in words_to_copy(draw("kernels", "blocks-n5-mta"))
    assert "6 queries x 11 keys" in words_to_copy(draw("kernels", "needle-mta"))


def test_a_layer_without_kernels_says_which_have_some(draw):
    app = draw("kernels", numbering=1)
    assert "layer 2:" in words_to_copy(app)  # the first that has: the second
    app.selectbox(key="widget.layer").set_value(0).run()
    assert "L1 has no key-query kernel before the softmax. Layers that have one: 2, 4." in told(app)
    assert not app.get("plotly_chart")


def test_layers_of_the_mixing_can_be_chosen(draw):
    app = draw("head-kernels")
    app.multiselect[0].set_value([1, 2]).run()
    assert not app.exception
    assert [t for t in spec(app)["data"] if t.get("mode") == "text"][-1]["text"] == ["L1", "L2"]


def test_the_map_opens_at_the_question_and_the_asked_needle(draw):
    app = draw("kernel-map", prompt=NEEDLE)
    caption = words_to_copy(app)
    assert "rows: “The magic number of Oslo is”, columns: “The magic number of Oslo is 12.”" in caption
    assert "attends most to “Oslo (asked)”" in told(app)
    app.selectbox(key="widget.head").set_value((app.selectbox(key="widget.head").value + 1) % 4).run()
    assert "Go to" in app.button(key="figure.strongest").label
    app.button(key="figure.strongest").click().run()
    assert not app.exception and words_to_copy(app) == caption


def test_a_prompt_without_spans_says_what_to_do(draw):
    app = draw("kernel-map", prompt="Nothing here is named.")
    assert "no named span" in told(app) and not app.get("plotly_chart")
    assert "Run a needle prompt, 512 tokens" in app.button(key="figure.needles").label
    app = draw("kernel-map", "blocks-n5-mta", prompt="abcde.fghij#fg")
    assert "The needle task does not fit this model" in told(app)


def test_a_named_span_is_enough(draw):
    app = draw("kernel-map", "blocks-n5-mta", prompt="abcde.fghij#fg", spans=(Span("block", "A", 6, 12),))
    assert "in a prompt of" in words_to_copy(app) and len(app.get("plotly_chart")) == 1


def test_keys_after_the_queries_are_refused_in_words(draw):
    spans = (Span("late", "A", 10, 14), Span("early", "B", 1, 4))
    app = draw("kernel-map", "blocks-n5-mta", prompt="abcde.fghij#fg", spans=spans)
    rows = app.selectbox(key="widget.figure_rows")
    rows.set_value(next(one for one in rows.options if "early" in one)).run()
    assert not app.exception and "comes after every query" in told(app)


def test_without_a_run_the_map_asks_for_one(draw):
    app = draw("kernel-map")
    assert "Press Run." in told(app) and app.button(key="figure.needles").label


def test_a_file_of_kernels_alone_says_so_and_offers_no_run(draw, models):
    model = load(models / "tiny-mta")
    write_kernels(models / "kernels-only", model.config, model.state_dict())
    assert len(draw("kernels", "kernels-only").get("plotly_chart")) == 1
    app = draw("kernel-map", "kernels-only")
    assert "Press Run." in told(app) and not [b for b in app.button if b.key == "figure.needles"]


@pytest.mark.parametrize(
    ("figure", "name", "words"),
    [
        ("kernels", "tiny-plain", "no kernels at all: no key-query kernels"),
        ("kernel-map", "tiny-plain", "no kernels at all: no key-query kernels"),
        ("head-kernels", "tiny-plain", "no kernels at all: no head mixing"),
        ("head-diagonal", "tiny-blocks", "this checkpoint has no head mixing"),
        ("head-ratio", "blocks-n5-mta", "this checkpoint has no head mixing"),
    ],
)
def test_what_the_model_lacks_is_said(draw, figure, name, words):
    app = draw(figure, name)
    assert words in told(app) and not app.get("plotly_chart")


def test_nan_taps_are_named(draw):
    app = draw("kernels", "tiny-nan")
    assert "NaN or infinite in head 0 (1 value)" in words_to_copy(app)


def test_the_part_is_on_the_page(open_app):
    app = open_app("tiny-mta", prompt="Nothing is named.", page="pages/kernels.py")
    app.session_state["kept.part"] = "Paper figures"
    app.run()
    assert not app.exception and not app.error and app.get("code")
    app.session_state["kept.figure"] = "kernel-map"
    app.run()
    app.button(key="figure.needles").click().run()
    assert not app.exception and not app.error
    captions = [one.value for one in app.get("code")]  # the sidebar has one too
    assert any("columns: “The magic number of" in one for one in captions)


def test_all_kernels_come_in_one_file_and_each_says_its_view(draw, monkeypatch):
    from mta_viz.exporting.provenance import from_text
    from mta_viz.ui.kernels import model_kernels

    monkeypatch.setattr(model_kernels, "together", lambda figures, *_, **__: _as_bytes(figures))
    app = draw("kernels")
    app.button(key="all_kernels.make").click().run()
    assert not app.exception and "figures: one for each layer" in told(app)
    figures = [from_text(line) for line in KEPT]
    # tiny-mta: kernels before and after the softmax in layers 1 and 3, two kinds of mixing
    assert [one.view["figure"] for one in figures].count("head-kernels") == 2
    assert [(one.view["l"], one.view["figure_where"]) for one in figures[:-2]] == [
        ("1", "pre"), ("3", "pre"), ("1", "post"), ("3", "post"),
    ]  # fmt: skip


KEPT: list[str] = []


def _as_bytes(figures) -> bytes:
    KEPT[:] = [one.provenance.text() for one in figures]
    return b"%PDF"

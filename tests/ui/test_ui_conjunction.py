"""The conjunction lab without a browser: blocks beside a twin, own text, what cannot be tested."""

import time

import pytest
from streamlit.testing.v1 import AppTest
from test_ui_labs import LABS, fine, said

from mta_viz.analysis.labs.conjunction import conjunction
from mta_viz.analysis.labs.four_prompts import block_prompts
from mta_viz.run.tracing import load
from mta_viz.tasks.blocks import BlockTask
from mta_viz.ui.labs.conjunction import ALONE, ITSELF
from mta_viz.ui.shell.models import twin_of
from mta_viz.ui.shell.state import View
from tests.tiny_models import write_models

SMALL = {"lab": "Conjunction", "conjunction blocks": 6, "conjunction samples": 3}
WORDS = {"conjunction text lines": "Alice, rabbit, Clara, weasel\nPeter, donkey, Julia, turtle"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tiny models, with `tiny-blocks` also under the names of a model and its twin."""
    root = write_models(tmp_path_factory.mktemp("conjunction"))
    for name in ("pair-mta", "pair-transformer"):
        (root / name).mkdir()
        for file in (root / "tiny-blocks").iterdir():
            (root / name / file.name).write_bytes(file.read_bytes())
    return root


@pytest.fixture
def open_lab(folder, monkeypatch):
    """`open_lab("tiny-mta", **kept values)`: the conjunction lab."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(folder))

    def start(checkpoint, **kept):
        from tests.ui.conftest import ROOT

        app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
        app.switch_page(LABS)
        app.session_state["view"] = View(checkpoint=checkpoint)
        for name, value in (SMALL | kept).items():
            app.session_state[f"kept.{name}"] = value
        return app.run()

    return start


def run_test(app):
    """The page when the test is through."""
    app.button(key="conjunction.run").click().run()
    for _ in range(300):
        if app.session_state["kept.job.conjunction"][1].wait(0.0):
            return app.run()
        time.sleep(0.1)
    raise AssertionError("the job does not end")


def test_blocks_beside_the_twin_give_the_numbers_of_the_call(open_lab, folder):
    app = open_lab("pair-mta")
    fine(app)
    words = said(app)
    assert "Not run yet" in words and "24 runs of a prompt" in words and "no block holds both" in words
    assert app.selectbox(key="widget.conjunction beside").value == "pair-transformer"
    asked = [text[-2:] for text in app.dataframe[0].value["of the first sample"]]
    assert asked == [a + b for a in (asked[0][0], asked[3][0]) for b in (asked[0][1], asked[3][1])]
    assert len(set(asked)) == 4
    app = run_test(app)
    fine(app)
    words = said(app)
    assert "pair-mta, 3 samples" in words and "pair-transformer, 3 samples" in words
    assert "too narrow" in words and len(app.get("plotly_chart")) == 2
    found = conjunction(load(folder / "pair-mta"), block_prompts(BlockTask(n_blocks=6), 3))
    shown = next(iter(app.session_state["kept.conjunction kept"].values()))
    for name in ("pair-mta", "pair-transformer"):
        for measure, values in found.values.items():
            assert values.allclose(shown[name].values[measure], atol=1e-6, equal_nan=True)
    assert "A adds" in words and "both together beyond that (I)" in words


def test_without_a_twin_the_model_runs_at_identity_or_alone(open_lab):
    app = open_lab("tiny-blocks")
    assert app.selectbox(key="widget.conjunction beside").options == [ITSELF, ALONE]
    app = run_test(app)
    fine(app)
    assert f"{ITSELF}, 3 samples" in said(app)
    app.selectbox(key="widget.conjunction beside").set_value(ALONE).run()
    assert "Not run yet" in said(app) and "12 runs of a prompt" in said(app)
    app = run_test(app)
    fine(app)
    assert len(app.get("plotly_chart")) == 1
    app.button_group(key="widget.conjunction measure").set_value("odds").run()
    fine(app)
    assert "log-odds: logsumexp" in said(app) and "(nats)" in said(app)


def test_a_text_of_ones_own_and_one_line_without_interval(open_lab):
    app = open_lab("tiny-mta", **WORDS)
    fine(app)
    assert app.dataframe[0].value["of the first sample"][1].endswith("Where did Alice see the weasel?")
    app = run_test(app)
    fine(app)
    assert "tiny-mta, 2 samples" in said(app)
    app.text_area(key="widget.conjunction text lines").set_value("Alice, rabbit, Clara, weasel").run()
    app = run_test(app)
    fine(app)
    words = said(app)
    assert "one sample, no interval" in words and "One sample has no interval" in words


def test_a_plain_model_says_that_it_has_no_convolution(open_lab):
    app = open_lab("tiny-plain", **WORDS)
    assert app.selectbox(key="widget.conjunction beside").options == [ALONE]
    app = run_test(app)
    fine(app)
    assert "tiny-plain, 2 samples" in said(app)


def test_what_cannot_be_tested_says_by_how_much(open_lab):
    app = open_lab("tiny-mta", **{"conjunction text lines": "Alice, rabbit, Bo, weasel"})
    assert not app.exception
    assert "with 'Bo' for 'Alice' the prompt has 3 fewer tokens" in said(app)
    app = open_lab("tiny-mta", **{"conjunction text lines": " "})
    assert not app.exception and "there are no words" in said(app)
    app = open_lab("tiny-mta", **WORDS | {"conjunction text": "No slots: <b>*x*</b>"})
    assert not app.exception and "the text lacks {A?} and {B?}" in said(app)
    app = open_lab("tiny-blocks", **{"conjunction blocks": 500})
    assert not app.exception and "use at most 81 blocks" in said(app)
    app = open_lab("no-tokenizer")
    assert not app.exception and "without its tokenizer" in said(app)


def test_numbers_that_are_none_are_said(open_lab):
    app = open_lab("tiny-nan", **WORDS)
    app = run_test(app)
    assert not app.exception, app.exception[0].message
    assert "tiny-nan" in said(app)


def test_twins_are_known_by_name():
    there = ["blocks-n5-mta", "blocks-n5-transformer", "transformer-run"]
    assert twin_of("blocks-n5-mta", there) == "blocks-n5-transformer"
    assert twin_of("blocks-n5-transformer", there) == "blocks-n5-mta"
    assert twin_of("mta-run", there) is None and twin_of("needle-mta", there) is None


def test_a_page_nobody_looks_at_runs_the_test_by_itself(open_lab):
    app = open_lab("tiny-blocks", **{"waits for all": True, "conjunction beside": ALONE})
    fine(app)
    assert "Not run yet" not in said(app) and "conjunction.own" in app.session_state["shown"]

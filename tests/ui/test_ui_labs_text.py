"""The text lab without a browser: last words and whole texts, typed and from files, odd, empty and wrong."""

import math
import time

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.labs.text import text_losses
from mta_viz.run.tracing import load
from mta_viz.ui.labs import text as losses_view
from mta_viz.ui.labs.text import Given
from mta_viz.ui.shell.state import View
from tests.ui.conftest import ROOT

ODD = "A 🙂 <b>$x$</b> שלום **two** words"


def said(app) -> str:
    kinds = ("error", "warning", "info", "success", "caption", "text", "markdown")
    return "\n".join(one.value for kind in kinds for one in app.get(kind)).replace("\\", "")


@pytest.fixture
def open_text(models_folder, monkeypatch):
    """`open_text("tiny-mta", **kept values)`: the text lab."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))

    def start(checkpoint="tiny-mta", **kept):
        app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
        app.switch_page("pages/labs.py")
        app.session_state["view"] = View(checkpoint=checkpoint)
        app.session_state["kept.lab"] = "Text"
        for name, value in kept.items():
            app.session_state[f"kept.{name.replace('_', ' ')}"] = value
        return app.run()

    return start


def measured(app):
    app.button(key="text.run").click().run()
    for _ in range(1200):
        if app.session_state["kept.job.text"][1].wait(0.0):
            return app.run()
        time.sleep(0.05)
    raise AssertionError("the job does not end")


def test_the_last_word_of_a_passage(open_text):
    app = open_text(text_typed=ODD)
    assert not app.exception and "Not measured yet" in said(app)
    words = said(measured(app))
    assert "Last word: “words” ✗ (5 tokens: w o r d s)" in words and "of 258" in words


def test_one_word_and_no_text_say_what_to_do(open_text):
    app = open_text(text_typed="Hello.")
    assert "This passage cannot be asked: it has one word only" in said(measured(app))
    app = open_text(text_typed="  ")
    assert not app.error and "There is no text yet" in said(app)


def test_a_file_of_passages_has_accuracy_and_a_table(open_text):
    lines = "\n".join(f'{{"text": "passage {n} is {word}"}}' for n, word in enumerate(("one", "$two$", "x")))
    app = measured(open_text(**{"text file the last word": ("p.jsonl", lines + '\n{"text": "alone"}')}))
    assert not app.exception and not app.error
    words = said(app)
    assert "0 of 3 last words right: accuracy 0.0%, 95 % interval 0.0% to 56.1%" in words
    assert "Left out: 1. Passage 4: it has one word only" in words
    assert app.dataframe[0].value["last word"].tolist() == ["one", "two", "x"]
    app.button(key="forget.text file the last word").click().run()
    assert app.session_state["kept.text file the last word"] is None


def test_a_file_that_is_wrong_says_where(open_text):
    app = measured(open_text(**{"text file the last word": ("p.jsonl", '{"text": "a b"}\nno')}))
    assert not app.exception and "p.jsonl, line 2: no JSON" in app.error[0].value.replace("\\", "")


def test_a_text_has_the_perplexity_of_the_call(open_text, models_folder):
    app = measured(open_text(text_measure="every token", text_typed=ODD))
    assert not app.exception and not app.error
    found = text_losses(load(models_folder / "tiny-mta"), ODD)
    assert f"exp of {found.loss:.4f} nats, the mean over {found.n} predicted tokens" in said(app)
    assert len(app.get("plotly_chart")) == 1
    table = app.dataframe[0].value
    assert len(table) == len(found.tokens) and math.isnan(table["rank"][0])


def test_a_link_of_a_page_that_showed_a_result_measures_its_text_and_no_other(open_text):
    digest = Given("every token", ODD, None).digest
    asked = {"text shown": digest, "waits for all": True}
    app = open_text(text_measure="every token", text_typed=ODD, **asked)
    assert not app.exception and "Perplexity" in said(app) and len(app.get("plotly_chart")) == 1
    app = open_text(text_measure="every token", text_typed="another text", **asked)
    assert "Not measured yet" in said(app)


def test_a_long_text_is_drawn_in_parts(open_text, monkeypatch):
    monkeypatch.setattr(losses_view, "PART", 1000)
    text = {"text file every token": ("t.txt", "ab cd " * 200)}
    app = measured(open_text(text_measure="every token", **text))
    assert not app.exception and "in 2 windows" in said(app)
    assert app.dataframe[0].value["position"].tolist() == list(range(1000))
    app.number_input(key="widget.text part").set_value(2).run()
    assert app.dataframe[0].value["position"].tolist() == list(range(1000, 1201))


def test_a_model_that_cannot_is_told(open_text):
    assert "without its tokenizer" in open_text("no-tokenizer").error[0].value
    app = measured(open_text("tiny-blocks", text_measure="every token", text_typed="ABC ü"))
    assert not app.exception and "It stopped" in app.error[0].value
    assert "NaN or inf" in measured(open_text("tiny-nan", text_typed=ODD)).error[0].value

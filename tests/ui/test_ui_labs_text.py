"""The text lab without a browser: last words and whole texts, typed and from files, odd, empty and wrong."""

import math

import pytest

from mta_viz.analysis.labs.text import text_losses
from mta_viz.run.tracing import load
from tests.ui.driver import borrowed, charts, fine, run_through, said, view_of

ODD = "A 🙂 <b>$x$</b> שלום **two** words"
EVERY = {"text measure": "every token"}


@pytest.fixture
def open_text(open_app):
    """`open_text("tiny-mta", typed, {settings})`: the text lab."""

    def start(checkpoint="tiny-mta", typed="", settings=None):
        address = {"lab": "Text", "text typed": typed} | (settings or {})
        return open_app(checkpoint, page="pages/labs.py", settings=address)

    return start


def measured(app, words):
    app.button(key="start.text").click().run()
    assert words in said(run_through(app, "text"))
    return app


def test_the_last_word_of_a_passage_or_why_there_is_none(open_text):
    app = open_text(typed=ODD)
    fine(app)
    assert "Not measured yet" in said(app)
    words = said(measured(app, "Last word: "))
    assert "Last word: “words” :orange[**✗**] (5 tokens: w o r d s)" in words and "of 258" in words
    borrowed(app.text_area, "text typed").set_value("Hello.").run()
    measured(app, "This passage cannot be asked: it has one word only")
    borrowed(app.text_area, "text typed").set_value("  ").run()
    assert not app.error and "There is no text yet" in said(app)


def test_a_file_of_passages_has_accuracy_and_a_table_or_says_what_is_wrong(open_text):
    app = open_text()
    lines = "\n".join(f'{{"text": "passage {n} is {word}"}}' for n, word in enumerate(("one", "$two$", "x")))
    app.file_uploader[0].set_value(("p.jsonl", (lines + '\n{"text": "alone"}').encode(), "text/plain")).run()
    words = said(measured(app, "last words right"))
    fine(app)
    assert "0 of 3 last words right: accuracy 0.0%, 95 % interval 0.0% to 70.8%" in words
    assert "Left out: 1. Passage 4: it has one word only" in words
    assert app.dataframe[0].value["last_word"].tolist() == ["one", "two", "x"]
    app.button(key="forget.text file the last word").click().run()
    assert "There is no text yet" in said(app)
    app.file_uploader[0].set_value(("p.jsonl", b'{"text": "a b"}\nno', "text/plain")).run()
    measured(app, "p.jsonl, line 2: no JSON")
    assert not app.exception


def test_a_text_has_the_perplexity_of_the_call_and_a_link_measures_it_again(open_text, models_folder):
    app = measured(open_text(typed=ODD, settings=EVERY), "Perplexity")
    fine(app)
    losses = text_losses(load(models_folder / "tiny-mta"), ODD)
    assert f"exp of {losses.loss:.4f} nats, the mean over {losses.n} predicted tokens" in said(app)
    assert len(charts(app)) == 1
    table = app.dataframe[0].value
    assert len(table) == len(losses.tokens) and math.isnan(table["rank"][0])
    shown = {name: value for name, value in view_of(app.run()).items() if name.startswith("text ")}
    app = run_through(open_text(typed=ODD, settings=shown), "text")
    fine(app)
    assert "Perplexity" in said(app)
    assert "Not measured yet" in said(open_text(typed="another text", settings=shown | {"text typed": "x y"}))


def test_a_long_text_is_drawn_in_parts_and_what_fails_is_told(open_text):
    app = open_text(settings=EVERY)
    app.file_uploader[0].set_value(("t.txt", ("ab cd " * 300).encode(), "text/plain")).run()
    measured(app, "in 3 windows")
    assert not app.exception
    assert app.dataframe[0].value["position"].tolist() == list(range(1500))
    borrowed(app.number_input, "text part").set_value(2).run()
    assert app.dataframe[0].value["position"].tolist() == list(range(1500, 1801))
    measured(open_text("tiny-nan", typed=ODD), "NaN or inf")

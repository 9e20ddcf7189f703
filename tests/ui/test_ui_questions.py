"""The question lab without a browser: a sample with its facts, accuracy beside chance, what does not fit."""

import time

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.labs.questions import NOT_TRAINED, QuestionAnswer, QuestionScore
from mta_viz.ui.labs.questions import score_words
from mta_viz.ui.shell.state import View
from tests.ui.conftest import ROOT

SMALL = {"question task": "qa2", "question distraction": 60, "question n": 2}


def said(app) -> str:
    kinds = ("error", "warning", "info", "success", "caption", "markdown")
    return "\n".join(one.value for kind in kinds for one in app.get(kind)).replace("\\", "")


def fine(app) -> None:
    assert not app.exception, app.exception[0].message
    assert not app.error, app.error[0].value


@pytest.fixture
def open_questions(models_folder, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))

    def start(checkpoint, **kept):
        app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
        app.switch_page("pages/labs.py")
        app.session_state["view"] = View(checkpoint=checkpoint)
        for name, value in ({"lab": "Questions"} | kept).items():
            app.session_state[f"kept.{name}"] = value
        return app.run()

    return start


def test_a_sample_shows_its_facts_by_role_and_who_found_them(open_questions):
    app = open_questions("tiny-mta", **SMALL)
    fine(app)
    assert NOT_TRAINED in said(app) and "No sample yet" in said(app) and not app.dataframe
    app.button(key="question.run").click().run()
    fine(app)
    words = said(app)
    assert "Asked: Where is the" in words and "Gold: " in words and "p(gold)" in words
    assert "60 of them distraction" in words and "Orange: other facts" in words
    assert words.count(":green-background[") == 2 and words.count(":orange-background[") >= 3
    assert words.count(":blue-background[**?**") == 1
    facts = app.selectbox(key="widget.finder part").options
    assert sum(one.endswith("(support)") for one in facts) == 2
    assert len(app.dataframe[0].value) == 16
    app.button(key="finder.attention").click().run()
    fine(app)
    assert app.text_area[0].value.endswith("Answer:")
    assert app.session_state["kept.spans"][1][-1].letter == "?"


def test_accuracy_is_measured_beside_chance_with_every_answer(open_questions):
    app = open_questions("tiny-mta", **SMALL)
    assert "Chance: one of the 6 possible answers at random, 16.7% right" in said(app)
    assert "Not measured yet" in said(app) and "2 samples leave up to ±" in said(app)
    for task in ("qa2", "qa5"):
        app.selectbox(key="widget.question task").set_value(task).run()
        app.button(key="questions.run").click().run()
        for _ in range(300):
            if app.session_state["kept.job.questions"][1].wait(0.1):
                break
        time.sleep(0.1)
        app = app.run()
        fine(app)
        assert "of 2 right: accuracy" in said(app)
    assert app.dataframe[0].value["sample"].tolist() == [0, 1]
    assert app.dataframe[1].value["task"].tolist() == ["QA2", "QA5"]


def test_what_does_not_fit_and_who_cannot_write_is_said(open_questions):
    app = open_questions("tiny-mta", **SMALL | {"question distraction": 1})
    assert not app.exception and "too few for a word" in app.error[0].value
    app = open_questions("tiny-mta", **SMALL | {"needle haystack": ("own.txt", "One sentence. Two.")})
    assert not app.exception and "tokens too short" in app.error[0].value
    app = open_questions("tiny-blocks")
    fine(app)
    assert "Questions are sentences of English" in said(app)


def test_what_results_are_called():
    right = QuestionAnswer(0, "", "pantry", "pantry", ("pantry",), True)
    silent = QuestionAnswer(1, "", "pantry", "who knows", (), False)
    assert score_words(QuestionScore("qa1", 0, 1 / 6, (right,) * 20)) == (
        "20 of 20 right: accuracy 100.0%, 95 % interval 83.9% to 100.0%, above chance (16.7%)."
    )
    assert score_words(QuestionScore("qa1", 0, 1 / 6, (silent,) * 20)) == (
        "0 of 20 right: accuracy 0.0%, 95 % interval 0.0% to 16.1%, below chance (16.7%). "
        "Answers that name none of the possible ones: 20 (a guess names one)."
    )
    assert "not told apart from chance" in score_words(QuestionScore("qa1", 0, 1 / 6, (right, silent)))

"""The question lab without a browser: a sample with its facts, accuracy beside chance, what does not fit."""

from mta_viz.analysis.labs.evaluation import NOT_TRAINED, QuestionAnswer, QuestionScore
from mta_viz.ui.labs.questions import score_words
from mta_viz.ui.shell.pickers import NamedSpans
from tests.ui.driver import borrowed, charts, fine, html, part_of, run_through, run_until, said

SMALL = {"lab": "Questions", "question task": "qa2", "question distraction": "60", "question n": "2"}
LABS = "pages/labs.py"


def test_a_sample_shows_its_facts_and_accuracy_is_measured_beside_chance(open_app):
    app = open_app("tiny-mta", page=LABS, settings=SMALL)
    fine(app)
    assert NOT_TRAINED in said(app)
    run_until(app, " of 2 right: accuracy")
    words = said(run_until(app, "Gold: "))
    fine(app)
    assert "Asked: Where is the" in words and "p(gold)" in words
    assert "60 of them distraction" in words and "green, bold: what is asked for" in words
    text = next(element for element in html(app) if "<bdi>" in element)
    assert text.count("<strong>") == 2 and text.count('class="named"') >= 6 and text.count("<b>?</b>") == 1
    facts = borrowed(app.selectbox, "finder part").options
    assert sum(fact.endswith("(support)") for fact in facts) == 2
    assert len(app.dataframe[-1].value) == 8 and len(charts(app)) == 1
    borrowed(app.selectbox, "question task").set_value("qa5").run()
    run_through(app, "questions")
    assert "of 2 right: accuracy" in said(app)
    fine(app)
    assert app.dataframe[0].value["sample"].tolist() == [0, 1]
    assert [*app.dataframe[0].value][-3:] == ["first_sentence", "named", "right"]
    borrowed(app.number_input, "question distraction").set_value(1).run()
    assert not app.exception and "too few for a word" in app.error[0].value
    borrowed(app.number_input, "question distraction").set_value(60).run()
    app.file_uploader[0].set_value(("own.txt", b"One sentence. Two.", "text/plain")).run()
    assert not app.exception and "tokens too short" in app.error[0].value
    app.button(key="forget.needle haystack").click().run()
    run_until(app, "Gold: ")
    app.button(key="finder.workspace").click().run()
    fine(app)
    assert app.text_area[0].value.endswith("Answer:")
    assert part_of(app, NamedSpans).spans[-1].letter == "?"


def test_what_results_are_called():
    right = QuestionAnswer(0, "", "pantry", "pantry", ("pantry",), True)
    silent = QuestionAnswer(1, "", "pantry", "who knows", (), False)
    assert score_words(QuestionScore("qa1", 0, 1 / 6, (right,) * 20)) == (
        "20 of 20 right: accuracy 100.0%, 95 % interval 83.2% to 100.0%, above chance (16.7%)."
    )
    assert score_words(QuestionScore("qa1", 0, 1 / 6, (silent,) * 20)) == (
        "0 of 20 right: accuracy 0.0%, 95 % interval 0.0% to 16.8%, not told apart from chance (16.7%). "
        "Answers that name none of the possible ones: 20 (a guess names one)."
    )
    assert "not told apart from chance" in score_words(QuestionScore("qa1", 0, 1 / 6, (right, silent)))

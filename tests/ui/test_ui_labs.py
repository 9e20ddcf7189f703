"""The Labs page without a browser: a sample, its heads, sweeps that stop and go on, blocks, wrong models."""

import time

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.labs.blocks import BlocksEvaluation
from mta_viz.analysis.labs.sweep_file import Difference, Misses
from mta_viz.tasks.blocks import BlockTask
from mta_viz.ui.labs import sweep as sweep_job
from mta_viz.ui.labs.blocks import error_words
from mta_viz.ui.labs.sweep_charts import bias_words, difference_words, misses_words
from mta_viz.ui.shell.state import View

LABS = "pages/labs.py"
SMALL = {"needle number": 2, "needle length": 300, "needle depth": 50}
SWEEP = {
    "needle seed": 7,
    "sweep needles": [1],
    "sweep lengths": [256],
    "sweep depths": [0, 100],
    "sweep samples": 2,
}


def said(app) -> str:
    kinds = ("error", "warning", "info", "success", "caption", "text", "markdown")
    return "\n".join(one.value for kind in kinds for one in app.get(kind)).replace("\\", "")


def fine(app) -> None:
    assert not app.exception, app.exception[0].message
    assert not app.error, app.error[0].value


@pytest.fixture
def open_lab(models_folder, monkeypatch):
    """`open_lab("tiny-mta", **kept values)`: the Labs page."""
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models_folder))

    def start(checkpoint, **kept):
        from tests.ui.conftest import ROOT

        app = AppTest.from_file(ROOT / "app.py", default_timeout=120)
        app.switch_page(LABS)
        app.session_state["view"] = View(checkpoint=checkpoint)
        for name, value in kept.items():
            app.session_state[f"kept.{name.replace('_', ' ')}"] = value
        return app.run()

    return start


def done(app):
    """The page when its job is through."""
    for _ in range(300):
        names = ("kept.job.sweep", "kept.job.error", "kept.job.gains")
        jobs = [app.session_state[name] for name in names if name in app.session_state]
        if all(job[1].wait(0.0) for job in jobs):
            return app.run()
        time.sleep(0.1)
    raise AssertionError("the job does not end")


def test_a_sample_is_run_when_asked_and_its_heads_are_ranked(open_lab):
    app = open_lab("tiny-mta", **SMALL)
    fine(app)
    assert "No sample yet" in said(app) and not app.dataframe
    app.button(key="needle.run").click().run()
    fine(app)
    words = said(app)
    assert "Asked: " in words and "Gold: " in words and "p(gold)" in words
    assert "300 tokens." in words and "(asked) at token" in words
    table = app.dataframe[0].value
    assert len(table) == 16 and {"head", "raw", "kq", "mix", "sm", "kq'", "final", "p"} <= set(table.columns)
    first = app.session_state["view"]
    assert table["head"][0] == f"L{first.layer} H{first.head}"
    assert len(app.get("plotly_chart")) == 1


def test_new_sample_is_another_one(open_lab):
    app = open_lab("tiny-mta", **SMALL)
    app.button(key="needle.new").click().run()
    fine(app)
    assert app.session_state["kept.needle seed"] == 1 and app.dataframe


def test_the_chosen_head_opens_in_attention_with_the_needles_named(open_lab):
    long = {"needle length": 700, "needle template": "RULER's", "sweep lengths": [1024]}
    app = open_lab("tiny-mta", **SMALL | long)
    app.button(key="needle.run").click().run()
    app.selectbox(key="widget.finder score").set_value("gain.kq").run()
    fine(app)
    chosen = app.session_state["view"]
    app.button(key="finder.attention").click().run()
    fine(app)
    view = app.session_state["view"]
    assert (view.layer, view.head, view.query) == (chosen.layer, chosen.head, 699)
    assert "special magic number" in app.text_area[0].value
    spans = app.session_state["kept.spans"][1]
    assert [span.letter for span in spans] == ["A", "B", "?"]
    assert app.session_state["kept.span"].endswith("(asked)")


def test_the_finder_is_repeated_and_heads_are_ranked_by_their_lower_end(open_lab):
    app = open_lab("tiny-mta", **SMALL | {"gains n": 3})
    app.button(key="needle.run").click().run()
    assert "One prompt proves little" in said(app)
    app.button(key="gains.run").click().run()
    app = done(app)
    fine(app)
    assert "mean over 3 samples" in said(app)
    table = app.dataframe[1].value
    low = table["low"].astype(float).tolist()
    assert len(table) == 16 and low == sorted(low, reverse=True)


def test_what_does_not_fit_is_said_with_by_how_much(open_lab):
    app = open_lab("tiny-mta", **SMALL | {"needle length": 80})
    app.button(key="needle.run").click().run()
    assert not app.exception
    assert "more than the length 80" in app.error[0].value
    app = open_lab("tiny-mta", **{"needle template": "my own", "needle needle": "No slots."})
    assert "lacks {city}" in app.error[0].value.replace("\\", "")


def test_a_sweep_is_kept_when_stopped_and_goes_on(open_lab, monkeypatch):
    counted = []
    run = sweep_job.run_sweep

    def counting(model, sweep, known, **calls):
        counted.append(len(known))
        return run(model, sweep, known, **calls)

    monkeypatch.setattr(sweep_job, "run_sweep", counting)
    app = open_lab("tiny-mta", **SMALL | SWEEP)
    assert "No sample of this sweep yet" in said(app)
    app.button(key="sweep.run").click().run()
    app = done(app)
    fine(app)
    words = said(app)
    assert "With one needle there is no first and last" in words
    assert len(app.get("plotly_chart")) == 2
    assert len(app.session_state["kept.sweep kept"].names["tiny-mta"].samples) == 4
    app.number_input(key="widget.sweep samples").set_value(3).run()
    assert "4 of 6 samples are there" in said(app)
    app.button(key="sweep.run").click().run()
    app = done(app)
    fine(app)
    assert counted == [0, 4] and "samples are there" not in said(app)


def test_two_models_are_compared_in_pairs(open_lab):
    app = open_lab("tiny-mta", **SMALL | SWEEP)
    app.multiselect(key="widget.sweep models").set_value(["tiny-mta", "tiny-plain"]).run()
    app.button(key="sweep.run").click().run()
    app = done(app)
    fine(app)
    assert "tiny-plain minus tiny-mta on the same 4 samples" in said(app)
    assert len(app.get("plotly_chart")) == 3


def test_a_sweep_without_a_choice_says_what_to_choose(open_lab):
    app = open_lab("tiny-mta", **SMALL | SWEEP | {"sweep depths": []})
    fine(app)
    assert "Choose at least one of each" in said(app)


def test_a_model_of_letters_opens_the_block_lab(open_lab):
    app = open_lab("tiny-blocks", **{"block count": 6, "block n": 12})
    fine(app)
    words = said(app)
    assert "Asked: the block with" in words and "A random block: 83.3% wrong" in words
    assert "Not measured yet" in words and len(app.dataframe[0].value) == 16
    app.button(key="error.run").click().run()
    app = done(app)
    fine(app)
    assert "of 12 wrong: error" in said(app)
    app.button(key="blocks.new").click().run()
    fine(app)
    assert app.session_state["kept.block sample"] == 1


def test_a_model_that_cannot_do_a_task_is_told_which_can(open_lab):
    app = open_lab("tiny-mta", lab="Blocks")
    fine(app)
    assert "needs the character vocabulary of 32" in said(app) and "tab Needle" in said(app)
    app = open_lab("tiny-blocks", lab="Needle")
    fine(app)
    assert "Needles are sentences of English" in said(app) and "tab Blocks" in said(app)
    app = open_lab("no-tokenizer", lab="Needle")
    assert not app.exception and "without its tokenizer" in app.error[0].value


def test_a_block_task_that_makes_no_sense_is_refused(open_lab):
    app = open_lab("tiny-blocks", **{"block letters": 3, "block query": 3})
    assert not app.exception and "n_query is 3" in app.error[0].value.replace("\\", "")


def test_what_results_are_called():
    found = difference_words(Difference(10, -0.5, (-0.7, -0.1)))
    assert found == "−0.50 [−0.70, −0.10] (95 % interval), more than chance"
    assert difference_words(Difference(10, 0.1, (-0.1, 0.3))) == "+0.10 [−0.10, +0.30] (95 % interval)"
    assert misses_words(Misses(0, 0, 0, 0, 0.0, 0.0)) == "No wrong answer."
    assert "2 of them another needle's number: the first one's 1 times (0.3 by chance)" in misses_words(
        Misses(3, 2, 1, 1, 1 / 3, 4 / 3)
    )
    assert "no first and last" in bias_words({})
    found = BlocksEvaluation(20, 0, 5, 0.25, (0.1, 0.5), (1.0,))
    assert error_words(found, BlockTask(n_blocks=4, output="last")) == (
        "5 of 20 wrong: error 25.0%, 95 % interval 10.0% to 50.0%. Right answers of the last letter, each "
        "after the right ones before it: 1.000. A random block: 75.0% wrong."
    )

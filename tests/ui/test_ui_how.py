"""How it works: a walk through its steps on the visitor's cell, and a painted kernel that its address holds."""

import re

import numpy as np
import pytest

from mta_viz import capture, load
from mta_viz.analysis.attention.decomposition import chain, decompose
from mta_viz.analysis.cause.answers import AnswerMeter, answer_after
from mta_viz.analysis.cause.direct_effect import direct_effect
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.ui.how.playground import from_text, to_text
from mta_viz.ui.how.view import PLAY, STEPS
from mta_viz.ui.shell.show import OnPage
from mta_viz.ui.shell.terms import definitions, help_of, term, worded
from tests.ui.driver import charts, fine, part_of, said, view_of

PAGE, PROMPT = "pages/how.py", "Hello, hello"
CELL = {"layer": 1, "head": 2, "query": 12, "key": 4}


def sentence(app) -> str:
    """What the page says in HTML, without its marks and the page's style."""
    bodies = [element.proto.body for element in app.get("html")]
    return re.sub("<[^>]*>", "", next(body for body in bodies[::-1] if "<style" not in body and "<small" not in body))


@pytest.fixture(scope="module")
def trace(models_folder):
    return capture(load(models_folder / "tiny-mta"), PROMPT)


def test_a_walk_through_the_steps_says_the_numbers_of_the_workspace(open_app, trace):
    place = tuple(CELL.values())
    values = chain(trace, *place)
    products = [decompose(trace, 1, stage, 2, 12, 4) for stage in (Stage.KQ, Stage.MIX)]
    effects, meter = direct_effect(trace.model, trace.tokens), AnswerMeter(trace, answer_after(trace))
    layer = effects.layers[1]
    added = layer.values[2, 12 - layer.first_query, 4]
    alone = meter.standing((without(KernelId(1, 2, "pre"), "own-tap"),))
    expected = {
        "score": score_text(values[Stage.RAW]),
        "window": f"66 products sum to {score_text(products[0].value)}",
        "future": "12 “o” reads itself, 15 of 66 do",
        "heads": f"over the 4 heads of the group, each times its weight: {score_text(values[Stage.KQ])}",
        "softmax": f"{score_text(values[Stage.MIX])} becomes {weight_text(values[Stage.SOFTMAX])}",
        "answer": f"adds {score_text(float(added))} to the logit of {effects.explained}",
    }
    app = open_app("tiny-mta", PROMPT, PAGE, **CELL)
    for step in STEPS:
        fine(app)
        assert len(charts(app)) == 1 and expected[step] in sentence(app), (step, sentence(app))
        assert view_of(app).get("step") == (None if step == "score" else step)
        assert f"raw {score_text(values[Stage.RAW])} →" in said(app).replace("▸ ", "")
        if step == "answer":
            assert f"are {score_text(alone.log_odds)} instead of {score_text(meter.standing().log_odds)}" in sentence(app)
        app.button(key="step.path.w").click().run()
    assert view_of(app)["step"] == PLAY and app.button(key="step.path.w").disabled


def test_steps_that_a_layer_lacks_say_so_and_are_passed_over(open_app):
    app = open_app("tiny-plain", PROMPT, PAGE)
    for step in ("score", "softmax", "answer", PLAY):
        fine(app)
        assert view_of(app).get("step", "score") == step
        app.button(key="step.path.w").click().run()
    app.button_group(key="widget.step").set_value("heads").run()
    fine(app)
    assert "L0 mixes no heads" in sentence(app) and not charts(app)
    app.button(key="step.path.q").click().run()
    assert view_of(app).get("step", "score") == "score"


def test_a_cell_of_the_future_is_no_error(open_app):
    app = open_app("tiny-mta", PROMPT, PAGE, layer=1, head=2, query=3, key=9)
    fine(app)
    assert "a cell of the future" in sentence(app)


def test_a_painted_kernel_stands_in_the_address_and_another_one_takes_its_place(open_app):
    taps = np.zeros((3, 5))
    taps[2, 2], taps[1, 1] = 1, -0.5
    settings = {"step": PLAY, "paint size": "3 x 5", "painted": to_text(taps), "paint on": "this head's scores"}
    app = open_app("tiny-mta", PROMPT, PAGE, settings, **CELL)
    fine(app)
    ((spec, drawn),) = part_of(app, OnPage).items()
    assert spec.taps == tuple(map(tuple, taps)) and drawn.result.before.values.shape == (13, 13)
    assert view_of(app)["painted"] == to_text(taps) and "has no room for" in sentence(app)
    app.selectbox(key="widget.paint from").set_value("identity").run()
    fine(app)
    ((spec, _),) = part_of(app, OnPage).items()
    assert np.sum(spec.taps) == 1 and "painted" not in view_of(app)
    assert from_text("1 2;3 x", (2, 2)) is from_text("nan", (1, 1)) is from_text("1;2", (1, 2)) is None


def test_every_term_has_one_sentence_and_marks_are_terms():
    wanted = "query key score kernel tap offset softmax head-mixing log-odds span identity own-tap direct-effect"
    assert {word.replace("head-", "head ").replace("-tap", " tap").replace("-effect", " effect") for word in wanted.split()} <= {*definitions()}
    assert all(text.endswith(".") and text.count(". ") == 0 for text in definitions().values())
    assert "**tap**: One number" in help_of("tap") and 'title="One number' in term("Tap")
    assert worded("A [tap] of {name}.", name="<b>").endswith("</abbr> of <b><bdi>&lt;b&gt;</bdi></b>.")
    with pytest.raises(KeyError):
        help_of("no term")

"""The tabs Attribution and Responsibility: their numbers are the notebook's, and what goes wrong is said."""

import time

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from test_ui_surgery import said

import mta_viz
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import score_text
from mta_viz.ui.surgery import attribution

PROMPT, SURGERY = "Hello, hello", "pages/surgery.py"


@pytest.fixture
def tab(open_app):
    """`tab("Attribution")`: the tab of the Surgery page on a short prompt."""

    def start(name, checkpoint="tiny-mta", prompt=PROMPT):
        app = open_app(checkpoint, prompt, SURGERY, layer=1, head=2, stage="kq")
        return app.segmented_control(key="widget.surgery tab").set_value(name).run()

    return start


def ended(app: AppTest, words: str) -> AppTest:
    for _ in range(100):
        assert not app.exception, app.exception[0].message
        if words in said(app) or words in [one.label for one in app.metric]:
            return app
        app.run()
    raise AssertionError(said(app))


def values(app: AppTest, label: str) -> str:
    return next(one.value for one in app.metric if one.label == label)


def test_the_tokens_values_are_the_notebooks(tab, models_folder):
    app = tab("Attribution")
    assert "After token 12 “o”: the answer" in said(app) and "the plan above plays no part" in said(app)
    app.button(key="start.attribution").click().run()
    ended(app, "Completeness error")
    found = mta_viz.attribute(mta_viz.load(models_folder / "tiny-mta"), PROMPT).found
    assert values(app, "Completeness error") == f"{found.error:.2%}" and found.error <= 0.01
    assert values(app, "Steps") == f"{found.steps:,}"
    assert f"Sum of all: {score_text(float(found.values.sum()))} nats." in said(app)
    table = app.dataframe[-1].value
    largest = found.values.abs().argmax()
    assert table["position"][0] == str(int(largest)) and np.isclose(table["nats"][0], found.values[largest])
    assert "Not complete" not in said(app)


def test_tokens_are_replaced_and_a_token_of_ones_own_can_be_the_baseline(tab):
    app = tab("Attribution")
    app.segmented_control(key="widget.attribution method").set_value("ablation").run()
    app.button(key="start.attribution").click().run()
    assert "becomes token 256" in said(ended(app, "Largest loss"))  # BOS of the byte tokenizer
    app.segmented_control(key="widget.attribution method").set_value("gradients").run()
    app.selectbox(key="widget.attribution baseline").set_value("token").run()
    app.text_input(key="widget.baseline token").set_value("ab").run()
    assert "Baseline token: 'ab' is 2 tokens of this model; type a text of one token" in said(app)
    app.text_input(key="widget.baseline token").set_value("a").run()
    app.button(key="start.attribution").click().run()
    assert "from the embedding of token 97" in said(ended(app, "Completeness error"))


def test_a_token_inside_the_prompt_has_an_answer_of_its_own(tab):
    app = tab("Attribution")
    position = next(one for one in app.number_input if one.label == "After token")
    position.set_value(3).run()
    box = next(one for one in app.text_input if one.label == "Token or answer there")
    box.set_value("lo").run()
    assert "After token 3 “l”: the answer “lo” (as typed)" in said(app)
    app.button(key="start.attribution").click().run()
    ended(app, "Completeness error")
    assert len(app.dataframe[-1].value) == 4  # what lies after it plays no part


def test_cancelled_work_leaves_what_it_had_and_says_that_it_is_not_complete(tab, monkeypatch):
    def endless(*prompt, progress, keep, **named):
        mta_viz.attribute(*prompt, **named | {"max_seconds": 1e-9}, keep=keep)
        while True:
            progress(0.5)
            time.sleep(0.05)

    monkeypatch.setattr(attribution, "attribute", endless)
    app = tab("Attribution", prompt="Of its own")  # results are shared in a process
    app.button(key="start.attribution").click().run()
    for _ in range(100):
        if app.session_state["kept.so far.attribution"][1]:
            break
        time.sleep(0.1)
    app.button(key="cancel.attribution").click().run()
    ended(app, "Cancelled. Below is what it had so far.")
    assert values(app, "Steps") == "3"  # the least that is a result
    assert "Not complete: the error is" in said(app) and app.button(key="start.attribution")


def drawn_button(app: AppTest, label: str):
    """Once the work before it is through."""
    for _ in range(100):
        if found := [one for one in app.button if one.label == label]:
            return found[0]
        app.run()
    raise AssertionError(said(app))


def test_gradients_go_on_from_those_that_are_there(tab, monkeypatch, models_folder):
    """Two presses of too little time, then one of enough: as many steps in all as at once."""
    asked = []

    def short(*prompt, after, max_seconds, **named):
        asked.append(after)
        seconds = 30.0 if len(asked) == 3 else 1e-9
        return mta_viz.attribute(*prompt, **named | {"after": after, "max_seconds": seconds})

    monkeypatch.setattr(attribution, "attribute", short)
    prompt = "In pieces, one after the other"
    app = tab("Attribution", prompt=prompt)
    app.button(key="start.attribution").click().run()
    for _ in range(2):
        go_on = drawn_button(app, "Go on for at most 30 s more")
        assert "Go on with the button above" in said(app)
        go_on.click().run()
    for _ in range(100):
        if "Not complete" not in said(app):
            break
        app.run()
    assert [0 if one is None else one.found.steps for one in asked] == [0, 3, 9]
    found = mta_viz.attribute(mta_viz.load(models_folder / "tiny-mta"), prompt).found
    assert found.reached and "Not complete" not in said(app)
    assert not [one for one in app.button if one.key == "start.attribution"]


def test_every_heads_map_is_measured_and_the_chosen_one_drawn(tab, models_folder):
    app = tab("Attribution")
    start = app.button(key="start.heads")  # kq is in layers 1 and 3
    assert start.label == "Measure the heads of 2 layers, gradients for at most 30 s a layer"
    start.click().run()
    words = said(ended(app, "This head: sum of its cells"))
    model = mta_viz.load(models_folder / "tiny-mta")
    found = mta_viz.attribute_heads(model, PROMPT, Stage.KQ, layers=[1, 3])
    one = found.of(1)
    assert f"sum of its cells {score_text(float(one.sums[2]))} nats" in words
    assert (
        f"of their sizes {one.sizes[2]:.3g}; lost without its map {score_text(float(one.ablated[2]))}"
        in words
    )
    assert f"Completeness error at most {max(each.error for each in found.layers):.2%}" in words
    maps = one.maps[2].values
    assert float(maps.sum()) == pytest.approx(float(one.sums[2]), abs=1e-5)


def test_responsibility_is_the_notebooks_and_checks_its_sum(tab, models_folder):
    app = tab("Responsibility")
    words = said(app)
    found = mta_viz.responsibilities(mta_viz.load(models_folder / "tiny-mta"), PROMPT)
    one = found.layers[1]
    assert values(app, "Logit") == score_text(found.logit)
    assert values(app, "L1, all heads") == score_text(one.total)
    assert values(app, "L1 H2, as source") == score_text(float(one.sources[2]))
    assert "Held fixed, as the run left them: group norm, gate" in words
    assert f"its heads' outputs add {one.total:+.6g} to the logit" in words
    table = app.dataframe[-1].value
    assert np.isclose(np.abs(table["logit"][0]), float(one.values.abs().max())) and len(table) == 20
    app.text_input[0].set_value("xyz").run()
    second = app.segmented_control(key="widget.answer token").set_value(1).run()
    of_y = mta_viz.responsibilities(mta_viz.load(models_folder / "tiny-mta"), PROMPT, answer="xyz", place=1)
    assert values(second, "Logit") == score_text(of_y.logit)


@pytest.mark.parametrize("name", ["Attribution", "Responsibility"])
def test_a_broken_model_and_an_empty_answer_are_said_in_words(tab, name):
    assert "the logits after position 12 hold NaN or inf" in said(tab(name, checkpoint="tiny-nan"))
    app = tab(name)
    app.text_input[0].set_value("x" * 40).run()
    assert "has 40 tokens; expected 1 to 32" in said(app)


def test_a_plain_model_without_kernels_is_attributed_as_well(tab):
    app = tab("Responsibility", checkpoint="tiny-plain")
    assert "this layer has no convolution after the softmax" in said(app)

"""Edits in the workspace by its address: the plan, taps, sweeps, patches, what an answer rests on."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import mta_viz
from mta_viz.figures.cause import attribution
from mta_viz.model.interventions import (
    AblateHead,
    KernelToIdentity,
    MirrorKernel,
    MixingToIdentity,
    PatchHead,
    ReplaceKernel,
    ScaleTowardsIdentity,
)
from mta_viz.model.plans import Listed, to_address
from mta_viz.model.stages import Stage
from mta_viz.plots.theme import score_text
from mta_viz.ui.shell.plan import Plans
from mta_viz.ui.shell.show import OnPage
from tests.ui.driver import borrowed, fine, part_of, run_until, view_of
from tests.ui.driver import said as messages

PROMPT = "Hello, hello"
WORKSPACE, KERNELS = "pages/workspace.py", "pages/kernels.py"
PLAN = (Listed(KernelToIdentity(1, 2, "pre")), Listed(ScaleTowardsIdentity(1, 0, "post", 0.5), on=False))


def said(app: AppTest) -> str:
    """Also what is well, and what the plan's switches are about."""
    words = [*(element.value for element in app.success), *(toggle.label for toggle in app.toggle)]
    words += [caption.proto.help for caption in app.caption]  # behind their signs
    return "\n".join([messages(app), *words]).replace("\\", "")


def listed(app: AppTest) -> tuple[Listed, ...]:
    """The list of the page's checkpoint."""
    (history,) = part_of(app, Plans).of.values() or (None,)
    return () if history is None else history.now


def until(app: AppTest, holds: Callable[[], bool], seconds: float = 60.0) -> AppTest:
    """Rerun the page, as its fragments do in a browser."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, said(app)
        time.sleep(0.3)
        app.run()
    return app


def metric(app: AppTest, label: str) -> str:
    return next(number.value for number in app.metric if number.label == label)


def inspect(app: AppTest, tab: str) -> AppTest:
    """The inspector at another tab."""
    return borrowed(app.segmented_control, "inspector").set_value(tab).run()


def odds(app: AppTest) -> str:
    """What the plan does to the answer's log-odds, by the inspector; it stays at Edit."""
    numbers = inspect(app, "Effect").metric
    value = numbers[0].value if numbers else "nothing"
    inspect(app, "Edit")
    return value


def has(app: AppTest, key: str) -> bool:
    return any(button.key == key for button in app.button)


@pytest.fixture
def surgery(open_app):
    """`surgery(PLAN, {"surgery tab": "Sweep"})`: the page on a short prompt with a plan."""

    def start(plan=(), settings=None, *, page=WORKSPACE, checkpoint="tiny-mta", prompt=PROMPT, stage="kq"):
        view = {"inspector": "Edit", "tab": "Rests on" if "surgery tab" in (settings or {}) else "Taps"}
        settings = view | (settings or {}) | ({"e": to_address(plan)} if plan else {})
        app = open_app(checkpoint, prompt, page, settings, layer=1, head=2, stage=stage)
        assert not app.exception, app.exception[0].message
        assert "The page failed" not in said(app)
        return app

    return start


def test_a_plan_is_listed_switched_weakened_and_undone(surgery):
    app = inspect(surgery(), "Effect")
    assert "Nothing is edited: output identical to the original ✓" in said(app)
    assert odds(app) == "nothing"
    borrowed(app.segmented_control, "switch.L1 H2 pre").set_value("identity").run()
    assert listed(app) == (Listed(KernelToIdentity(1, 2, "pre")),) and view_of(app)["e"] == "i.1.2.pre"
    assert odds(app) not in ("+0 nats", "nothing")
    app = surgery(PLAN)
    assert listed(app) == PLAN and view_of(app)["e"] == to_address(PLAN)
    assert "L1 H2 pre -> identity" in said(app) and "L1 H0 post -> 50% towards identity" in said(app)
    app.slider[0].set_value(25).run()
    weaker = Listed(ScaleTowardsIdentity(1, 0, "post", 0.25), on=False)
    assert listed(app) == (PLAN[0], weaker)
    next(toggle for toggle in app.toggle if toggle.key.startswith("plan.list.0")).set_value(False).run()
    assert listed(app) == (Listed(PLAN[0].intervention, on=False), weaker)
    assert "Plan:" not in said(app) and odds(app) == "nothing"
    app.button(key="icon.plan.x.0").click().run()
    app.button(key="icon.plan.undo").click().run()
    app.button(key="icon.plan.undo").click().run()
    assert listed(app) == (PLAN[0], weaker)
    app.button(key="icon.plan.redo").click().run()
    assert listed(app)[0].on is False
    app.button(key="plan.clear").click().run()
    assert listed(app) == () and "e" not in view_of(app)


def test_actions_are_added_and_taps_reset(surgery):
    app = surgery()
    (actions,) = (box for box in app.selectbox if box.label.startswith("Add"))
    kernels, mixing = 2 * (6 + 3), 2 * 3  # each place: six shapes and three other heads; two rows, the layer
    assert len(actions.options) == kernels + mixing + 3  # and head, norm, gate
    row = next(name for name in actions.options if "head mixing before the softmax: this head's row" in name)
    actions.set_value(row).run()
    app.button(key="plan.add").click().run()
    assert listed(app) == (Listed(MixingToIdentity(1, "head_pre", 2)),)
    app.button(key="icon.plan.undo").click().run()
    for words in (
        "kernel before the softmax: mirrored",
        "kernel before the softmax: to its nearest template",
    ):
        (actions,) = (box for box in app.selectbox if box.label.startswith("Add"))
        actions.set_value(next(name for name in actions.options if name.startswith(words))).run()
        app.button(key="plan.add").click().run()
    mirrored, rounded = (item.intervention for item in listed(app))
    assert mirrored == MirrorKernel(1, 2, "pre") and isinstance(rounded, ReplaceKernel)
    app.button(key="taps.reset").click().run()
    assert listed(app) == ()


def test_what_cannot_be_done_is_said_in_its_place(surgery):
    words = said(surgery(settings={"e": "h.2"}))
    assert "The link's plan was left out. The plan in the address cannot be used" in words
    app = surgery((Listed(KernelToIdentity(0, 0, "pre")), PLAN[0]))
    assert "Not done: layer 0 has no pre kernel; layers with one: 1, 3." in said(app)
    assert odds(app) not in ("+0 nats", "nothing")
    app = surgery((Listed(PatchHead(1, 2, "z", "abc")),))
    assert "has 4 tokens, this one 13" in said(app)
    assert "L1 H2 z -> as in “abc”" in said(app)  # and can be taken out
    for settings in ({}, {"surgery tab": "Attribution"}, {"surgery tab": "Responsibility"}):
        broken = surgery(settings=settings, checkpoint="tiny-nan")
        assert "the logits after position 12 hold NaN or inf" in said(broken)
        assert has(broken, "taps.reset") == (not settings)
    plain = surgery(checkpoint="tiny-plain", stage="final")
    assert "This layer has no key-query kernel." in said(plain)
    plain.button(key="plan.add").click().run()
    assert listed(plain) == (Listed(AblateHead(1, 2)),)
    borrowed(plain.segmented_control, "tab").set_value("Rests on").run()
    borrowed(plain.segmented_control, "surgery tab").set_value("Minimal set").run()
    assert "This model has no key-query kernels, so no answer of it needs one." in said(plain)


def test_other_pages_say_what_they_show(surgery):
    app = surgery(PLAN, {"inspector": "Why"})
    assert any("1 of 2 active" in part.label for part in app.expander)
    borrowed(app.segmented_control, "plan shown").set_value("original model").run()
    assert {figure.source.model.plan for figure in part_of(app, OnPage).values()} == {()}
    app.button(key="icon.strip.clear").click().run()
    assert "Plan:" not in said(app) and listed(app) == ()
    assert app.button(key="why.test").label == "Test: set this kernel to identity"
    app.button(key="why.test").click().run()
    assert listed(app) == (Listed(KernelToIdentity(1, 2, "pre")),)
    assert "The Workspace shows the edited one." in said(surgery(PLAN, page=KERNELS))


def test_the_sweep_and_the_greedy_set_are_measured_beside_the_page(surgery):
    app = surgery(PLAN[:1], settings={"surgery tab": "Sweep"})
    assert "python -m mta_viz effects" in said(app)
    app.button(key="start.sweep").click().run()
    until(app, lambda: not has(app, "start.sweep") and not has(app, "stop.sweep"))
    shown = part_of(app, OnPage)  # the maps are of the plan, the sweep is of the original model
    plans = {figure.spec.name: figure.source.model.plan for figure in shown.values()}
    assert plans["sweep"] == () and plans["attention-map"] == (listed(app)[0].intervention,)
    tab = borrowed(app.segmented_control, "surgery tab")
    assert tab.options[5] == "Greedy set"
    tab.set_value("Minimal set").run()
    assert view_of(app)["surgery tab"] == "Minimal set"  # as links have it
    assert "probability falls to a tenth" in said(app) and "There may be smaller sets" in said(app)
    app.button(key="start.needed").click().run()
    run_until(app, "All kernels at")
    fine(app)


def test_what_kernels_are_worth_is_measured_on_the_prompt_and_says_before_how_long(surgery):
    app = surgery(settings={"surgery tab": "Worth", "worth pairs": "2", "taken out": "zero"})
    fine(app)
    assert "The Shapley values of this checkpoint's kernels have not been measured." in said(app)
    passes = (2 * 16 + 2 + 5 * 29) + 2 * 16 * 2  # each alone, the sets, two orders and their reverses
    assert f"{passes} forward passes of a batch of one sample, about" in said(app)
    assert "or after 2 pairs of orders" in said(app)
    app.button(key="start.worth").click().run()
    until(app, lambda: not has(app, "start.worth") and "Sets, found greedily" in said(app))
    fine(app)
    shown = {figure.spec.name: figure.spec for figure in part_of(app, OnPage).values()}
    assert shown["shapley"].pairs == 2 and shown["necessity-sufficiency"].edit == "zero"
    assert "There may be smaller sets that do as much." in said(app) and "up to 20 other sets" in said(app)
    view = view_of(app)
    assert (view["surgery tab"], view["worth pairs"], view["taken out"]) == ("Worth", "2", "zero")
    plain = surgery(settings={"surgery tab": "Worth"}, checkpoint="tiny-plain", stage="final")
    assert "This model has no kernels: there is no effect to share out." in said(plain)


def test_paths_of_the_chosen_kernel_are_followed(surgery):
    app = surgery(settings={"surgery tab": "Paths", "paths place": "post", "paths into": "scores"})
    fine(app)
    assert f"{2 * (4 + 4 + 4 + 4 + 1) + 2} edges, a forward pass each" in said(app)
    assert app.button(key="start.paths").label == "Follow L1 H2 post"
    app.button(key="start.paths").click().run()
    until(app, lambda: not has(app, "start.paths") and "edges into raw scores" in said(app))
    fine(app)
    spec = next(figure.spec for figure in part_of(app, OnPage).values() if figure.spec.name == "kernel-paths")
    assert (spec.layer, spec.head, spec.where, spec.into) == (1, 2, "post", "scores")
    assert view_of(app)["paths place"] == "post" and view_of(app)["paths into"] == "scores"
    assert list(app.dataframe[-1].value.columns) == ["reader", "reads it as", "nats"]


def test_patching_asks_for_as_many_tokens_and_then_patches(surgery, open_app):
    app = surgery(settings={"surgery tab": "Patch"})
    assert "This is the prompt itself" in said(app)
    borrowed(app.text_area, "other prompt").set_value("Hallo").run()
    assert "has 6 tokens, this one 13" in said(app)
    borrowed(app.text_area, "other prompt").set_value("Hallo, hello").run()
    app.button(key="start.patched").click().run()
    until(app, lambda: not has(app, "start.patched") and "output patched alone" in said(app))
    app.button(key="patch.add").click().run()
    assert to_address(listed(app)).startswith("p.1.2.z.t")
    assert odds(app) not in ("+0 nats", "nothing")
    ids = open_app(
        "no-tokenizer",
        (256, 72, 105),
        WORKSPACE,
        {"tab": "Rests on", "surgery tab": "Patch"},
        layer=1,
        head=2,
        stage="kq",
    )
    borrowed(ids.text_area, "other prompt").set_value("256, 72, 106").run()
    ids.button(key="patch.add").click().run()
    assert to_address(listed(ids)) == "p.1.2.z.i256-72-106"
    borrowed(inspect(ids, "Effect").text_input, "answer").set_value("x").run()
    assert "an answer in words needs the model's tokenizer" in said(ids)


def test_gradients_are_stopped_with_what_they_had_and_go_on_from_there(surgery, monkeypatch):
    """One press that is stopped, one of too little time, one of enough."""
    asked, found, attribute = [], [], mta_viz.attribute

    def in_parts(*prompt, after, keep, max_seconds, progress, **named):
        asked.append(after)
        seconds = 30.0 if len(asked) == 3 else 1e-9
        result = attribute(*prompt, **named | {"after": after, "max_seconds": seconds, "keep": keep})
        found.append(result)
        while len(asked) == 1:
            progress(0.5)
            time.sleep(0.05)
        return result

    monkeypatch.setattr(attribution.asking, "attribute", in_parts)
    prompt = "In pieces, one after the other"
    app = surgery(settings={"surgery tab": "Attribution"}, prompt=prompt)
    app.button(key="start.attribution").click().run()
    until(app, lambda: found)
    app.button(key="stop.attribution").click().run()
    run_until(app, "Stopped. This is what it had so far.")
    assert metric(app, "Steps") == "3"  # the least that is a result
    assert "Not complete: the error is" in said(app)
    app.button(key="start.attribution").click().run()
    until(
        app,
        lambda: (
            [button.label for button in app.button if button.key == "start.attribution"]
            == ["Go on for at most 30 s more"]
            and "Go on with the button above" in said(app)
            and len(asked) == 2
        ),
    )
    app.button(key="start.attribution").click().run()
    until(
        app, lambda: len(asked) == 3 and "Not complete" not in said(app) and not has(app, "start.attribution")
    )
    assert [0 if after is None else after.found.steps for after in asked] == [0, 3, 9]
    assert float(metric(app, "Completeness error").rstrip("%")) <= 1 and int(metric(app, "Steps")) > 9


def test_what_an_answer_rests_on_is_the_notebooks(surgery, models_folder):
    model = mta_viz.load(models_folder / "tiny-mta")
    app = surgery(settings={"surgery tab": "Attribution"})
    assert 'After token 12 "o": the answer' in said(app) and "the plan above plays no part" in said(app)
    borrowed(app.number_input, "asked position").set_value(3).run()
    borrowed(app.text_input, "asked answer").set_value("lo").run()
    assert 'After token 3 "l": the answer “lo” (as typed)' in said(app)
    app.button(key="start.attribution").click().run()
    until(app, lambda: any(number.label == "Completeness error" for number in app.metric))
    values = mta_viz.attribute(model, PROMPT, answer="lo", position=3, baseline="bos").found
    assert (
        metric(app, "Completeness error") == f"{values.error:.2%}"
        and metric(app, "Steps") == f"{values.steps:,}"
    )
    assert f"Sum of all: {score_text(float(values.values.sum()))} nats." in said(app)
    table = app.dataframe[-1].value
    assert len(table) == 4 and np.isclose(table["nats"][0], values.values[values.values.abs().argmax()])
    heads = app.button(key="start.heads")  # kq is in layers 1 and 3
    assert heads.label == "Measure the heads of 2 layers, gradients for at most 30 s a layer"
    heads.click().run()
    run_until(app, "This head: sum of its cells")
    layer = mta_viz.attribute_heads(model, PROMPT, Stage.KQ, answer="lo", position=3, layers=[1]).of(1)
    assert f"sum of its cells {score_text(float(layer.sums[2]))} nats" in said(app)
    assert f"lost without its map {score_text(float(layer.ablated[2]))} nats" in said(app)
    borrowed(app.segmented_control, "attribution method").set_value("ablation").run()
    borrowed(app.selectbox, "attribution replacement").set_value("token").run()
    borrowed(app.text_input, "baseline token").set_value("ab").run()
    assert "Token: 'ab' is 2 tokens of this model; type a text of one token" in said(app)
    borrowed(app.text_input, "baseline token").set_value("a").run()
    app.button(key="start.attribution").click().run()
    until(app, lambda: any(number.label == "Largest loss" for number in app.metric))
    assert "becomes token 97" in said(app)
    borrowed(app.segmented_control, "surgery tab").set_value("Responsibility").run()
    exact = mta_viz.direct_effect(model, PROMPT, answer="lo", position=3)
    assert metric(app, "Logit") == score_text(exact.logit)
    assert metric(app, "L1 H2, as source") == score_text(float(exact.layers[1].sources[2]))
    assert f"its heads' outputs add {exact.layers[1].total:+.6g} to the logit" in said(app)
    assert "What each softmax cell of this head adds directly" in said(app)
    borrowed(app.segmented_control, "direct effect of").set_value("largest").run()
    assert len(app.dataframe[-1].value) == 20
    borrowed(app.segmented_control, "answer token").set_value(1).run()
    second = mta_viz.direct_effect(model, PROMPT, answer="lo", position=3, place=1)
    assert metric(app, "Logit") == score_text(second.logit)
    borrowed(app.text_input, "asked answer").set_value("x" * 40).run()
    assert "has 40 tokens; expected 1 to 32" in said(app)

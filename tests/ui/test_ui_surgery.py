"""The Surgery page, the plan's list with undo and its place in the address, and what other pages say."""

import re

import pytest
import torch
from streamlit.testing.v1 import AppTest

from mta_viz.model.interventions import (
    AblateHead,
    BypassGate,
    BypassGroupNorm,
    KernelToIdentity,
    PatchHead,
    ReplaceKernel,
    ScaleTowardsIdentity,
)
from mta_viz.model.plans import Listed, to_address
from mta_viz.ui.attention.view import TABS
from mta_viz.ui.shell.plan import History
from tests.tiny_models import FULL, config, random_weights
from tests.ui.conftest import ROOT

SURGERY, ATTENTION, KERNELS = (f"pages/{name}.py" for name in ("surgery", "attention", "kernels"))
PLAN = (Listed(KernelToIdentity(1, 2, "pre")), Listed(ScaleTowardsIdentity(1, 0, "post", 0.5), on=False))


def said(app: AppTest) -> str:
    kinds = ("info", "caption", "text", "markdown", "warning", "success", "error")
    words = [element.value for kind in kinds for element in app.get(kind)]
    return "\n".join([*words, *(one.label for one in app.toggle)]).replace("\\", "")


def cell(app: AppTest, stage: str) -> str:
    """The selected cell's value at a stage, as Attention writes it."""
    return re.search(rf"^. {stage} +(\S+) score$", said(app), re.MULTILINE)[1]


def now(app: AppTest) -> tuple[Listed, ...]:
    """The list of the page's checkpoint."""
    return app.session_state["kept.plans"]["tiny-mta"].now


@pytest.fixture
def surgery(open_app):
    """`surgery(PLAN)`: the page on a short prompt with a plan."""

    def start(plan=(), page=SURGERY, checkpoint="tiny-mta", prompt="Hello, hello", **view):
        app = open_app(checkpoint, prompt, page, **({"layer": 1, "head": 2, "stage": "kq"} | view))
        if plan:
            app.session_state["kept.plans"] = {checkpoint: History(plan)}
            app.run()
        assert not app.exception, app.exception[0].message
        assert "The page failed" not in said(app)
        return app

    return start


def test_without_a_plan_the_output_is_the_originals_and_says_so(surgery):
    app = surgery()
    words = said(app)
    assert "Empty plan: output identical to the original ✓" in words
    assert "Nothing is edited. Add an intervention, or start from the strongest kernel: L1 H2 pre." in words
    assert "No cell of this map changed." in words
    original, edited, change = app.metric
    assert original.value == edited.value and change.value == "+0 nats"
    app.button(key="plan.start").click().run()
    assert now(app) == (Listed(KernelToIdentity(1, 2, "pre")),)
    assert "Empty plan" not in said(app) and app.metric[2].value != "+0 nats"
    assert "No cell of this map changed." not in said(app)


def test_the_list_is_switched_weakened_removed_and_undone(surgery):
    app = surgery(PLAN)
    assert "L1 H2 pre -> identity" in said(app) and "L1 H0 post -> 50% towards identity" in said(app)
    app.slider[0].set_value(25).run()
    weaker = Listed(ScaleTowardsIdentity(1, 0, "post", 0.25), on=False)
    assert now(app) == (PLAN[0], weaker)
    next(one for one in app.toggle if one.key.startswith("plan.list.0")).set_value(False).run()
    assert now(app) == (Listed(PLAN[0].intervention, on=False), weaker)
    assert "Empty plan" in said(app)  # nothing acts
    app.button(key="plan.x.0").click().run()
    assert now(app) == (weaker,)
    app.button(key="plan.undo").click().run()
    app.button(key="plan.undo").click().run()
    assert now(app) == (PLAN[0], weaker)
    app.button(key="plan.redo").click().run()
    assert now(app)[0].on is False
    app.button(key="plan.clear").click().run()
    assert now(app) == ()


def test_every_action_for_a_head_can_be_added(surgery):
    app = surgery()
    (actions,) = (box for box in app.selectbox if box.label.startswith("Add"))
    kernels, mixing = 2 * (5 + 3), 2 * 2  # each place: five shapes and three other heads; a row and the layer
    assert len(actions.options) == kernels + mixing + 3  # and head, norm, gate
    chosen = next(one for one in actions.options if "before the softmax: mirrored" in one)
    actions.set_value(chosen).run()
    app.button(key="plan.add").click().run()
    assert to_address(now(app)) == "m.1.2.pre"


def test_the_taps_are_mirrored_rounded_and_reset(surgery):
    app = surgery()
    app.button(key="taps.mirror").click().run()
    (one,) = now(app)
    learned = random_weights(config(FULL, 258))["blocks.1.attn.kernel_pre"][2]
    assert isinstance(one.intervention, ReplaceKernel)
    assert torch.equal(torch.tensor(one.intervention.taps), learned.flip(-1))
    app.button(key="taps.mirror").click().run()
    assert app.metric[2].value == "+0 nats"  # twice mirrored is as learned
    app.button(key="taps.round").click().run()
    assert len(now(app)) == 1
    app.button(key="taps.reset").click().run()
    assert now(app) == ()


def test_an_address_brings_its_plan_and_keeps_it(open_app):
    open_app("tiny-mta", "Hello", SURGERY)  # for the models' folder
    fresh = AppTest.from_file(ROOT / "app.py", default_timeout=120).switch_page(SURGERY)
    for name, value in {"ck": "tiny-mta", "p": "Hello", "e": "h.2.1~I.1.0.pre"}.items():
        fresh.query_params[name] = value
    fresh.run()
    assert now(fresh) == (Listed(AblateHead(2, 1)), Listed(KernelToIdentity(1, 0, "pre"), on=False))
    assert fresh.query_params["e"] == "h.2.1~I.1.0.pre"
    fresh.button(key="plan.clear").click().run()
    assert "e" not in fresh.query_params


def test_an_address_with_a_broken_plan_says_so(open_app):
    open_app("tiny-mta", "Hello", SURGERY)
    fresh = AppTest.from_file(ROOT / "app.py", default_timeout=120).switch_page(SURGERY)
    for name, value in {"ck": "tiny-mta", "p": "Hello", "e": "h.2"}.items():
        fresh.query_params[name] = value
    assert "The link's plan was left out. The plan in the address cannot be used" in said(fresh.run())


def test_a_plan_the_model_cannot_follow_is_said_and_not_done(surgery):
    app = surgery((Listed(KernelToIdentity(0, 0, "pre")), PLAN[0]))
    assert "Not done: layer 0 has no pre kernel; layers with one: 1, 3." in said(app)
    assert app.metric[2].value != "+0 nats"


def test_attention_shows_the_edited_run_and_the_other_pages_say_what_they_show(surgery):
    app = surgery(PLAN, ATTENTION)
    assert "Showing an edited model: L1 H2 pre -> identity" in said(app)
    assert any("1 of 2 active" in one.label for one in app.expander)
    assert cell(app, "kq") == cell(app, "raw")  # what an identity kernel leaves
    app.segmented_control(key="widget.plan shown").set_value("original model").run()
    assert "A plan is active (L1 H2 pre -> identity), this shows the original model." in said(app)
    assert cell(app, "kq") != cell(app, "raw")
    app.button(key="strip.clear").click().run()
    assert "A plan is active" not in said(app) and now(app) == ()
    kernels = surgery(PLAN, KERNELS)
    assert "The Surgery and Attention pages show the edited one." in said(kernels)


def test_every_part_of_attention_draws_an_edited_run(surgery):
    kinds = (BypassGroupNorm(1), BypassGate(1), PatchHead(1, 2, "sm", "Hallo, hallo"), AblateHead(3, 0))
    app = surgery(tuple(map(Listed, kinds)), ATTENTION)
    for tab in TABS:
        app.segmented_control(key="widget.tab").set_value(tab).run()
        assert "Showing an edited model: L1 -> no group norm, L1 -> gate open and 2 more" in said(app)
        assert "The page failed" not in said(app) and not app.exception
        for toggle in app.toggle:
            if toggle.label in ("Gate of this layer", "Logit lens"):
                toggle.set_value(True)
        assert "The page failed" not in said(app.run())


def test_the_kernels_own_panels_lead_here(surgery):
    app = surgery(page=ATTENTION)
    button = app.button(key="why.test")
    assert button.label == "Test: set this kernel to identity"
    button.click().run()
    assert now(app) == (Listed(KernelToIdentity(1, 2, "pre")),)
    card = surgery(page=KERNELS, where="head_pre")
    assert card.button(key="card.test").label == "Test: set this row of head mixing to identity"


def waited(app: AppTest, words: str) -> AppTest:
    for _ in range(60):
        if words in said(app):
            return app
        app.run()
    raise AssertionError(said(app))


def test_the_sweep_runs_beside_the_page_and_offers_the_worst(surgery):
    app = surgery()
    app.segmented_control(key="widget.surgery tab").set_value("Sweep").run()
    assert "python -m mta_viz effects" in said(app)
    app.button(key="start.sweep").click().run()
    for _ in range(60):
        if any(one.key == "sweep.add" for one in app.button):
            break
        app.run()
    app.button(key="sweep.add").click().run()
    shown = app.session_state["shown"]  # the maps are of the plan, the sweep is of the original model
    assert shown["sweep.pre"].interventions == ()
    assert {len(one.interventions) for key, one in shown.items() if key.startswith("edit.")} == {1}
    assert isinstance(now(app)[0].intervention, KernelToIdentity)


def test_the_smallest_set_is_said_with_its_criterion(surgery):
    app = surgery()
    app.segmented_control(key="widget.surgery tab").set_value("Minimal set").run()
    assert "probability falls to a tenth" in said(app)
    app.button(key="start.needed").click().run()
    waited(app, "All kernels at")


def test_patching_asks_for_as_many_tokens_and_then_patches(surgery):
    app = surgery()
    app.segmented_control(key="widget.surgery tab").set_value("Patch").run()
    assert "This is the prompt itself" in said(app)
    box = next(one for one in app.text_area if one.label == "Other prompt")
    box.set_value("Hallo").run()
    assert "has 6 tokens, this one 13" in said(app)
    next(one for one in app.text_area if one.label == "Other prompt").set_value("Hallo, hello").run()
    app.button(key="patch.add").click().run()
    assert to_address(now(app)).startswith("p.1.2.z.t")
    assert app.metric[2].value != "+0 nats"


def test_a_patch_of_another_length_is_said_in_its_place(surgery):
    app = surgery((Listed(PatchHead(1, 2, "z", "abc")),))
    assert "has 4 tokens, this one 13" in said(app)
    assert "L1 H2 z -> as in “abc”" in said(app)  # and can be taken out


def test_a_broken_models_answer_is_refused_in_words_and_its_kernels_stay_editable(surgery):
    app = surgery(checkpoint="tiny-nan")
    assert "the logits after position 12 hold NaN or inf" in said(app)
    assert any(one.key == "taps.mirror" for one in app.button)


def test_token_ids_are_operated_on_and_patched_from_ids(open_app):
    app = open_app("no-tokenizer", None, SURGERY, layer=1, head=2, stage="kq")
    app.text_area[0].set_value("256, 72, 105").run()
    app.button(key="run").click().run()
    assert "Empty plan: output identical" in said(app)
    app.segmented_control(key="widget.surgery tab").set_value("Patch").run()
    next(one for one in app.text_area if one.label == "Other prompt").set_value("256, 72, 106").run()
    app.button(key="patch.add").click().run()
    assert to_address(app.session_state["kept.plans"]["no-tokenizer"].now) == "p.1.2.z.i256-72-106"
    app.text_input[0].set_value("x").run()
    assert "an answer in words needs the model's tokenizer" in said(app)


def test_a_plain_model_has_heads_to_switch_off(surgery):
    app = surgery(checkpoint="tiny-plain", stage="final")
    assert "This model has no kernels: add a head to switch off." in said(app)
    assert "This layer has no key-query kernel." in said(app)
    app.button(key="plan.add").click().run()
    assert to_address(app.session_state["kept.plans"]["tiny-plain"].now) == "h.1.2"

"""Another run beside the page's, by its address: what differs, who stands beside whom, what is refused."""

import os
import re
from unittest.mock import Mock

import pytest
import torch

from mta_viz.analysis.compare.comparing import AnswerPair
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.params import params_from_config
from mta_viz.config import MTAOptions
from mta_viz.errors import PromptError
from mta_viz.ui.compare.view import verdict
from mta_viz.ui.shell.link import Box
from tests.checkpoint.checkpoint_samples import lingua_tensors, write_distributed
from tests.tiny_models import config, random_weights
from tests.ui.driver import borrowed, fine, part_of, said, session_of, view_of

COMPARE = "pages/workspace.py"
TITLE = re.compile('"heading": "(.*?)"')
FACTS = "The magic number of Oslo is 88. Rain. The magic number of Rome is 17."
NEEDLES = f"{FACTS} The magic number of Oslo is"
IDENTITY = "same model, kernels at identity"


@pytest.fixture(scope="session")
def apart(tmp_path_factory):
    """A folder with `tiny-apart`, plain and of other random weights than the rest, so no kin."""
    folder, shapes = tmp_path_factory.mktemp("apart"), config(MTAOptions(), 258)
    write_native(
        folder / "tiny-apart", shapes, random_weights(shapes, 7), tokenizer_name="bytes", tokenizer_path=None,
        dtype=torch.float32,
    )  # fmt: skip
    return folder


@pytest.fixture
def page(open_app, models_folder, apart, monkeypatch):
    """`page(NEEDLES, {"b": "tiny-apart"}, layer=1)`."""

    monkeypatch.setenv("MTA_VIZ_MODELS", f"{models_folder}{os.pathsep}{apart}")

    def start(prompt=NEEDLES, settings=None, checkpoint="tiny-mta", **view):
        app = open_app(checkpoint, prompt, COMPARE, {"tab": "Beside"} | (settings or {}), **view)
        assert not app.exception and "The page failed" not in said(app), said(app)
        return app

    return start


def maps(app):
    """The messages of maps that stand beside those of the text."""
    sent = (part.proto for part in app.get("bidi_component"))
    return [part.bytes for part in sent if part.component_name == "mta_viz.maps" and part.bytes]


def titles(app):
    """What stands over the maps of both sides."""
    (cells,) = maps(app)
    return TITLE.findall(cells.decode(errors="replace"))


def said_of(app, part):
    """What the page says once one looks at this part."""
    borrowed(app.segmented_control, "compared").set_value(part).run()
    fine(app)
    return said(app)


def test_a_model_without_a_twin_stands_beside_itself_and_kin_are_paired_by_index(page):
    app = page()
    fine(app)
    words = said(app)
    assert borrowed(app.selectbox, "b").value == IDENTITY
    assert titles(app) == ["A: tiny-mta", "B: kernels at identity", "A − B"]
    assert "Heads paired by index: both sides are one model." in words
    assert re.search(r"Answer “88”: A \(tiny-mta\) gives it p = \S+, B \(kernels at identity\) p = ", words)
    assert "Answer “88”: the number A's prompt asks for." in words
    assert "Share of the needle “Oslo” in the final weights" in said_of(app, "Shares")
    assert "Distance of each of A's kernels" in said_of(app, "Kernels")
    assert app.button(key="compare.swap").disabled
    borrowed(app.selectbox, "b").set_value("tiny-plain").run()
    assert "Hatched: neither has one." in said(app) and not maps(app)
    paired = "Heads paired by index: the cosine of their embeddings is 1.000, above 0.9."
    assert paired in said_of(app, "Answers") and "B: tiny-plain" in titles(app)


def test_both_runs_are_drawn_before_what_is_said_of_the_first(page, monkeypatch):
    later = Mock(side_effect=PromptError("later"))
    monkeypatch.setattr("mta_viz.ui.workspace.view._draw_top", later)
    app = page()
    words = said(app)
    assert "later" in words and "A: tiny-mta" in titles(app) and "gives it p = " in words


def test_two_models_trained_apart_are_paired_by_their_maps_and_swapped(page):
    app = page(settings={"b": "tiny-apart"}, layer=1, head=2, stage="kq")
    words = said(app)
    assert re.match("B: tiny-apart L. H.$", titles(app)[1]) and "L1 H2 stands B's L" in words
    assert "B's layer has no “after key-query conv”" in words
    assert ("clear: r = " in words) or ("unsure: r = " in words)
    borrowed(app.segmented_control, "pair by").set_value("needle share").run()
    assert "A's best finder beside B's best" in said(app)
    app.button(key="compare.swap").click().run()
    assert session_of(app).selection.checkpoint == "tiny-apart"
    assert borrowed(app.selectbox, "b").value == "tiny-mta" and "B: tiny-mta" in titles(app)[1]
    app = page(settings={"b": "tiny-apart"}, checkpoint="tiny-nan")
    assert "hold NaN or inf" in said(app)


def test_two_prompts_begin_as_a_minimal_pair_and_a_link_brings_them_back(page):
    app = page(settings={"mode": "two prompts"})
    box = borrowed(app.text_area, "b prompt")
    assert box.value == f"{FACTS} The magic number of Rome is"
    words = said(app)
    assert "Tokens differ at " in words and "Rows and columns of these positions are hatched" in words
    assert "the needle “Oslo” in A, the needle “Rome” in B" in said_of(app, "Shares")
    assert "A and B are one model here: their kernels are equal." in said_of(app, "Kernels")
    borrowed(app.text_area, "b prompt").set_value("The magic").run()
    assert "B's prompt has no such part" in said_of(app, "Shares")
    words = said_of(app, "Answers")
    assert "Tokens differ" not in words and "agree while both last: compared up to position 9" in words
    assert "no token sees what comes after it" in words
    app.button(key="compare.swap").click().run()
    assert part_of(app, Box).run == "The magic" and borrowed(app.text_area, "b prompt").value == NEEDLES
    address = {"mode": "two prompts", "b prompt": "Hello, jello"}
    linked = page("Hello, hello", address, layer=1, head=3)
    assert 'Tokens differ at 1 position of 13: 8 ("h" / "j")' in said(linked)
    assert address.items() <= view_of(linked).items() and "could not be restored" not in said(linked)


def test_with_and_without_edits(page):
    app = page("Hello, hello", {"mode": "with / without edits"}, layer=1, head=2, stage="kq")
    assert "Nothing is edited. Edit, in the inspector" in said(app)
    plan = {"mode": "with / without edits", "e": "i.1.2.pre"}
    app = page("Hello, hello", plan, layer=1, head=2, stage="kq")
    words = said(app)
    assert "B is edited: L1 H2 pre -> identity." in words
    assert titles(app) == ["A: original", "B: edited", "A − B"]
    assert "No needle and no named span" in said_of(app, "Shares")
    assert "This head's kernel after the softmax is the same in A and B" in said_of(app, "Kernels")
    borrowed(app.segmented_control, "mode").set_value("two models").run()
    assert "A plan is active. Here A is the original model" in said(app)


def test_what_cannot_be_compared_is_said(page):
    app = page(settings={"b": "tiny-blocks"})
    assert "B (tiny-blocks) cannot run this prompt, so nothing is compared." in said(app)
    app = page("Hello", checkpoint="tiny-plain")
    assert "no kernels and no head mixing" in said(app) and "choose a second model" in said(app)
    app = page("Hi", {"b": "tiny-apart"})
    words = said(app)
    assert "Heads are not paired: the models were trained apart" in words
    assert "have 3 tokens in common" in words and "so no kernels are compared" in said_of(app, "Kernels")
    assert "Nothing in B stands beside this head" in words and "gives it p = " in words


def test_the_verdict_is_one_sentence():
    def words(a: float, b: float) -> str:
        return verdict(AnswerPair("A", " 7", "given", a, b), "x", "y")

    assert (
        words(-0.01, -0.02)
        == "Answer “7”: A (x) gives it p = 0.990, B (y) p = 0.980: they are about equally sure of it."
    )
    assert words(-2.0, -0.5).endswith("B finds it 4.5 times as probable.")
    assert words(-0.0, -40.0).endswith("A finds it over a million times as probable.")
    assert words(float("nan"), 0.0).endswith("A (x) gives it p = NaN, B (y) p = 1.000.")


def test_another_training_step_stands_beside(page, tmp_path, monkeypatch):
    for seed, step in enumerate(("0000000010", "0000000020", "0000000030")):
        shapes = config(MTAOptions(pre_kernel=(2, 3)), 258)
        weights = {f"model.{name}": value for name, value in lingua_tensors(shapes, seed).items()}
        settings = params_from_config(shapes, "bytes", None)
        write_distributed(tmp_path / "run" / "checkpoints" / step, settings, weights, 1)
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    app = page(checkpoint="run", settings={"b": "run"}, layer=1)
    steps = borrowed(app.selectbox, "b step")  # the page's own is the last
    assert steps.options == ["10", "20"] and "step 10" in titles(app)[1]
    steps.set_value(20).run()
    fine(app)
    assert "step 20" in titles(app)[1] and view_of(app)["b step"] == "20"

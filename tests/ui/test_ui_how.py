"""How it works: a walk through its steps on the visitor's cell, and a painted kernel in the address."""

import re
from html import unescape

import numpy as np
import pytest
import torch

from mta_viz import capture, load
from mta_viz.analysis.attention.decomposition import chain, decompose
from mta_viz.analysis.cause.answers import AnswerMeter, answer_after
from mta_viz.analysis.cause.direct_effect import direct_effect
from mta_viz.analysis.cause.effects import without
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.native import write_native
from mta_viz.config import ModelConfig
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.theme import score_text, weight_text
from mta_viz.ui.how.view import PLAY, STEPS, from_text, to_text
from mta_viz.ui.shell.show import OnPage
from mta_viz.ui.shell.widgets import help_of, term, texts, worded
from tests.ui.driver import borrowed, charts, fine, part_of, said, view_of

PAGE, PROMPT = "pages/how.py", "Hello, hello"
CELL = {"layer": 1, "head": 2, "query": 12, "key": 4}
TERMS = (
    *("query", "key", "score", "kernel", "tap", "offset", "softmax", "head mixing", "log-odds", "span"),
    *("identity", "own tap", "direct effect"),
)


def sentence(app) -> str:
    """The page's one sentence, without its marks."""
    bodies = [element.proto.body for element in app.get("html")]
    return unescape(re.sub("<[^>]*>", "", next(body for body in bodies if "<bdi>" in body)))


def test_a_walk_through_the_steps_says_the_numbers_of_the_other_pages(open_app, models_folder):
    trace = capture(load(models_folder / "tiny-mta"), PROMPT)
    values, effects = chain(trace, *CELL.values()), direct_effect(trace.model, trace.tokens)
    layer, meter = effects.layers[1], AnswerMeter(trace, answer_after(trace))
    added = score_text(float(layer.values[2, 12 - layer.first_query, 4]))
    alone = score_text(meter.standing((without(KernelId(1, 2, "pre"), "own-tap"),)).log_odds)
    window = decompose(trace, 1, Stage.KQ, 2, 12, 4)
    score, weight = score_text(values[Stage.MIX]), weight_text(values[Stage.SOFTMAX])
    expected = {
        "score": f"get a raw score of {score_text(values[Stage.RAW])}",
        "window": f"66 products sum to {score_text(window.value)}",
        "future": f"{int(window.window.future.sum())} of 66 taps fall on the future",
        "heads": f"{score_text(values[Stage.KQ])} in L1 H2 becomes {score}",
        "softmax": f"in sum 1: {score} becomes {weight}",
        "answer": f"adds {added} to the logit of {effects.explained}",
    }
    app = open_app("tiny-mta", PROMPT, PAGE, **CELL)
    for step in STEPS:
        fine(app)
        assert len(charts(app)) == 1 and expected[step] in sentence(app), (step, sentence(app))
        assert view_of(app).get("step", "score") == step and f"sm {weight} →" in said(app)
        if step != STEPS[-1]:
            app.button(key="path.w").click().run()
    assert f"{score_text(meter.standing().log_odds)} with the head's kernel and {alone}" in sentence(app)


def test_steps_that_a_layer_lacks_say_so_and_are_passed_over(open_app):
    app = open_app("tiny-plain", PROMPT, PAGE)
    for step in ("score", "softmax", "answer", PLAY):
        fine(app)
        assert view_of(app).get("step", "score") == step
        if step != PLAY:
            app.button(key="path.w").click().run()
    borrowed(app.button_group, "step").set_value("heads").run()
    fine(app)
    assert "mixes no heads" in sentence(app) and not charts(app)
    app.button(key="path.q").click().run()
    assert view_of(app).get("step", "score") == "score"


def test_a_difference_of_two_softmax_maps_says_both(open_app, tmp_path, monkeypatch):
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "d_mlp": 16, "vocab_size": 32, "n_ctx": 64}
    config = ModelConfig(d_model=16, n_layers=1, tied=True, differential=True, **sizes)
    weights = HookedMTA(config).state_dict()
    write_native(
        tmp_path / "diff", config, weights, tokenizer_name="char", tokenizer_path=None, dtype=torch.float32
    )
    trace = capture(load(tmp_path / "diff"), "abcdab")
    first, second, final = (
        weight_text(float(trace.map(0, stage, 1)[5, 3]))
        for stage in (Stage.SOFTMAX, Stage.SOFTMAX_2, Stage.PATTERN)
    )
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path))
    app = open_app("diff", "abcdab", PAGE, {"step": "softmax"}, layer=0, head=1, query=5, key=3)
    fine(app)
    assert f"becomes {first}" in sentence(app)
    assert f"gives {second}" in sentence(app) and f"leaves {final}." in sentence(app)


def test_a_cell_of_the_future_is_no_error_and_another_row_adds_nothing(open_app):
    app = open_app("tiny-mta", PROMPT, PAGE, layer=1, head=2, query=3, key=9)
    fine(app)
    assert "a cell of the future" in sentence(app)
    app = open_app("tiny-mta", PROMPT, PAGE, {"step": "future"}, layer=1, head=2, query=12, key=0)
    assert 'where 12 "o" reads 7 "␣", 15 of 66 do' in sentence(app)
    app = open_app("tiny-mta", PROMPT, PAGE, {"step": "answer"}, layer=1, head=2, query=3, key=2)
    fine(app)
    assert "direct effect of this cell is +0" in sentence(app)


def test_a_painted_kernel_stands_in_the_address_and_another_one_takes_its_place(open_app):
    taps = np.zeros((3, 5))
    taps[2, 2], taps[1, 1] = 1, -0.5
    settings = {
        "step": PLAY,
        "paint size": "3 x 5",
        "painted": to_text(taps),
        "paint on": "this head's scores",
    }
    app = open_app("tiny-mta", PROMPT, PAGE, settings, **CELL)
    fine(app)
    ((spec, drawn),) = part_of(app, OnPage).items()
    assert spec.taps == tuple(map(tuple, taps)) and drawn.result.maps[0].values.shape == (13, 13)
    assert view_of(app)["painted"] == to_text(taps) and "has no room for diagonal" in sentence(app)
    borrowed(app.selectbox, "paint from").set_value("identity").run()
    fine(app)
    ((spec, _),) = part_of(app, OnPage).items()
    assert np.sum(spec.taps) == 1 and "painted" not in view_of(app)
    assert from_text("1 2;3 x", (2, 2)) is from_text("nan", (1, 1)) is from_text("1;2", (1, 2)) is None


def test_every_term_has_one_sentence_and_marks_are_terms():
    assert {*TERMS} <= {*texts()} and all(text.endswith(".") for text in texts().values())
    assert "**tap**: One number" in help_of("tap") and 'title="One number' in term("Tap")
    assert worded("A [tap] of {name}.", name="<b>").endswith("</abbr> of <b><bdi>&lt;b&gt;</bdi></b>.")
    with pytest.raises(KeyError):
        help_of("no term")

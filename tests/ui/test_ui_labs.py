"""The Labs page without a browser: a sample, its heads, sweeps that stop and go on, blocks, wrong models."""

import dataclasses
import json
import re
from unittest.mock import Mock

import pytest

from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.labs.blocks import BlocksEvaluation
from mta_viz.analysis.labs.sweep import SampleResult, Sweep
from mta_viz.analysis.labs.sweep_file import Difference, Misses, ModelResults, empty_results, sweep_text
from mta_viz.checkpoint.locate import sha256
from mta_viz.errors import PromptError
from mta_viz.figures.labs.measured import named_apart
from mta_viz.plots.parts import colors_of
from mta_viz.tasks.blocks import BlockTask
from mta_viz.tasks.needles import HELD_OUT
from mta_viz.ui.labs.blocks import error_words
from mta_viz.ui.labs.sweep import Sweeps, bias_words, difference_words, misses_words
from mta_viz.ui.shell.pickers import NamedSpans
from mta_viz.ui.shell.widgets import decoded
from tests.ui.driver import (
    borrowed,
    charts,
    fine,
    html,
    part_of,
    run_through,
    run_until,
    said,
    session_of,
    view_of,
)

LABS = "pages/labs.py"
SMALL = {"needle number": "2", "needle length": "300", "needle depth": "50"}
SWEEP = {
    **{"needle seed": "7", "sweep needles": "1", "sweep lengths": "256", "sweep depths": "0,100"},
    **{"sweep samples": "2", "sweep models": "tiny-mta"},
}
ROWS = tuple(
    SampleResult(needles, 256, depth, seed, "right" if seed else "other", 0, None, -0.5)
    for needles in (1, 2)
    for depth in (0, 100)
    for seed in (0, 1)
)
MODELS = (
    ModelResults("first <b>$x$</b>", "a" * 64, "v", ROWS),
    ModelResults("same", "b" * 64, "v", ROWS),
    ModelResults("same", "c" * 64, "w", ROWS[:4]),
)
RESULTS = dataclasses.replace(empty_results(Sweep()), models=MODELS)


@pytest.fixture
def open_lab(open_app):
    """`open_lab("tiny-mta", {settings by their names}, layer=1)`: the Labs page."""

    def start(checkpoint, settings=None, **selection):
        return open_app(checkpoint, page=LABS, settings=settings, **selection)

    return start


def test_a_lab_opens_with_a_sample_its_answer_its_text_and_its_heads(open_lab):
    app = run_until(open_lab("tiny-mta", SMALL), "Gold: ")
    run_until(app, " of 20 right, ")
    fine(app)
    words = said(app)
    assert "Asked: " in words and "p(gold)" in words and "samples 0 to 19 measured here." in words
    assert "2 needles in 300 tokens, the asked one at 50 %" in words and "300 tokens. Outlined" in words
    text = next(element for element in html(app) if "<bdi>" in element)
    outlined = re.findall(r"border-color: (#\w+)\"><b>(.)<", text)
    spans = (Span("x (asked)", "A", 0, 1), Span("y", "B", 1, 2), Span("question", "?", 2, 3))
    asked, other, question = (color.line for color in colors_of(spans))
    assert {letter for _, letter in outlined} == {"A", "B", "?"}
    assert {color for color, _ in outlined} == {asked, other, question}
    assert dict(map(reversed, outlined))["?"] == question and text.count("<strong>") == 1
    table = app.dataframe[0].value
    assert len(table) == 8 and {"head", "raw", "kq", "mix", "sm", "kq'", "final", "p"} <= set(table.columns)
    assert app.button(key="finder.workspace").label == f"Open {table['head'][0]} in the workspace"
    assert len(charts(app)) == 7  # heads, and three maps for each convolution
    assert view_of(app)["needle shown"] == "true"
    app.button(key="needle.new").click().run()
    assert view_of(app)["needle seed"] == "1"
    run_until(app, "Gold: ")
    fine(app)
    assert said(app) != words


def test_a_visit_leaves_the_chosen_head_alone_until_one_is_chosen_there(open_app):
    app = open_app("tiny-mta", prompt="a cat sat", settings=SMALL)
    before = session_of(app).selection = dataclasses.replace(session_of(app).selection, layer=0, head=0)
    app = run_until(app.switch_page(LABS).run(), "Gold: ")
    assert session_of(app).selection == before
    first = app.dataframe[0].value["head"][0]
    assert first != "L0 H0"
    app.button(key="finder.workspace").click().run()
    opened = session_of(app).selection
    assert f"L{opened.layer} H{opened.head}" == first


@pytest.mark.parametrize("later", ["ui.labs.fits.draw_often", "ui.shell.models.base_of"])
def test_the_sample_waits_for_no_accuracy_and_no_look_into_other_models(open_app, monkeypatch, later):
    monkeypatch.setattr(f"mta_viz.{later}", Mock(side_effect=PromptError("later")))
    app = run_until(open_app("tiny-mta", page=LABS, settings=SMALL), "Gold: ")
    assert len(charts(app)) == 7


def test_what_takes_long_is_a_button_with_the_time_it_takes(open_lab, monkeypatch):
    monkeypatch.setattr("mta_viz.ui.labs.fits.OPEN_SECONDS", 0.0)
    app = open_lab("tiny-mta", SMALL | {"needle seed": "40"})
    fine(app)
    assert "No sample yet" in said(app) and re.search(r"About \d+ s here\.", said(app)) and not charts(app)
    app.button(key="start.needle").click().run()
    run_until(app, "Gold: ")
    app.button(key="needle.new").click().run()  # the next one runs, since one was asked for
    run_until(app, "Gold: ")
    fine(app)
    app.button(key="start.often").click().run()
    run_until(app, " of 20 right, ")


def test_the_chosen_head_has_its_maps_its_repetition_and_opens_in_attention(open_lab):
    score = {"finder score": "span.final"}
    settings = SMALL | score | {"needle seed": "3", "gains n": "3", "crop shown": "true"}  # of older links
    app = run_until(open_lab("tiny-mta", settings, layer=1, head=2), "Gold: ")
    fine(app)
    assert "L1 H2: share of" in said(app) and "crop shown" not in said(app)
    assert len(charts(app)) == 7  # the finder's map, three maps for each convolution
    assert "This is one prompt" in said(app)
    app.button(key="start.gains").click().run()
    run_through(app, "gains")
    assert "of the asked needle over 3 samples: Ends beside a median: the range of the 3 samples" in said(app)
    assert "Ends beside a mean: its 95 % interval, values being within 0 to 1" in said(app)
    low = app.dataframe[1].value["median low"].astype(float).tolist()
    assert len(low) == 16 and low == sorted(low, reverse=True)
    app.button(key="finder.workspace").click().run()
    fine(app)
    selected, spans = session_of(app).selection, part_of(app, NamedSpans).spans
    assert (selected.layer, selected.head, selected.query) == (1, 2, 299)
    assert "magic number" in app.text_area[0].value and [span.letter for span in spans] == ["A", "B", "?"]


def test_what_does_not_fit_is_said_with_by_how_much(open_lab):
    app = open_lab("tiny-mta", SMALL | {"needle length": "80"})
    assert "more than the length 80" in app.error[0].value and len(app.error) == 1
    assert not app.exception
    app = open_lab("tiny-mta", {"needle template": "my own", "needle needle": "No slots."})
    assert "lacks {city}" in said(app)
    app = open_lab("tiny-mta", SMALL | SWEEP)
    borrowed(app.multiselect, "sweep depths").set_value([]).run()
    fine(app)
    assert "Choose at least one of each" in said(app)


def test_a_sweep_is_kept_goes_on_and_compares_models_in_pairs(open_lab):
    app = open_lab("tiny-mta", SMALL | SWEEP)
    assert "No sample of this sweep yet" in said(app)
    app.button(key="start.sweep").click().run()
    run_through(app, "sweep")
    assert "With one needle there is no first and last" in said(app)
    fine(run_until(app, "Gold: "))
    assert len(charts(app)) == 2 + 7  # those of the sample
    borrowed(app.number_input, "sweep samples").set_value(3).run()
    assert "4 of 6 samples are there" in said(app) and len(charts(app)) == 9
    before = part_of(app, Sweeps).results.models[0].samples
    borrowed(app.multiselect, "sweep models").set_value(["tiny-mta", "tiny-plain"]).run()
    app.button(key="start.sweep").click().run()
    run_through(app, "sweep")
    assert "tiny-plain minus tiny-mta on the same 6 samples" in said(app)
    fine(app)
    assert len(charts(app)) == 10 and "samples are there" not in said(app)
    own, twin = part_of(app, Sweeps).results.models
    assert set(before) <= set(own.samples) and len(own.samples) == len(twin.samples) == 6


def test_a_model_of_letters_opens_the_block_lab(open_lab):
    app = open_lab("tiny-blocks", {"block count": "6", "block n": "12"})
    fine(app)
    words = said(app)
    assert "Asked: the block with" in words and "A random block: 83.3% wrong" in words
    assert "Not measured yet" in words and len(app.dataframe[0].value) == 16
    assert len(charts(app)) == 4 and "in the last query's row alone" in said(app)
    app.button(key="start.error").click().run()
    run_until(app, "of 12 wrong: error")
    app.button(key="blocks.new").click().run()
    fine(app)
    assert view_of(app)["block sample"] == "1"
    borrowed(app.number_input, "block letters").set_value(2).run()
    assert not app.exception and "n_query is 2" in said(app)


def test_a_lab_that_does_not_fit_the_model_leads_to_what_does(open_lab):
    app = open_lab("tiny-mta", {"lab": "Blocks"})
    fine(app)
    assert "needs the character vocabulary of 32" in said(app)
    app.button(key="fit.model").click().run()
    assert session_of(app).selection.checkpoint == "blocks-n5-mta" and view_of(app)["ck"] == "blocks-n5-mta"
    app = open_lab("tiny-blocks", {"lab": "Needle"})
    for lab in ("Needle", "Two words", "Questions"):
        borrowed(app.button_group, "lab").set_value(lab).run()
        assert "This lab is of English sentences" in said(app) and not app.exception
    app.button(key="fit.lab").click().run()
    run_until(app, "Asked: the block with")
    assert view_of(app).get("lab") is None
    app = open_lab("no-tokenizer", {"lab": "Needle"})
    for lab in ("Needle", "Text", "Conjunction"):
        borrowed(app.button_group, "lab").set_value(lab).run()
        assert not app.exception and "without its tokenizer" in app.error[0].value
    app = open_lab("tiny-mta", SMALL | {"needle length": "1088"})
    app.button(key="fit.length").click().run()
    assert "needle length" not in {name for name, text in view_of(app).items() if text == "1088"}
    fine(app)


def test_a_card_says_what_was_trained_and_how_often_it_is_right(open_lab, models_folder):
    card = models_folder / "tiny-plain" / "card.json"
    cell = {"n_needles": 2, "length": 300, "depth": 50, "scores": {"all": {"right": 9, "n": 10}}}
    sha = sha256(models_folder / "tiny-plain")
    card.write_text(
        json.dumps({"task": "needle", "sha256": sha, "needles": {"cells": [cell]}, "note": "One seed."})
    )
    try:
        app = open_lab("tiny-plain", SMALL)
        assert "tiny-plain 9 of 10 right, 90.0% [55.5, 99.7]" in said(app)
        assert "Exact 95 % intervals, from cards." in said(app) and "One seed." in said(app)
        borrowed(app.button_group, "lab").set_value("Two words").run()
        assert "This model was trained for the lab Needle" in said(app)
        app.button(key="fit.lab").click().run()
        assert "9 of 10 right" in said(app)
        card.write_text(card.read_text().replace(sha, "0" * 64))
        run_until(open_lab("tiny-plain", SMALL), "measured here")
    finally:
        card.unlink()


def _opened(app, results: str):
    app.file_uploader[0].set_value(("r.json", results.encode(), "application/json")).run()
    return app


def test_a_results_file_is_drawn_whatever_the_model_or_refused_with_the_reason(open_lab):
    app = open_lab("tiny-blocks", {"lab": "Needle"})
    app = _opened(app, sweep_text(RESULTS))
    fine(app)
    words = said(app)
    assert "same bbbbbbbb minus first <b>$x$</b> on the same 8 samples: +0.00" in words
    assert "have different tokenizers, so their samples differ" in words
    assert len(charts(app)) == 4
    origin = app.dataframe[-1].value
    assert origin["sha256 of its weights"].tolist() == [letter * 64 for letter in "abc"]
    assert origin["samples"].tolist() == [8, 8, 4] and "Needle: The magic number of" in words
    many = tuple(ModelResults(f"m{n}", f"{n}" * 64, "v", ROWS) for n in range(6))
    app = _opened(app, sweep_text(dataclasses.replace(RESULTS, models=many)))
    assert len(charts(app)) == 5
    borrowed(app.multiselect, "opened models").set_value(["m5"]).run()
    assert len(charts(app)) == 2
    both = ROWS + tuple(dataclasses.replace(row, length=512) for row in ROWS)
    app = _opened(app, sweep_text(dataclasses.replace(RESULTS, models=(ModelResults("m", "a", "v", both),))))
    assert len(charts(app)) == 3 and "Averaged over depths: all samples" in said(
        app
    )  # a panel each, and a map
    borrowed(app.selectbox, "opened lines of").set_value("pooled over context lengths").run()
    assert len(charts(app)) == 2 and "the paper has a panel for each length" in said(app)
    wide = tuple(dataclasses.replace(ROWS[0], length=length) for length in range(1, 50))
    wide = dataclasses.replace(RESULTS, models=(ModelResults("m", "a", "v", wide),))
    assert json.loads(sweep_text(RESULTS))["models"][0]["samples"][0]["place"] == 0
    refused = {
        "[1]": "needle sweep",
        sweep_text(RESULTS)[:-30]: "needle sweep",
        sweep_text(RESULTS).replace('"place": 0', '"place": 7', 1): "place",
        sweep_text(wide): "49 lengths",
    }
    for text, reason in refused.items():
        app = _opened(app, text)
        assert not app.exception and reason in app.error[0].value.replace("\\", ""), reason
    app = _opened(app, sweep_text(empty_results(Sweep())))
    assert "holds no sample yet" in said(app)
    app.button(key="forget.sweep file").click().run()
    assert not charts(app) and "nothing is run" in said(app)


def test_a_file_that_is_too_large_or_no_text_is_refused():
    assert decoded("f", "\ufeffa\u2028ש".encode(), 1) == "a\u2028ש"
    with pytest.raises(PromptError, match=r"f has 1\.0 MB; at most 1 MB"):
        decoded("f", b" " * (2**20 + 1), 1)
    with pytest.raises(PromptError, match="f is not UTF-8 text"):
        decoded("f", b"\xff\xfea", 1)


def test_names_are_told_apart():
    twins = tuple(ModelResults(name, sha, "v", ()) for name, sha in (("m", "a"), ("m", "a"), ("", "c")))
    assert list(named_apart(twins)) == ["m a", "m a (2)", " (3)"]


def test_what_results_are_called():
    words = difference_words(Difference(10, -0.5, (-0.7, -0.1)))
    assert words == "−0.50 [−0.70, −0.10] (95 % interval), more than chance"
    assert difference_words(Difference(10, 0.1, (-0.1, 0.3))) == "+0.10 [−0.10, +0.30] (95 % interval)"
    assert misses_words(Misses(0, 0, 0, 0, 0.0, 0.0)) == "No wrong answer."
    assert (
        "2 of them another needle's number: the first one's 1 times (0.3 if all were alike)"
        in misses_words(Misses(3, 2, 1, 1, 1 / 3, 4 / 3))
    )
    assert "no first and last" in bias_words({})
    result = BlocksEvaluation(20, 0, 5, 0.25, (0.1, 0.5), (1.0,))
    assert error_words(result, BlockTask(n_blocks=4, output="last")) == (
        "5 of 20 wrong: error 25.0%, 95 % interval 10.0% to 50.0%. Right answers of the last letter, each "
        "after the right ones before it: 1.000. A random block: 75.0% wrong."
    )


PAIRS = {
    "needle task": "pairs",
    "pairs words": "held out",
    "pairs names": "2",
    "pairs cities": "2",
    "pairs length": "420",
}


def test_pairs_have_a_form_a_sample_its_heads_and_a_sweep_with_what_chance_is(open_lab):
    sweep = SWEEP | {"sweep pairs": "4", "sweep lengths": "512", "sweep samples": "1"}
    app = open_lab("tiny-mta", PAIRS | sweep | {"crop shown": "true", "gains n": "2"}, layer=1, head=2)
    assert borrowed(app.button_group, "lab").value == "Two words"  # it was a task of the lab Needle
    run_until(app, "the name alone is right once in 2, the city alone once in 2")
    words = said(run_until(app, "Gold: "))
    fine(app)
    asked = re.search(r"Asked: ([A-Z]\w+) in ([A-Z][\w ]+)\.", words)
    assert asked and asked[1] in HELD_OUT.names and asked[2] in HELD_OUT.cities and "420 tokens." in words
    assert len(app.dataframe[0].value) == 8 and len(charts(app)) == 7
    app.button(key="start.sweep").click().run()
    run_through(app, "sweep")
    fine(app)
    assert "4 sentences, 2 x 2: one word alone gives 0.50, any number of the prompt 0.25." in said(app)
    assert part_of(app, Sweeps).results.kind == "pairs"
    app.button(key="finder.workspace").click().run()
    fine(app)
    assert "The number that" in app.text_area[0].value
    assert [span.letter for span in part_of(app, NamedSpans).spans] == ["A", "B", "C", "D", "?"]


def test_prompts_of_a_file_are_a_task_or_are_refused_line_by_line(open_lab):
    app = open_lab("tiny-mta", {"needle task": "file", "sweep models": "tiny-mta"})
    assert "A line of the file is a sample" in said(app)
    facts = {"prompt": "Ann is in Rome. Ben is in Oslo. Ann is in", "answer": "Rome"}
    marked = facts | {"spans": [{"kind": "asked", "start": 0, "stop": 15}]}
    lines = "\n".join(map(json.dumps, (marked, facts)))
    app.file_uploader[0].set_value(("facts.jsonl", lines.encode(), "application/json")).run()
    run_until(app, "Gold: Rome")
    fine(app)
    assert any("<strong><bdi>Ann is in Rome.</bdi></strong>" in element for element in html(app))
    app.button(key="file.new").click().run()
    run_until(app, "No span of this sample is marked as asked")
    assert any("Ben is in Oslo." in element for element in html(app))
    assert any(each.label == "Sweep over models" for each in app.expander)
    app.button(key="start.sweep").click().run()
    run_through(app, "sweep")
    fine(app)
    (kept,) = part_of(app, Sweeps).results.models
    assert [sample.key for sample in kept.samples] == [((None, None, None), 0), ((None, None, None), 1)]
    app = open_lab("tiny-mta", {"needle task": "file"})
    app.file_uploader[0].set_value(("bad.jsonl", b'{"prompt": "a"}', "application/json")).run()
    assert not app.exception and "line 1: 'answer' is missing" in said(app)

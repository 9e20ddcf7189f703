"""The workspace: opened by its address, driven by its widgets, read by what it shows."""

import re

import pytest

from mta_viz.analysis.attention.changes import head_statistics
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture, load
from mta_viz.ui.attention.head import Head
from mta_viz.ui.shell.cache import ModelKey, stores
from mta_viz.ui.shell.page import Page
from mta_viz.ui.shell.pickers import Selected
from mta_viz.ui.shell.show import OnPage
from mta_viz.ui.workspace.panels import Desk
from mta_viz.ui.workspace.view import OF_HEAD
from tests.ui.driver import (
    app_at,
    borrowed,
    charts,
    fine,
    part_of,
    run_through,
    run_until,
    said,
    session_of,
    view_of,
)

PAGE = "pages/workspace.py"
CATS = "The cat sat on the mat, and the cat sat."


def test_the_page_draws_text_panels_sum_and_predictions(open_app):
    app = open_app("tiny-mta", "Hello, hello")  # through the navigation; the others by the page's own address
    fine(app)
    assert len(charts(app)) == 2 and len(app.get("bidi_component")) == 4  # with pointer and frame
    assert "Rows: query, columns: key" in said(app) and "Self-check" in said(app)
    assert len(app.button_group[0].options) == 6  # all six stages in a layer with both kernels
    words = said(run_until(app, "the head gives"))
    assert "Answer “" in words and "’s shape" in words  # with the kernel and without


@pytest.mark.parametrize("checkpoint", ["tiny-plain", "tiny-mta"])
def test_a_story_that_is_told_at_once_is_on_the_page_at_once(open_app, checkpoint):
    app = open_app(checkpoint, "Hello, hello", PAGE)
    fine(app)
    assert "Answer “" in said(app) or any(button.key == "stop.story" for button in app.button)


@pytest.mark.parametrize(
    ("checkpoint", "before"), [("tiny-plain", Stage.RAW), ("tiny-mta", Stage.SOFTMAX_KQ)]
)
def test_the_final_weights_stand_beside_what_they_are_made_of(models_folder, checkpoint, before):
    trace = capture(load(models_folder / checkpoint), "Hello")
    page = Page(trace.model, trace, "run", "", False, 0, True, ModelKey("model", 0, "cpu", "float32"))
    assert Desk(page, Head(page, Selected(1, 0, Stage.PATTERN, 4, 0))).stages == (before, Stage.PATTERN)


def test_every_tab_has_its_figures_and_says_what_they_are(open_app):
    app = open_app("tiny-mta", CATS, PAGE, layer=1, head=2, stage="kq", query=9, key=4)
    words = {
        "Next token": (2, 'Next token after 9 "'),
        "Difference": (3, "Score after minus before the key-query conv, same head. Brown: lowered"),
        "Row and column": (2, "Click a bar to select that key."),
        "Heads": (3, "A point is a head."),
        "Cells": (1, "The 50 cells of largest |value| at after key-query conv"),
    }
    assert [*words] == [*OF_HEAD]
    for tab, (n_charts, caption) in words.items():
        borrowed(app.button_group, "tab").set_value(tab).run()
        fine(run_until(app, caption))
        assert (tab, len(charts(app))) == (tab, n_charts) and caption in said(app)
        assert view_of(app).get("tab") == (None if tab == "Next token" else tab)


def test_the_bars_are_of_the_row_or_the_column(open_app):
    place = {"layer": 1, "head": 2, "stage": "kq", "query": 9, "key": 4}
    app = open_app("tiny-mta", CATS, PAGE, {"tab": "Row and column"}, **place)
    assert "Click a bar to select that key." in said(app)
    borrowed(app.segmented_control, "text side").set_value("to the key").run()
    fine(app)
    assert "Click a bar to select that query." in said(app) and view_of(app)["text side"] == "to the key"
    assert "column" in [spec.name for spec in part_of(app, OnPage)]


GATE = "Gate of this layer"


def test_the_lens_and_the_gate_come_when_they_are_asked_for(open_app):
    app = open_app("tiny-mta", CATS, PAGE, {"lens": "true", "gate": "true"})
    fine(app)
    assert len(charts(app)) == 5
    assert any(toggle.label == GATE for toggle in app.toggle)
    assert "Logit lens: the residual stream" in said(app) and "Gate: what part of a head" in said(app)
    app = open_app("tiny-plain", CATS, PAGE, {"gate": "true"})
    fine(app)
    assert [toggle.label for toggle in app.toggle].count(GATE) == 0


def test_heads_stay_ranked_where_their_scores_are_not_kept_any_more(open_app):
    """The process forgets what was drawn longest ago; a story that it still has brings them along."""
    app = run_until(open_app("tiny-mta", "Heads stay ranked", PAGE), "the head gives")
    assert "Not scored yet" not in said(app)
    drawn = stores().drawn
    for key in [key for key in drawn._values if "scores" in key]:
        drawn._values.pop(key)
    app.run()
    fine(app)
    assert "Not scored yet" not in said(app) and app.button(key="ranked.0")


def test_arrows_move_the_selection_and_a_missing_stage_falls_back(open_app):
    app = open_app("tiny-mta", "Hello", PAGE, layer=0, head=0)
    app.button(key="step.layer.Down").click().run()
    app.button(key="step.head.Right").click().run()
    app.button_group[0].set_value("kq2").run()
    fine(app)
    assert (view_of(app)["l"], view_of(app)["h"], view_of(app)["s"]) == ("1", "1", "kq2")
    app.button(key="step.layer.Down").click().run()
    fine(app)
    assert view_of(app)["s"] == "final" and app.button(key="step.head.Left").disabled is False


def test_what_is_outside_the_prompt_is_corrected_and_labels_count_as_asked(open_app):
    app = open_app(
        "tiny-mta", "Hi", PAGE, {"numbering": "1"}, layer=99, head=2, query=999, key=999, stage="?"
    )
    fine(app)
    assert len(charts(app)) == 2
    selection = session_of(app).selection
    assert f"L{selection.layer + 1} H3" in said(app) and selection.head == 2


def test_one_token_says_there_is_nothing_to_see(open_app):
    app = open_app("no-tokenizer", (256,), PAGE)
    fine(app)
    assert "attends only to itself" in said(app)


def test_a_long_prompt_has_an_overview_a_part_and_a_search(open_app):
    prompt = "Oslo üüüüüüüüüü " * 60  # 26 bytes each
    app = open_app("tiny-mta", prompt, PAGE, {"crop": "0,64,0,64"}, layer=1, head=0)
    fine(run_until(app, "Draw a box to see"))
    assert len(charts(app)) == 3 and "Queries 0 to 63, keys 0 to 63." in said(app)
    borrowed(app.text_input, "search").set_value("OSLO").run()
    fine(app)
    assert "60 places" in [box.label for box in app.selectbox]
    app.button(key="show.query").click().run()
    fine(app)
    last = 1 + 59 * 26 + len("slo")  # BOS comes first; the last token sees the whole name
    assert view_of(app)["q"] == str(last) and "crop" not in view_of(app)
    assert f"Queries {last - 12} to {last + 11}" in said(app)  # the window around the selected cell


def test_a_named_span_is_what_scores_are_about_until_it_is_removed(open_app):
    app = open_app("tiny-mta", CATS, PAGE, {"tab": "Heads"}, layer=1, head=2)
    borrowed(app.text_input, "search").set_value("mat").run()
    app.button(key="span.add").click().run()
    fine(run_through(app, "Score all heads"))
    assert "gain on span, kq (nats)" in borrowed(app.selectbox, "score").options
    app.button(key="span.remove").click().run()
    fine(app)
    assert "gain on span, kq (nats)" not in borrowed(app.selectbox, "score").options


def test_scoring_a_long_prompt_is_asked_for(open_app):
    app = open_app("tiny-mta", "é" * 520, PAGE, {"tab": "Heads"}, layer=1, head=0)  # two bytes each
    fine(run_until(app, "Draw a box to see"))
    asked = len(app.get("plotly_chart"))
    assert "Score all heads" in [button.label for button in app.button]
    next(button for button in app.button if button.label == "Score all heads").click().run()
    fine(run_until(app, "A point is a head."))
    assert len(app.get("plotly_chart")) == asked + 2


def test_a_model_with_nan_is_drawn_and_never_gets_a_tick(open_app):
    app = open_app("tiny-nan", "Hello", PAGE, layer=1, head=0, stage="kq")
    assert not app.exception and len(charts(app)) == 1  # the window; there is no next token
    words = said(app)
    assert "logits after position" in words and "21 cells are NaN or inf, marked x" in words
    assert "Self-check NaN" in words and "✓" not in words
    assert "! NaN 1," in words and "! largest |tap|: NaN" in words
    assert "! gates below 0.05: NaN" in words and "! row sums of the final weights: NaN to NaN" in words


def test_a_prompt_of_some_hundred_tokens_is_whole_and_the_part_that_is_seen_is_saved(open_app):
    app = open_app(
        "tiny-mta", "the magic number of Oslo is 88. " * 10, PAGE, layer=1, head=0, query=300, key=8
    )
    fine(app)
    assert "321 tokens" in said(app) and "block" not in said(app)
    crops = r"keys (8 to 20|0 to 23)\."  # that it opens on, once the story is told and before
    assert re.search(crops, said(app))


def test_an_address_of_the_text_alone_leads_to_the_text_that_is_always_there(open_app):
    app = open_app("tiny-mta", CATS, PAGE, {"tab": "Text", "text side": "to the key"}, query=9, key=4)
    fine(app)
    assert "not on offer" not in said(app) and view_of(app)["text side"] == "to the key"


NEEDLES = "The magic number of Oslo is 88. Rain. The magic number of Rome is 17. The magic number of Oslo is"


def test_a_head_is_chosen_anew_for_another_prompt_unless_a_visitor_chose_one(open_app):
    app = run_until(open_app("tiny-mta", NEEDLES, PAGE), "the needle “Oslo”")
    first = view_of(app)
    assert "l" in first and first["s"] in ("kq", "kq2")
    borrowed(app.text_area, "prompt").set_value(CATS).run()
    app.button(key="run").click().run()
    run_until(app, "the head gives")
    fine(app)
    assert "Oslo" not in said(app).split("Examples")[0] and "l" in view_of(app)
    chosen = open_app("tiny-mta", NEEDLES, PAGE, layer=0, head=3)
    run_until(chosen, "Answer “")
    borrowed(chosen.text_area, "prompt").set_value(CATS).run()
    chosen.button(key="run").click().run()
    assert (view_of(chosen)["l"], view_of(chosen)["h"]) == ("0", "3")


def test_heads_are_ranked_by_the_task_on_its_prompts_and_by_what_they_do_here_on_others(monkeypatch):
    monkeypatch.delenv("MTA_VIZ_MODELS", raising=False)
    app = run_until(app_at(PAGE, ck="blocks-n5-mta").run(), "Answer “")
    assert "Answer without each: nats, n = 500." in said(app)
    borrowed(app.text_area, "prompt").set_value("abcdeabc").run()
    app.button(key="run").click().run()
    words = said(run_until(app, "the head gives"))
    fine(app)
    assert borrowed(app.selectbox, "ranked by").value == "on this prompt"
    assert "Answer without each" not in words
    assert "Not scored yet" not in words and view_of(app).get("ranked by") is None
    chosen = app_at(PAGE, ck="blocks-n5-mta", p="abcdeabc", **{"ranked by": "at its task"}).run()
    assert "Answer without each: nats, n = 500." in said(run_until(chosen, "the head gives"))


def test_a_switch_edits_the_kernel_and_the_strip_says_what_the_answer_loses(open_app):
    app = open_app("tiny-mta", NEEDLES, PAGE, {"inspector": "Edit"}, layer=1, head=2, stage="kq")
    run_until(app, "Answer “")
    borrowed(app.button_group, "switch.L1 H2 pre").set_value("identity").run()
    fine(app)
    words = said(app)
    assert "Plan: L1 H2 pre -> identity" in words.replace("*", "") and "nats → log-odds" in words.replace(
        "*", ""
    )
    assert view_of(app)["e"] == "i.1.2.pre"
    borrowed(app.button_group, "plan shown").set_value("difference").run()
    fine(app)
    shown = {figure.spec.side for figure in part_of(app, OnPage).values() if figure.spec.name == "edited-map"}
    assert shown == {"original", "edited", "difference"}
    assert (
        app.button(key="save.edited-map.2").label == "Map"
    )  # the difference that is seen, not the edited map
    borrowed(app.button_group, "switch.L1 H2 pre").set_value("learned").run()
    assert "e" not in view_of(app) and "Plan: " not in said(app).replace("*", "")


@pytest.mark.parametrize(
    ("older", "asked", "shown"),
    [
        ("attention", {"tab": "Cells"}, {"tab": "Cells"}),
        ("surgery", {"surgery tab": "Sweep"}, {"tab": "Rests on", "surgery tab": "Sweep"}),
        ("surgery", {}, {"tab": "Taps", "inspector": "Edit"}),
        ("compare", {"mode": "two prompts"}, {"tab": "Beside", "mode": "two prompts"}),
    ],
)
def test_links_to_pages_of_before_lead_to_their_view(open_app, older, asked, shown):
    app = open_app("tiny-mta", CATS, f"pages/{older}.py", asked, layer=1, head=2, stage="kq")
    assert not app.exception and "could not be restored" not in said(app)
    assert (shown | {"l": "1", "h": "2", "s": "kq"}).items() <= view_of(app).items()


def test_what_steps_changed_stands_beside_a_map_as_the_notebook_has_it(open_app, models_folder):
    app = open_app("tiny-mta", CATS, PAGE, {"tab": "Difference"}, layer=1, head=2, stage="kq")
    fine(run_until(app, "Score after minus before"))
    summary = head_statistics(capture(load(models_folder / "tiny-mta"), CATS), 1, 2).summary()
    facts, stages = summary.columns[2:], [stage for _, stage, *_ in summary.rows]
    (shown,) = (table.value for table in app.dataframe if "rows" in table.value)
    assert shown["rows"].tolist() == [*facts] and len(shown.columns) == 1 + len(stages) == 7
    for column, (_, _, *values) in zip(shown.columns[1:], summary.rows, strict=True):
        assert shown[column].tolist() == ["" if value is None else f"{value:.3g}" for value in values]

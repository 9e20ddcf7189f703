"""Both pages through streamlit's own test runner: alone, through the navigation, and in every trouble."""

import json
from math import inf, nan

import pytest
from streamlit.testing.v1 import AppTest

from mta_viz.analysis.attention.changes import SelfCheck
from mta_viz.tokenizers.builtin import BytesTokenizer
from mta_viz.ui.kernels.view import layers_with_kernels
from mta_viz.ui.shell import work
from mta_viz.ui.shell.link import Box
from mta_viz.ui.shell.preparing import check_line
from mta_viz.ui.shell.widgets import layer_list, plain
from tests.tiny_models import FULL, config
from tests.ui.driver import app_at, borrowed, charts, fine, part_of, run_until, said, session_of, view_of

ODD = "<b>$x$ :red[hi] \\ عربي 😀"


@pytest.mark.parametrize("page", ["pages/kernels.py"])
def test_kernels_draws_all_kinds_of_a_layer(open_app, page):
    app = open_app("tiny-mta", "Hello", page)
    borrowed(app.button_group, "part").set_value("One layer").run()
    fine(app)
    assert session_of(app).selection.layer == 1  # the first that has kernels
    assert len(charts(app)) == 4


def test_kernels_through_the_navigation_keeps_prompt_and_layer(open_app):
    app = open_app("tiny-mta", "Hello", layer=3, head=2)
    app.switch_page("pages/kernels.py").run()
    fine(app)
    assert app.text_area[0].value == "Hello" and session_of(app).selection.layer == 3
    app.switch_page("pages/workspace.py").run()
    fine(app)
    view = session_of(app).selection
    assert (view.layer, view.head) == (3, 2) and app.text_area[0].value == "Hello"


def test_a_layer_without_kernels_says_which_have_them(open_app):
    app = open_app("tiny-mta", "Hello", "pages/kernels.py", layer=0)
    borrowed(app.button_group, "part").set_value("One layer").run()
    fine(app)
    assert "Layers that have one: 1, 3" in said(app)
    assert layers_with_kernels(config(FULL, 258)) == [1, 3]


def test_a_model_without_kernels_says_so(open_app):
    app = open_app("tiny-plain", "Hello", "pages/kernels.py")
    fine(app)
    assert not charts(app) and "no key-query kernels" in said(app)


def test_without_models_of_ones_own_the_app_opens_on_the_needle_model(monkeypatch, tmp_path):
    monkeypatch.delenv("MTA_VIZ_MODELS", raising=False)
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    app = app_at().run()
    fine(app)
    assert view_of(app)["ck"] == "needle-mta" and "San Salvador" in app.text_area[0].value
    assert not any("cards" in option for option in borrowed(app.selectbox, "checkpoint").options)


def test_the_first_visit_runs_an_example(open_app):
    app = open_app("tiny-blocks")
    fine(app)
    assert "#" in app.text_area[0].value and len(charts(app)) == 2
    assert "the block “" in said(run_until(app, "the head gives"))


def test_an_odd_prompt_is_shown_letter_by_letter(open_app):
    app = open_app("tiny-mta", ODD)
    fine(app)
    assert app.text_area[0].value == ODD
    assert f"{len(BytesTokenizer().encode(ODD))} tokens" in said(app)
    assert "<0xF0>" in json.dumps(charts(app)).replace("&lt;", "<").replace("&gt;", ">")


def test_an_empty_prompt_says_what_to_do(open_app):
    app = open_app("tiny-mta", "Hello")
    app.text_area[0].set_value("").run()
    assert not app.exception and "Type something" in said(app)


def test_an_edited_prompt_is_stale_until_run(open_app):
    app = open_app("tiny-mta", "Hello")
    app.text_area[0].set_value("Hello there").run()
    assert "Prompt changed" in said(app)
    app.button(key="run").click().run()
    fine(app)
    assert "Prompt changed" not in said(app) and "12 tokens" in said(app)


def test_a_letter_the_tokenizer_lacks_is_named(open_app):
    app = open_app("tiny-blocks", "abc#ab")
    app.text_area[0].set_value("ABC").run()
    assert not app.exception and app.error and "A" in app.error[0].value


def test_a_broken_checkpoint_is_an_error_that_lists_its_faults(open_app):
    app = open_app("broken")
    assert not app.exception and "n_heads" in app.error[0].value.replace("\\", "")
    assert any("broken · cannot be read" in option for option in app.selectbox[0].options)


def test_an_unknown_checkpoint_in_the_link_is_said(open_app):
    app = open_app("gone")
    assert not app.exception and "gone" in app.warning[0].value


def test_a_folder_without_models_is_named_beside_those_found(open_app, models_folder, monkeypatch, tmp_path):
    from mta_viz.ui.shell import models

    gone = tmp_path / "gone"
    monkeypatch.setattr(models, "roots", lambda: (models_folder, gone))
    app = open_app("tiny-plain", "Hi")
    fine(app)
    assert f"{gone} is no folder" in said(app)


def test_params_without_weights_show_their_shapes(open_app, models_folder, monkeypatch, tmp_path):
    from mta_viz.ui.shell import models

    (tmp_path / "shapes").mkdir()
    text = (models_folder / "tiny-mta" / "params.json").read_text()
    (tmp_path / "shapes" / "params.json").write_text(text)
    monkeypatch.setattr(models, "roots", lambda: (tmp_path,))
    app = open_app("shapes")
    assert not app.exception and "shapes only" in app.error[0].value
    assert "parameters: " in said(app) and "L1: kernels before softmax 4x6x11" in said(app)


def test_without_models_the_page_says_where_it_looked(monkeypatch, tmp_path):
    from streamlit.testing.v1 import AppTest

    from mta_viz.ui.shell import models
    from tests.ui.driver import ROOT

    monkeypatch.setattr(models, "roots", lambda: (tmp_path,))
    app = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    assert not app.exception and plain(str(tmp_path)) in app.info[0].value


def test_without_its_tokenizer_ids_can_be_pasted(open_app):
    app = open_app("no-tokenizer")
    assert not app.exception and "tokenizer.model" in app.warning[0].value.replace("\\", "")
    app.text_area[0].set_value("[256, 72, 105]").run()
    app.button(key="run").click().run()
    fine(app)
    assert len(charts(app)) == 2 and "3 tokens" in said(app)


def test_run_after_a_change_of_model_takes_the_box_of_that_model(open_app):
    app = open_app("tiny-mta", "Hello")
    borrowed(app.selectbox, "checkpoint").select("no-tokenizer").run()
    app.text_area[0].set_value("256, 72, 105").run()
    app.button(key="run").click().run()
    fine(app)
    assert part_of(app, Box).run == (256, 72, 105) and "3 tokens" in said(app)


def test_ids_outside_the_vocabulary_are_refused(open_app):
    app = open_app("no-tokenizer")
    app.text_area[0].set_value("256, 9999").run()
    app.button(key="run").click().run()
    assert not app.exception and "9999" in app.error[0].value


def test_kernels_need_no_prompt(open_app):
    app = open_app("no-tokenizer", page="pages/kernels.py")
    fine(app)
    assert len(charts(app)) == 6  # key-query kernels, head mixing, the card of the largest


@pytest.mark.parametrize("errors", [(nan, 0.0), (0.0, nan), (inf, 0.0)])
def test_a_tick_needs_finite_numbers(errors):
    line = check_line(SelfCheck(*errors), exact=True)
    assert "NaN" in line and "✓" not in line
    assert check_line(SelfCheck(1e-6, 2e-6), exact=True) == "Self-check 2.0e-06 ✓"
    assert "✓" not in check_line(SelfCheck(1e-6, 2e-3), exact=True)


def test_the_sha256_of_large_weights_waits_for_a_button(open_app, monkeypatch):
    from mta_viz.ui.shell import preparing

    monkeypatch.setattr(preparing, "HASH_UP_TO", 1000)
    app = open_app("tiny-mta", "Hello")
    fine(app)
    assert "sha256: not computed" in said(app) and "NaN 0, infinite 0" in said(app)
    app.button(key="sha256").click().run()
    fine(app)
    assert "not computed" not in said(app)


def test_plain_escapes_all_markup():
    assert plain("a:smile:b: c") == "a:\u2060smile:\u2060b: c"
    assert plain("*x* $y$ :red[z]") == r"\*x\* \$y\$ :" + "\u2060" + r"red\[z\]"
    assert plain("&lt; www.x a@b") == r"\&lt; www" + "\u2060" + r"\.x a@" + "\u2060b"
    assert plain("one\ntwo") == "one  \ntwo"
    assert plain("“שלום עולם” 26 %") == "“\u2068שלום עולם\u2069” 26 %"  # or 26 stands before the words


def test_layers_in_a_row_are_a_range():
    assert layer_list((0, 2), 0) == "0, 2" and layer_list((8, 12, 13, 14), 1) == "9, 13–15"


def test_a_line_that_is_too_long_keeps_its_first_part_and_has_all_of_it_behind_its_sign():
    def script():
        from mta_viz.ui.shell.widgets import caption

        for text in (
            "Short. All of it.",
            "First *one*. Second, 0.5.",
            "Rows: queries; columns: keys, all of them",
        ):
            caption(text, 20)

    shown = AppTest.from_function(script).run().caption
    assert [line.value.replace("\\", "") for line in shown] == [
        "Short. All of it.",
        "First *one*.",
        "Rows: queries",
    ]
    behind = [line.proto.help.replace("\\", "") for line in shown]
    assert behind == ["", "First *one*. Second, 0.5.", "Rows: queries; columns: keys, all of them"]


def test_a_run_that_is_cut_short_takes_nothing_from_the_one_that_follows(open_app, monkeypatch):
    monkeypatch.setattr(
        work.Work, "take", lambda work: None
    )  # both wait for the same work; the first took it
    app = open_app("tiny-mta", "Taken before")
    fine(app)
    assert "Stopped" not in said(app) and charts(app)


def test_run_without_a_prompt_does_not_begin_the_one_before_anew(open_app, monkeypatch):
    forgotten = []
    app = open_app("tiny-mta", "Hello")
    app.text_area[0].set_value("").run()
    monkeypatch.setattr(work, "forget", forgotten.append)
    app.button(key="run").click().run()
    assert not forgotten and "Type something" in said(app) and charts(app)

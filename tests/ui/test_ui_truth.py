"""What is chosen, said and shown is one thing, also after an example, an unusable prompt and an odd link."""

import pytest

from mta_viz.ui.shell import models
from mta_viz.ui.shell.page import ASSETS
from tests.tiny_models import write_models
from tests.ui.driver import borrowed, charts, fine, said, session_of, view_of


@pytest.fixture
def unkept(monkeypatch, tmp_path):
    """The app where prompts cannot be kept: their folder would lie in a file."""

    def after(open_app, *opened, **more):
        (tmp_path / "file").touch()
        app = open_app(*opened, **more)
        monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "file" / "prompts"))
        return app

    return after


def header(app) -> str:
    """The line that says what is shown."""
    return next(text.value for text in app.get("text") if "·" in text.value)


@pytest.mark.parametrize("unusable", ["ABC", ""])
def test_an_unusable_prompt_leaves_the_last_run_marked_as_such(open_app, unusable):
    app = open_app("tiny-blocks", "abc#ab", layer=1, head=1)
    shown, line = charts(app), header(app)
    app.text_area[0].set_value(unusable).run()
    app.button(key="run").click().run()
    assert not app.exception and charts(app) == shown and header(app) == line
    assert "previous run" in said(app) and view_of(app)["p"] == "abc#ab"
    app.text_area[0].set_value("abd#ab").run()
    app.button(key="run").click().run()
    fine(app)
    assert "previous run" not in said(app) and view_of(app)["p"] == "abd#ab"
    assert (borrowed(app.selectbox, "layer").value, borrowed(app.selectbox, "head").value) == (1, 1)


def test_a_prompt_a_model_cannot_take_is_run_in_one_that_can(open_app):
    app = open_app("tiny-blocks", "ABC")
    assert len(app.error) == 1 and "Remove or replace" in said(app)
    app.button(key="offer").click().run()
    fine(app)
    assert view_of(app)["ck"] != "tiny-blocks" and view_of(app)["p"] == "ABC" and charts(app)


def test_an_example_chooses_head_and_stage_anew_and_closes_its_list(open_app):
    app = open_app("tiny-mta", "Hello", layer=1, head=2, stage="raw")
    examples = [button for button in app.button if str(button.key).startswith("example.")]
    app.session_state["examples"] = True
    examples[0].click().run()
    fine(app)
    assert view_of(app)["s"] != "raw"
    assert app.session_state["examples"] is False


def test_ones_own_first_model_opens_first(open_app, tmp_path, monkeypatch):
    folder = write_models(tmp_path / "own")
    monkeypatch.setattr("sys.argv", ["app.py", "--models", str(folder)])
    monkeypatch.delenv("MTA_VIZ_MODELS", raising=False)
    assert models.roots() == (folder, ASSETS)
    app = open_app()
    assert session_of(app).selection.checkpoint not in {path.name for path in ASSETS.iterdir()}


def test_a_link_without_its_long_prompt_says_so_and_opens_the_rest(open_app, unkept):
    app = unkept(open_app, "tiny-mta")
    app.text_area[0].set_value("ab " * 400).run()
    app.button(key="run").click().run()
    assert view_of(app)["kept"] == "none" and "send it along" in said(app)
    again = open_app("tiny-mta", settings={"kept": "none", "tab": "Cells"}, layer=1, query=900)
    fine(again)
    assert "too long" in said(again) and view_of(again)["l"] == "1" and view_of(again)["tab"] == "Cells"

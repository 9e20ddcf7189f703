"""A run is saved from the page and opened again: with its model on the page, without it as stored maps."""

import json
import os
from pathlib import Path

import pytest
import torch

from mta_viz.model.editing import edited
from mta_viz.model.interventions import KernelToIdentity
from mta_viz.model.stages import Stage
from mta_viz.printed import size_text
from mta_viz.run.files import open_trace, save_trace, trace_size
from mta_viz.run.trace import StoredTrace
from mta_viz.run.tracing import capture, load
from mta_viz.ui.shell import saved_runs
from mta_viz.ui.shell.saved_runs import Opened
from tests.ui.driver import charts, fine, part_of, said

PROMPT = "Hello <b>again</b>"
CHOICES = {"layer": 1, "head": 2, "stage": "kq"}


@pytest.fixture
def saved(models_folder, tmp_path):
    """`saved("tiny-mta", stages=...)`: a file of a run of the prompt."""

    def save(checkpoint, prompt=PROMPT, plan=(), **chosen) -> Path:
        model = load(models_folder / checkpoint)
        trace = capture(edited(model, plan) if plan else model, prompt)
        return save_trace(trace, tmp_path / f"{checkpoint}.safetensors", **chosen)

    return save


@pytest.fixture
def in_the_page(monkeypatch):
    """A window's widgets run it alone, which streamlit's test runner cannot: draw it in the sidebar."""

    def draw(window):
        buttons = saved_runs.draw_saved_runs
        monkeypatch.setattr(saved_runs, "draw_saved_runs", lambda page: (buttons(page), window(page)))

    return draw


@pytest.fixture
def opened(in_the_page, open_app):
    """`opened(file, "tiny-mta", "prompt")`: the page with this file in its window."""

    def start(file: Path, checkpoint="tiny-mta", prompt=PROMPT):
        in_the_page(saved_runs.draw_open)
        return put_in(open_app(checkpoint, prompt, **CHOICES), file)

    return start


def put_in(app, file: Path):
    app.file_uploader(key="run.upload").upload(file.name, file.read_bytes(), "application/octet-stream")
    return app.run()


@pytest.mark.parametrize(
    ("key", "words"), [("run.save", "One safetensors file"), ("run.open", "--format run")]
)
def test_the_sidebar_opens_both_windows(open_app, key, words):
    app = open_app("tiny-mta", PROMPT, **CHOICES)
    app.button(key=key).click().run()
    fine(app)
    assert words in said(app)


def test_attention_dumps_are_shown_as_maps_with_their_limits(open_app, in_the_page, monkeypatch, tmp_path):
    folder = tmp_path / "a-dump" / "0"
    folder.mkdir(parents=True)
    torch.save(torch.randn(1, 2, 5, 5).tril(), folder / "attn_dump.01.0")
    in_the_page(saved_runs.draw_open)
    monkeypatch.setenv("MTA_VIZ_MODELS", os.pathsep.join([os.environ["MTA_VIZ_MODELS"], str(tmp_path)]))
    app = open_app("tiny-mta", PROMPT, **CHOICES)
    app.selectbox(key="run.dump").set_value(folder.parent).run()
    fine(app)
    assert "maps only: final weights alone" in said(app) and "of several packed prompts" in said(app)
    assert app.selectbox(key="run.layer").options == ["L1"] and len(charts(app)) >= 2


def test_the_window_says_the_size_and_gives_the_file(open_app, in_the_page, models_folder):
    in_the_page(saved_runs.draw_save)
    trace = capture(load(models_folder / "tiny-mta"), PROMPT)
    app = open_app("tiny-mta", PROMPT, **CHOICES)
    assert f"**{size_text(trace_size(trace))}**" in said(app)
    app.multiselect(key="run.stages").set_value([Stage.KQ]).run()
    app.multiselect(key="run.layers").set_value([3]).run()
    fine(app)
    assert f"**{size_text(trace_size(trace, stages=[Stage.KQ], layers=[3]))}**" in said(app)
    (button,) = [one for one in app.get("download_button") if one.proto.label == "Save"]
    assert button.proto.url or button.proto.deferred_file_id


def test_what_is_too_large_for_a_browser_is_refused_with_the_command(open_app, in_the_page, monkeypatch):
    monkeypatch.setattr(saved_runs, "MOST_MB", 0.001)
    in_the_page(saved_runs.draw_save)
    app = open_app("tiny-mta", PROMPT)
    assert "trace PATH ... --format run --out FILE" in said(app)


def test_with_its_model_a_file_gives_prompt_and_run_without_computing(opened, saved, monkeypatch):
    file = saved("tiny-mta", stages=[Stage.KQ])
    app = opened(file, prompt="another prompt")
    fine(app)
    assert f"{len(PROMPT) + 1} tokens through tiny-mta, float32." in said(app)
    ran = []
    monkeypatch.setattr("mta_viz.ui.shell.models.trace_of", lambda *_: ran.append(1))
    app.button(key="run.show").click().run()
    fine(app)
    assert not ran
    assert app.text_area[0].value == PROMPT
    assert "This run was read from tiny-mta.safetensors, not computed here." in said(app)
    assert isinstance(part_of(app, Opened).run.trace, StoredTrace)
    monkeypatch.undo()


def test_the_computed_run_is_one_click_away(opened, saved):
    app = opened(saved("tiny-mta"), prompt="another")
    app.button(key="run.show").click().run()
    app.button(key="run.forget").click().run()
    fine(app)
    assert "not computed here" not in said(app)
    assert part_of(app, Opened).run is None and app.text_area[0].value == PROMPT


def test_without_its_model_the_stored_maps_are_shown(opened, saved):
    file = saved("tiny-plain", stages=[Stage.RAW], layers=[2])
    app = opened(file)
    fine(app)
    assert "Without its checkpoint only the stored maps are here" in said(app)
    assert [one.key for one in app.button if one.key == "run.show"] == []
    assert app.selectbox(key="run.layer").options == ["L2"]
    (figure,) = [one for one in charts(app) if "L2 H0 · raw scores" in json.dumps(one, ensure_ascii=False)]
    cells = next(one for one in figure["data"] if one["type"] == "heatmap")
    assert cells["zmax"] > 0
    assert open_trace(file).map(2, Stage.RAW, 0).shape == (19, 19)


def test_a_prompt_the_pages_tokenizer_cannot_write_is_shown_all_the_same(opened, saved):
    app = opened(saved("tiny-mta", stages=[Stage.RAW]), "tiny-blocks", "abc#a")
    fine(app)
    assert "Without its checkpoint only the stored maps are here" in said(app)
    assert app.selectbox(key="run.layer").options == ["L0", "L1", "L2", "L3"]


def test_a_file_without_maps_says_where_they_are(opened, saved):
    app = opened(saved("tiny-plain"))
    fine(app)
    assert "The file stores no maps. Choose its checkpoint in the sidebar" in said(app)


def test_an_edited_run_is_shown_in_the_window_with_every_stage(opened, saved):
    file = saved("tiny-mta", plan=[KernelToIdentity(1, 2, "pre")])
    app = opened(file)
    fine(app)
    assert "Interventions: L1 H2 pre -> identity." in said(app)
    assert app.selectbox(key="run.layer").options == ["L0", "L1", "L2", "L3"]


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "no safetensors file"), (b"abc" * 99, "no safetensors file")]
)
def test_a_damaged_file_is_refused_and_the_page_stays(opened, tmp_path, content, words):
    file = tmp_path / "broken.safetensors"
    file.write_bytes(content)
    app = opened(file)
    assert not app.exception
    assert words in said(app) and "broken.safetensors cannot be opened as a saved run" in said(app)


def test_an_opened_run_reaches_this_session_only(opened, open_app, saved, models_folder):
    app = opened(saved("tiny-mta"), prompt="x")
    app.button(key="run.show").click().run()
    other = open_app("tiny-mta", PROMPT, **CHOICES)
    fine(other)
    assert "not computed here" not in said(other)
    trace = capture(load(models_folder / "tiny-mta"), PROMPT)
    assert torch.equal(part_of(app, Opened).run.trace.residuals, trace.residuals)

"""The prompt in a link: out and back the same, and what cannot be restored is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from streamlit.testing.v1 import AppTest

from mta_viz.ui.shell import link
from mta_viz.ui.shell.address import with_parameters
from mta_viz.ui.shell.link import MAX_CHARACTERS, examples, parameters, read
from tests.ui.driver import ROOT, charts, fine, run_through, said, session_of, view_of

ODD = "<b>$x$ :red[hi] \\ عربي 😀 & p=1#?"


@given(some.text(min_size=1, max_size=50) | some.lists(some.integers(0, 99999), min_size=1).map(tuple))
def test_a_short_prompt_comes_back_from_its_link(prompt):
    found = parameters(prompt)
    assert len(found) == 1 and read(found) == (prompt, "")


def test_an_example_goes_by_its_name_however_long():
    for example in examples():
        assert parameters(example.text) == {"ex": example.name}
        assert read({"ex": example.name}) == (example.text, "")


def test_a_long_prompt_goes_by_its_id(tmp_path, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    for prompt in ("x" * (MAX_CHARACTERS + 1), tuple(range(1000)), " 1,2" * 1000):
        found = parameters(prompt)
        assert list(found) == ["kept"] and read(found) == (prompt, "")
    assert parameters("x" * MAX_CHARACTERS).keys() == {"p"} and not parameters(None) and not parameters("")
    assert "kept on the machine" in read({"kept": "0" * 20})[1]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"ex": "no such example"}, "no such example"),
        ({"p": "x" * (MAX_CHARACTERS + 1)}, "1,001 characters"),
        ({"ids": "1,two"}, "could not be read"),
        ({"ids": "1," * MAX_CHARACTERS}, "2,000 characters"),
    ],
)
def test_what_a_link_cannot_restore_is_said(found, says):
    prompt, problem = read(found)
    assert prompt is None and says in problem


def opened(open_app, checkpoint, **found):
    """The app opened by a link with these parameters."""
    open_app()  # sets where models are looked for
    fresh = AppTest.from_file(ROOT / "app.py", default_timeout=120)
    for name, value in ({"ck": checkpoint} | found).items():
        fresh.query_params[name] = value
    return fresh.run()


def test_a_link_restores_prompt_selection_and_figures(open_app):
    first = open_app("tiny-mta", ODD, layer=1, head=2, stage="kq", query=9, key=4)
    fine(first)
    found = view_of(first)
    assert found == {"ck": "tiny-mta", "l": "1", "h": "2", "s": "kq", "q": "9", "k": "4", "p": ODD}
    again = opened(open_app, **{"checkpoint" if name == "ck" else name: one for name, one in found.items()})
    fine(again)
    assert again.text_area[0].value == ODD and "on this prompt" in said(again)
    assert charts(again) == charts(first)


def test_a_long_prompt_comes_back_on_its_own_machine(open_app):
    app = open_app("tiny-mta")
    app.text_area[0].set_value("ab " * 400).run()
    app.button(key="run").click().run()
    fine(run_through(app, "story"))
    assert "this machine keeps it" in said(app) and "p" not in app.query_params
    found = view_of(app)
    again = run_through(opened(open_app, found.pop("ck"), **found), "story")
    fine(again)
    assert again.text_area[0].value == "ab " * 400 and charts(again) == charts(app)


def test_a_link_restores_the_settings_of_its_page(open_app):
    first = open_app("tiny-mta", ODD, settings={"tab": "Cells"})
    (numbering,) = [box for box in first.selectbox if box.label == "Layers and heads"]
    numbering.set_value(1).run()
    assert "".join(first.query_params["tab"]) == "Cells" and "".join(first.query_params["numbering"]) == "1"
    again = opened(open_app, "tiny-mta", p=ODD, tab="Cells", numbering="1")
    fine(again)
    assert session_of(again).values["tab"] == "Cells" and "L1 · " not in said(again)
    assert "could not be restored" not in said(again)


def test_settings_that_cannot_be_restored_are_said(open_app):
    app = opened(open_app, "tiny-mta", p=ODD, tab="Gone", numbering="7", colour="red", embed="true")
    fine(app)
    told = said(app)
    assert "could not be restored" in told and "Gone" in told and "colour=red" in told and "7" in told
    assert "embed" not in told
    app.button(key="run").click().run()
    assert "could not be restored" not in said(app)


def test_a_prompt_that_takes_long_waits_for_run(open_app, monkeypatch):
    monkeypatch.setattr(link, "QUICK", 0)
    app = opened(open_app, "tiny-mta", p="Hello")
    assert app.text_area[0].value == "Hello" and not charts(app)
    assert "Press Run to see this prompt." in said(app)
    app.button(key="run").click().run()
    assert charts(app)


def test_a_wrong_link_says_so_until_something_is_run(open_app):
    app = opened(open_app, "tiny-mta", ex="gone")
    fine(app)
    assert "names the example 'gone'" in said(app) and charts(app)
    app.text_area[0].set_value("Hello").run()
    app.button(key="run").click().run()
    assert "gone" not in said(app)


def test_a_link_to_a_model_of_an_endless_name_is_told_in_short(open_app):
    app = open_app("9" * 5000)
    (warning,) = (each.value for each in app.warning if "names the model" in each.value)
    assert len(warning) < 400


def test_ids_on_a_model_that_takes_text_are_said(open_app):
    app = opened(open_app, "tiny-mta", ids="1,2,3")
    fine(app)
    assert "token ids, and this model takes a text" in said(app)


@pytest.mark.parametrize("url", ["http://host:8501", "http://host:8501/", "http://host:8501/?old=1#part"])
def test_a_link_has_a_slash_after_its_host(url):
    assert with_parameters(url, {"p": "a b"}) == "http://host:8501/?p=a+b"
    assert with_parameters("https://host/base/kernels?l=1", {"l": "2"}) == "https://host/base/kernels?l=2"

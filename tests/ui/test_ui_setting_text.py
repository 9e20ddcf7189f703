"""Settings, crops, spans and long prompts in an address: out and back the same, nonsense refused."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mta_viz.analysis.attention.spans import Span
from mta_viz.ui.shell import kept_prompts, link
from mta_viz.ui.shell.link import Box
from mta_viz.ui.shell.pickers import Crop
from mta_viz.ui.shell.state import MAX_CHARACTERS, from_text, to_text
from tests.ui.driver import fine, part_of, run_through, said


@given(some.booleans() | some.integers(-(10**9), 10**9) | some.text(max_size=MAX_CHARACTERS))
def test_a_value_comes_back_as_it_was(value):
    kind = type(value)()
    assert from_text(to_text(value), kind) == value and type(from_text(to_text(value), kind)) is type(value)


@given(some.lists(some.sampled_from([2, 4, "pre", "all stages"]), unique=True))
def test_a_choice_of_several_comes_back_from_the_options(chosen):
    assert from_text(to_text(chosen), [], [2, 4, "pre", "all stages"]) == chosen


def test_an_option_keeps_its_kind():
    places = [(1, 4), (12, 14)]
    assert from_text(to_text((12, 14)), (1, 4), places) == (12, 14)
    assert from_text("0", 1, (0, 1)) == 0 and from_text("50", 25, ("anywhere", 25, 50)) == 50


@pytest.mark.parametrize(
    ("text", "default", "options", "within"),
    [
        ("Heads", "Cells", ["Cells", "Text"], None),
        ("pre,mid", [], ["pre", "post"], None),
        ("four", 4, None, None),
        ("9", 4, None, (1, 8)),
        ("yes", True, None, None),
        ("x" * 201, "", None, None),
        ("9" * 199, 0, None, None),
        ("nan", 0.5, None, None),
    ],
)
def test_what_is_none_is_refused(text, default, options, within):
    with pytest.raises(ValueError, match=text[-9:] if "," not in text else "mid"):
        from_text(text, default, options, within)


def test_what_has_no_text_stays_out():
    for value in (None, object(), "x" * 201, ["a,b"], [object()]):
        assert to_text(value) is None


SPANS = (Span("Oslo, $x$", "A", 3, 9), Span("question", "?", 9, 12))


def test_crop_and_spans_come_back():
    found = link.place_parameters(Crop((0, 128), (40, 168)), SPANS)
    assert found["crop"] == "0,128,40,168"
    assert link.read_crop(found) == Crop((0, 128), (40, 168))
    assert link.read_spans(found, 12) == SPANS
    assert link.read_spans(found, 11) is None  # another prompt: the question would end outside
    assert link.place_parameters(None, None) == {} and link.read_spans({"spans": "[]"}, 5) == ()


@pytest.mark.parametrize(
    "text",
    ["1", '[["a","A",1]]', '[["a","A",1,true]]', '[["a","AB",0,1]]', "[" * 999, '[["\\ud800","A",0,1]]'],
)
def test_spans_that_are_none_are_left_out(text):
    assert link.read_spans({"spans": text}, 100) is None


@pytest.mark.parametrize("text", ["", "1,2,3", "0,0,0,4", "0,300,0,4", "-1,3,0,4", "a,b,c,d"])
def test_a_crop_that_is_none_is_left_out(text):
    assert link.read_crop({"crop": text}) is None


def test_a_long_prompt_is_found_by_its_id(tmp_path, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "kept"))
    prompt = "line\r\none 😀\n" * 500
    name = kept_prompts.keep(prompt)
    assert kept_prompts.keep(prompt) == name and kept_prompts.find(name) == prompt
    assert kept_prompts.find("0" * 20) is None and kept_prompts.find("../../etc/passwd") is None
    (tmp_path / "kept" / name).write_text("changed")
    assert kept_prompts.find(name) is None
    assert kept_prompts.keep(prompt) == name and kept_prompts.find(name) == prompt  # mended


def test_only_so_many_prompts_are_kept_and_none_goes_for_another(tmp_path, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    monkeypatch.setattr(kept_prompts, "MAX_KEPT", 3)
    names = [kept_prompts.keep(f"prompt {number}") for number in range(5)]
    assert names[3:] == [None, None] and kept_prompts.keep("prompt 0") == names[0]
    os.utime(tmp_path / names[1], (0, 0))  # nobody used it for years
    assert kept_prompts.keep("prompt 5") is not None
    assert [kept_prompts.find(name) for name in names[:3]] == ["prompt 0", None, "prompt 2"]


def test_a_session_keeps_so_many_and_so_much_and_nobody_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    own, other = kept_prompts.Own(), kept_prompts.Own()
    names = [kept_prompts.keep(f"prompt {number}", own) for number in range(kept_prompts.MAX_OWN + 5)]
    assert all(names[: kept_prompts.MAX_OWN]) and not any(names[kept_prompts.MAX_OWN :])
    assert kept_prompts.keep("prompt 0", own) and kept_prompts.keep("of another", other)
    assert kept_prompts.keep("x" * (kept_prompts.MAX_TEXT + 1), other) is None


def test_threads_that_keep_the_same_all_get_its_id(tmp_path, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(lambda at: kept_prompts.keep(f"prompt {at % 60}"), range(480)))
    assert None not in names and len(set(names)) == len(list(tmp_path.iterdir())) == 60


def test_threads_find_room_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    monkeypatch.setattr(kept_prompts, "MAX_KEPT", 3)
    with ThreadPoolExecutor(16) as threads:
        names = list(threads.map(lambda at: kept_prompts.keep(f"prompt {at}"), range(48)))
    assert len(list(tmp_path.iterdir())) == 3 and len(list(filter(None, names))) == 3


@pytest.mark.parametrize("kept", ["5", "[1, true]", '{"a": 1}', "[" * 100_000, "not JSON"])
def test_what_is_kept_and_is_no_prompt_is_said(tmp_path, monkeypatch, kept):
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path))
    name = kept_prompts.keep(kept)
    prompt, problem = link.read({"kept": name})
    assert prompt is None and "paste it into the box" in problem
    with pytest.raises(ValueError, match="not here"):
        kept_prompts.text_at(f"kept:{name}")


def test_where_nothing_can_be_kept_there_is_no_id(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "file" / "below"))
    assert kept_prompts.keep("text") is None


def test_a_text_of_too_many_characters_is_refused_beside_its_box_and_cut_by_a_button(open_app, monkeypatch):
    monkeypatch.setattr("mta_viz.tokenizers.base.MOST_CHARACTERS", 40)
    app = open_app("tiny-mta", "ab " * 30)
    assert "the prompt has 90 characters, and one may have 40" in said(app) and not app.exception
    app.button(key="cut.middle").click().run()
    run_through(app, "run")
    fine(app)
    assert part_of(app, Box).text == ("ab " * 30)[:20] + ("ab " * 30)[-20:]

"""`attribute`: the notebook's numbers, files, and what is refused."""

import json

import pytest
from cli_support import assert_refused

import mta_viz
from mta_viz.analysis.cause import attribution_path
from mta_viz.model.stages import Stage

PROMPT = "abc.def#b"
CASES = (
    ((), {}),
    (("--baseline", "7", "--position", "4"), {"baseline": 7, "position": 4}),
    (
        ("--method", "ablation", "--spans", "1:4,5:7", "--baseline", "3"),
        {"method": "ablation", "groups": ((1, 2, 3), (5, 6)), "baseline": 3},
    ),
    (("--method", "ablation"), {"method": "ablation"}),
    (
        ("--layer", "1", "--stage", "hook_scores_kq", "--method", "ablation"),
        {"layer": 1, "stage": Stage.KQ, "method": "ablation"},
    ),
    (("--layer", "1", "--stage", "raw", "--seconds", "9"), {"layer": 1, "stage": Stage.RAW}),
)


@pytest.mark.parametrize(("options", "named"), CASES)
def test_the_numbers_are_the_notebooks(run, folder, options, named):
    answer = run("attribute", folder, "--prompt", PROMPT, "--answer", "ef", *options)
    assert answer.status == 0, answer.err
    found = mta_viz.attribute(mta_viz.load(folder), PROMPT, answer="ef", **named)
    assert answer.json == json.loads(json.dumps(found.as_data())) | {"computed_in": "float32"}
    assert len(answer.json["values"]) > 0 and answer.json["answer"]["text"] == "ef"


@pytest.mark.parametrize("options", [(), ("--heads", "--stage", "mix")])
def test_gradients_that_are_not_complete_are_said_to_be_rough(run, folder, monkeypatch, options):
    monkeypatch.setattr(attribution_path, "MOST_STEPS", 0)
    monkeypatch.setattr(attribution_path, "STEPS", 1)
    monkeypatch.setattr(attribution_path, "FIRST", 1)
    answer = run("attribute", folder, "--prompt", PROMPT, "--answer", "ef", *options)
    assert answer.status == 0 and "values are rough; allow more --seconds" in answer.err
    assert '"reached": false' in answer.out


@pytest.mark.parametrize(("options", "named"), [((), {}), (("--layer", "1"), {"layers": [1]})])
def test_every_heads_numbers_are_the_notebooks(run, folder, options, named):
    words = ("--answer", "ef", "--position", "6", "--heads", "--stage", "mix", *options)
    answer = run("attribute", folder, "--prompt", PROMPT, *words)
    assert answer.status == 0, answer.err
    model = mta_viz.load(folder)
    found = mta_viz.attribute_heads(model, PROMPT, Stage.MIX, answer="ef", position=6, **named)
    assert answer.json == json.loads(json.dumps(found.as_data())) | {"computed_in": "float32"}
    assert [len(one["sizes"]) for one in answer.json["layers"]] == [4] * (1 if named else 2)


@pytest.mark.parametrize("word", ["direct-effect", "responsibility"])
@pytest.mark.parametrize(
    ("options", "layer", "count"),
    [((), None, 8), (("--layer", "1", "--whole", "2"), 1, 2), (("--whole", "0"), None, 0)],
)
def test_direct_effects_are_the_notebooks_by_both_words(run, folder, word, options, layer, count):
    words = ("--answer", "ef", "--position", "6", "--answer-token", "1", *options)
    answer = run(word, folder, "--prompt", PROMPT, *words)
    assert answer.status == 0, answer.err
    found = mta_viz.direct_effect(mta_viz.load(folder), PROMPT, answer="ef", position=6, place=1)
    removed = mta_viz.whole_effects(found, layer=layer, count=count).as_data()
    assert answer.json == json.loads(json.dumps(found.as_data(layer) | {"removed": removed})) | {
        "computed_in": "float32"
    }
    assert len(answer.json["removed"]["cells"]) == count
    assert answer.json["position"] == 7 and ("values" in answer.json) == (layer is not None)
    model = mta_viz.load(folder)
    e, f = found.answer.ids
    read = mta_viz.capture(model, (*mta_viz.capture(model, PROMPT).tokens.ids[:7], e))
    assert answer.json["logit"] == pytest.approx(float(read.logits()[7, f]), abs=1e-4)


def test_a_file_is_written_and_not_replaced(run, folder, tmp_path):
    out = tmp_path / "out.json"
    answer = run("attribute", folder, "--prompt", PROMPT, "--out", out)
    assert json.loads(out.read_text()) == answer.json and answer.json["answer"]["source"] == "block"
    assert_refused(run("attribute", folder, "--prompt", PROMPT, "--out", out), "out.json")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--layer", "1"), "a layer and a stage go together"),
        (("--stage", "nothing", "--layer", "1"), "is no stage; expected hook_attn_scores"),
        (("--heads",), "--heads needs the maps' stage"),
        (("--heads", "--stage", "kq", "--layer", "0"), "exists in the layers [1]; asked for: [0]"),
        (("--heads", "--stage", "kq", "--baseline", "zero"), "leave out --method"),
        (("--baseline", "best"), "expected zero, mean, bos, or a token's id"),
        (("--baseline", "9" * 5000), "expected zero, mean, bos, or a token's id"),
        (("--baseline", "mean", "--method", "ablation"), "is no token's id"),
        (("--baseline", "zero"), "comes in the first 1 % of the path"),
        (("--position", "99"), "position 99 does not exist"),
        (("--spans", "0:99", "--method", "ablation"), "expected positions of 0 to"),
    ],
)
def test_what_cannot_be_done_is_told(run, folder, options, told):
    assert_refused(run("attribute", folder, "--prompt", PROMPT, *options), told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--layer", "2"), "layer 2 does not exist; expected 0 to 1"),
        (("--answer", "ef", "--answer-token", "2"), "the answer has no token 2; expected 0 to 1"),
    ],
)
def test_no_direct_effect_where_there_is_nothing(run, folder, options, told):
    assert_refused(run("direct-effect", folder, "--prompt", PROMPT, *options), told)

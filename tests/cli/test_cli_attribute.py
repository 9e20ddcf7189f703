"""`attribute`: the notebook's numbers, files, and what is refused."""

import json

import pytest
from cli_support import assert_refused

import mta_viz
from mta_viz.model.stages import Stage

PROMPT = "abc.def#b"
CASES = (
    ((), {}),
    (("--baseline", "zero", "--position", "4"), {"baseline": "zero", "position": 4}),
    (
        ("--method", "ablation", "--spans", "1:4,5:7", "--baseline", "3"),
        {"method": "ablation", "groups": ((1, 2, 3), (5, 6)), "baseline": 3},
    ),
    (("--method", "ablation"), {"method": "ablation"}),
    (
        ("--layer", "1", "--stage", "hook_scores_kq", "--method", "ablation"),
        {"layer": 1, "stage": Stage.KQ, "method": "ablation"},
    ),
    (("--layer", "1", "--stage", "raw"), {"layer": 1, "stage": Stage.RAW}),
)


@pytest.mark.parametrize(("options", "named"), CASES)
def test_the_numbers_are_the_notebooks(run, folder, options, named):
    answer = run("attribute", folder, "--prompt", PROMPT, "--answer", "ef", *options)
    assert answer.status == 0, answer.err
    found = mta_viz.attribute(mta_viz.load(folder), PROMPT, answer="ef", **named)
    assert answer.json == json.loads(json.dumps(found.as_data()))
    assert len(answer.json["values"]) > 0 and answer.json["answer"]["text"] == "ef"


def test_a_file_is_written_and_not_replaced(run, folder, tmp_path):
    out = tmp_path / "out.json"
    answer = run("attribute", folder, "--prompt", PROMPT, "--out", out)
    assert json.loads(out.read_text()) == answer.json and answer.json["answer"]["source"] == "likeliest"
    assert_refused(run("attribute", folder, "--prompt", PROMPT, "--out", out), "out.json")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--layer", "1"), "a layer and a stage go together"),
        (("--stage", "nothing", "--layer", "1"), "is no stage; expected hook_attn_scores"),
        (("--baseline", "best"), "expected zero, mean, or a token's id"),
        (("--baseline", "mean", "--method", "ablation"), "is no token's id"),
        (("--position", "99"), "position 99 does not exist"),
        (("--spans", "0:99", "--method", "ablation"), "expected positions of 0 to"),
    ],
)
def test_what_cannot_be_done_is_told(run, folder, options, told):
    assert_refused(run("attribute", folder, "--prompt", PROMPT, *options), told)

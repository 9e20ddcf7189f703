"""`compare`: the notebook's numbers for two models, two prompts, a plan, and a model's own twin."""

import json

import pytest
from cli_support import CONFIG, assert_refused

import mta_viz
from mta_viz.checkpoint.native import write_native
from mta_viz.model.interventions import AblateHead, MixingToIdentity
from mta_viz.model.plans import plan_as_data

PROMPT, OTHER = "abc.def#b", "abc.dgf#b"
PLAN = (MixingToIdentity(0, "head_pre"), AblateHead(0, 2))


@pytest.fixture(scope="module")
def second(tmp_path_factory, model):
    """The model with its embedding turned upside down: of the same shape, and no kin."""
    weights = {**model.state_dict(), "embed.weight": -model.state_dict()["embed.weight"]}
    folder = tmp_path_factory.mktemp("checkpoint") / "second"
    write_native(folder, CONFIG, weights, tokenizer_name="char", tokenizer_path=None, dtype=None)
    return folder


def as_printed(found) -> dict:
    """What the command prints: NaN is null."""
    return json.loads(json.dumps(found.as_data()).replace("NaN", "null"))


def test_two_models_are_the_notebooks(run, folder, second, tmp_path):
    answer = run(
        "compare", folder, second, "--prompt", PROMPT, "--answer", "ef", "--out", tmp_path / "out.json"
    )
    assert answer.status == 0, answer.err
    found = mta_viz.compare(mta_viz.load(folder), mta_viz.load(second), PROMPT, answer="ef")
    assert answer.json == as_printed(found) | {"computed_in": "float32"}
    assert answer.json["pairs"]["rule"] == "similarity" and "trained apart" in answer.json["pairs"]["why"]
    assert json.loads((tmp_path / "out.json").read_text())["answers"] == answer.json["answers"]


def test_two_prompts_and_plans_are_the_notebooks(run, folder, tmp_path):
    model = mta_viz.load(folder)
    answer = run("compare", folder, "--prompt", PROMPT, "--prompt-b", OTHER)
    assert answer.json == as_printed(mta_viz.compare(model, None, PROMPT, prompt_b=OTHER)) | {
        "computed_in": "float32"
    }
    assert answer.json["unlike_positions"] == [6] and answer.json["kernels"] == []  # 0 is the beginning
    (tmp_path / "plan.json").write_text(json.dumps(plan_as_data(PLAN)))
    answer = run("compare", folder, "--prompt", PROMPT, "--plan", tmp_path / "plan.json")
    assert answer.json == as_printed(mta_viz.compare(model, None, PROMPT, plan=PLAN)) | {
        "computed_in": "float32"
    }
    answer = run("compare", folder, "--prompt", PROMPT)
    assert answer.json == as_printed(mta_viz.compare(model, None, PROMPT)) | {"computed_in": "float32"}
    assert all(row["off_b"] == 0 for row in answer.json["kernels"])


def test_what_cannot_be_compared_is_said(run, folder, second, tmp_path):
    assert_refused(
        run("compare", folder, second, "--prompt", PROMPT, "--prompt-b", "a"), "one thing that differs"
    )
    assert_refused(run("compare", folder, second, "--prompt", PROMPT, "--pair-by", "index"), "trained apart")
    assert_refused(run("compare", folder, second, "--prompt", PROMPT, "--pair-by", "needle"), "asks for none")
    few = run("compare", folder, second, "--prompt", "ab", "--pair-by", "similarity")
    assert_refused(few, "3 tokens in common at their start")
    unpaired = run("compare", folder, second, "--prompt", "ab").json
    assert unpaired["pairs"]["rule"] == "none" and unpaired["kernels"] == [] and unpaired["answers"]
    assert_refused(run("compare", folder, tmp_path, "--prompt", PROMPT), "no checkpoint")
    assert_refused(run("compare", folder, "--prompt", PROMPT, "--prompt-b", "A"), 'no token for: "A"')

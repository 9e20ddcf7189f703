"""`story`: each number is what the command that measures it alone prints."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_support import assert_refused

from mta_viz.checkpoint.native import write_kernels
from mta_viz.model.plans import plan_as_data, plan_from_data
from mta_viz.model.transformer import HookedMTA

BLOCKS, OTHER = "abcde.fghij#ca", "hello"


def near(number: float) -> Any:
    return pytest.approx(number, abs=1e-4)


@pytest.mark.parametrize("prompt", [BLOCKS, OTHER])
def test_what_the_head_gives_is_what_heads_prints(run, folder, prompt):
    story = run("story", folder, "--prompt", prompt).json
    span = f"{story['asked']['start']}:{story['asked']['stop']}"
    heads = run("heads", folder, "--prompt", prompt, "--span", span).json["heads"]
    (head,) = [row for row in heads if (row["layer"], row["head"]) == (story["layer"], story["head"])]
    assert [at["stage"] for at in story["weights"]] in (["raw", "kq"], ["sm", "kq2"])
    for at in story["weights"]:
        assert at["score"] == near(head[f"span.{at['stage']}"])
    if story["weights"][0]["stage"] == "sm":
        assert story["gain"] == near(head["gain.kq2"])


@pytest.mark.parametrize("prompt", [BLOCKS, OTHER])
def test_what_the_answer_loses_is_what_ablate_prints(run, folder, tmp_path, prompt):
    story = run("story", folder, "--prompt", prompt, "--answer", "abc").json
    layer, head, where = story["layer"], story["head"], story["kernel"].split()[-1]
    plan = [{"kind": "kernel_to_own_tap", "layer": layer, "head": head, "where": where}]
    assert plan_as_data(plan_from_data(plan)) == plan
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    ablation = run(
        "ablate", folder, "--prompt", prompt, "--answer", "abc", "--plan", tmp_path / "plan.json"
    ).json
    assert story["with_kernel"]["log_probability"] == near(ablation["log_probability"])
    assert story["without_kernel"]["log_probability"] == near(ablation["log_probability_edited"])
    assert story["log_odds_change"] == near(ablation["log_odds_change"])
    assert story["answer"] == ablation["answer"]


def test_the_rank_is_what_lens_prints(run, folder):
    story = run("story", folder, "--prompt", OTHER, "--answer", "q").json
    last = run("lens", folder, "--prompt", OTHER, "--follow", "q").json["depths"][-1]
    assert [story["with_kernel"]["rank"]] == last["ranks"] and last["ranks"][0] > 1
    assert story["with_kernel"]["probability"] == near(last["probabilities"][0])


def test_the_likeliest_continuation_is_what_generate_prints(run, folder):
    story = run("story", folder, "--prompt", BLOCKS).json
    assert story["answer"]["text"] == "abcde"  # the block that holds c and a
    written = run("generate", folder, "--prompt", BLOCKS, "--max-new-tokens", 5).json
    assert story["writes"] == written["text"]


def test_the_shape_is_what_kernels_prints(run, folder):
    story = run("story", folder, "--prompt", BLOCKS).json
    rows = run("kernels", folder).json["kernels"]
    (row,) = [row for row in rows if f"L{row['layer']} H{row['head']} {row['where']}" == story["kernel"]]
    assert story["shape"] == row["shape"] and story["shape"] in story["sentence"] + "none of these"


def test_the_answer_is_written_to_a_file_too(run, folder, tmp_path):
    answer = run("story", folder, "--prompt", OTHER, "--out", tmp_path / "story.json")
    assert answer.status == 0 and json.loads((tmp_path / "story.json").read_text()) == answer.json
    assert answer.json["computed_in"] == "float32" and answer.json["twin"].keys() == {"absent"}


def test_what_has_no_story_is_refused_in_words(run, model: HookedMTA, tmp_path: Path):
    write_kernels(tmp_path / "kernels", model.config, model.state_dict())
    (tmp_path / "ids.json").write_text("[1, 2, 3]")
    refused = run("story", tmp_path / "kernels", "--tokens", tmp_path / "ids.json")
    assert_refused(refused, "this file holds kernels only, so no prompt can be run")

"""`ablate`: the notebook's numbers, plans from words and files, and what is refused."""

import json
import os
from pathlib import Path

import pytest
from cli_support import assert_refused

import mta_viz
from mta_viz.model.interventions import AblateHead, KernelToIdentity, MixingToIdentity
from mta_viz.model.plans import plan_as_data

PROMPT = "abc.def#b"


def test_the_numbers_are_the_notebooks(run, folder, tmp_path):
    plan = (MixingToIdentity(0, "head_pre"), KernelToIdentity(1, 3, "pre"), AblateHead(0, 2))
    (tmp_path / "plan.json").write_text(json.dumps(plan_as_data(plan[:1])))
    answer = run(
        "ablate", folder, "--prompt", PROMPT, "--plan", tmp_path / "plan.json", "--kernel", "L1 H3 pre",
        "--head", "l0 h2", "--answer", "ef", "--sweep", "--needed", "--out", tmp_path / "out.json",
    )  # fmt: skip
    assert answer.status == 0, answer.err
    found = mta_viz.ablate(
        mta_viz.load(folder), PROMPT, plan, answer="ef", sweeps=("kernels", "mixing", "heads"), needed=True
    )
    assert answer.json == json.loads(json.dumps(found.as_data())) | {"computed_in": "float32"}
    assert answer.json["plan"][2] == {"kind": "ablate_head", "layer": 0, "head": 2}
    changes = [row["change"] for row in answer.json["sweep"]]
    assert len(changes) == 8 + 4 * 4 + 8 and changes == sorted(changes)
    assert json.loads((tmp_path / "out.json").read_text()) == answer.json


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--kernel", "L1 H3"), ("names no kernel", "L3 H5 pre")),
        (("--kernel", "L1 H3 middle"), ("names no kernel",)),
        (("--head", "L1 H3 pre"), ("names no head",)),
        (("--kernel", "L0 H0 pre"), ("layer 0 has no pre kernel; layers with one: 1",)),
        (("--head", "L9 H0"), ("layer 9 does not exist",)),
        (("--answer", "A"), ('no token for: "A"',)),
        (("--plan", "nowhere.json"), ("nowhere.json",)),
    ],
)
def test_what_cannot_be_done_is_said(run, folder, more, words):
    assert_refused(run("ablate", folder, "--prompt", PROMPT, *more), *words)


def test_a_file_there_is_not_overwritten_unasked(run, folder, tmp_path):
    (tmp_path / "mine.json").write_text("1")
    refused = run("ablate", folder, "--prompt", PROMPT, "--out", tmp_path / "mine.json")
    assert_refused(refused, "exists")
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    refused = run("ablate", folder, "--prompt", PROMPT, "--plan", tmp_path / "plan.json")
    assert_refused(refused, "is not UTF-8 text")


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_pipe_or_device_is_not_replaced_by_the_answer(run, folder: Path, tmp_path: Path, force):
    os.mkfifo(tmp_path / "pipe")
    answer = run("ablate", folder, "--prompt", "ab", "--out", tmp_path / "pipe", *force)
    assert_refused(answer, "pipe is no regular file")
    assert (tmp_path / "pipe").is_fifo()

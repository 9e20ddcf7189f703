"""`kernels`: a row per kernel as JSON or CSV, nothing else on stdout."""

import csv
import io

import pytest
from cli_support import CONFIG, assert_refused

from mta_viz.analysis.attention.matches import COLUMNS as AT_MATCHES
from mta_viz.analysis.attention.matches import NO_MATCH
from mta_viz.analysis.attention.taps import match_gap
from mta_viz.analysis.kernels.table import COLUMNS
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import capture


def test_json_holds_rows_and_counts(run, folder, model):
    answer = run("kernels", folder)
    assert answer.status == 0
    rows, counts = answer.json["kernels"], answer.json["counts"]
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 6 * CONFIG.n_heads  # mixing before and after in both layers, kernels in one
    assert counts["kernels"] == 2 * CONFIG.n_heads and sum(counts["shapes"].values()) == counts["kernels"]
    taps = model.state_dict()["blocks.1.attn.kernel_pre"]
    assert "a kernel of 2 x 3 cannot show: diagonal, induction, anti-diagonal, priming" in answer.err
    found = [row["own_tap"] for row in rows if row["where"] == "pre"]
    assert found == [float(tap) for tap in taps[:, -1, 1]]


@pytest.mark.parametrize("option", ["--samples", "--length"])
def test_what_is_of_a_task_is_refused_without_one(run, folder, option):
    assert_refused(run("kernels", folder, option, 3), "give --task needle, pairs or blocks as well")


def test_csv_holds_the_same_rows(run, folder):
    answer = run("kernels", folder, "--format", "csv")
    assert answer.status == 0 and answer.out.endswith("\n") and not answer.out.endswith("\n\n")
    table = list(csv.DictReader(io.StringIO(answer.out)))
    rows = run("kernels", folder).json["kernels"]
    assert tuple(table[0]) == COLUMNS and len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        for name in ("layer", "head", "source", "c_q"):
            assert line[name] == ("" if row[name] is None else str(row[name]))
        for name in ("own_tap", "contrast"):
            assert (float(line[name]) if line[name] else None) == row[name]


def test_what_is_no_checkpoint_is_refused(run, folder, tmp_path):
    assert_refused(run("kernels", tmp_path / "absent"), "absent")
    assert_refused(run("kernels", folder, "--format", "xml"), "csv")


def test_a_prompt_adds_columns_at_the_end(run, folder, model):
    answer = run("kernels", folder, "--prompt", "abcabca")
    assert answer.status == 0 and "one prompt: the numbers at matches have no interval" in answer.err
    assert answer.json["matches"] == {"of": "the prompt", "prompts": 1, "prompts_with_matches": 1}
    rows = answer.json["kernels"]
    assert tuple(rows[0]) == (*COLUMNS, *AT_MATCHES)
    trace = capture(model, read_checkpoint(folder).tokenizer.encode("abcabca"))
    for row in rows:
        if row["where"] in ("pre", "post"):
            assert row["match_prompts"] == 1 and row["effect_low"] is None and row["action"]
        else:
            assert all(row[name] is None for name in AT_MATCHES)
    pre = next(row for row in rows if row["where"] == "pre" and row["head"] == 2)
    raw = trace.map(1, Stage.RAW, 2).double().numpy()
    assert pre["match_gap"] == pytest.approx(match_gap(raw, trace.tokens.ids), abs=1e-6)


def test_without_a_repeated_token_the_columns_are_empty_and_it_is_said(run, folder):
    answer = run("kernels", folder, "--prompt", "abc", "--format", "csv")
    assert answer.status == 0 and NO_MATCH in answer.err
    table = list(csv.DictReader(io.StringIO(answer.out)))
    assert all(line["effect_at_match"] == line["match_gap"] == line["action"] == "" for line in table)


def test_samples_of_a_task_have_intervals(run, small):
    answer = run("kernels", small, "--task", "blocks", "--samples", 5)
    assert answer.status == 0 and answer.json["matches"]["prompts"] == 5
    row = next(row for row in answer.json["kernels"] if row["where"] == "post")
    assert row["match_prompts"] == answer.json["matches"]["prompts_with_matches"] > 1
    assert row["effect_low"] <= row["effect_at_match"] <= row["effect_high"]


def test_a_prompt_and_a_task_exclude_each_other(run, folder):
    assert_refused(run("kernels", folder, "--prompt", "abc", "--task", "needle"), "not allowed with")

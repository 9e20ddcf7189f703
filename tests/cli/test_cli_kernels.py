"""`kernels`: a row per kernel as JSON or CSV, nothing else on stdout."""

import csv
import io

from cli_support import CONFIG, assert_refused

from mta_viz.analysis.kernels.table import COLUMNS


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

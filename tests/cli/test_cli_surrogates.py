"""`surrogates`: what surrogates of a model's kernels are called, as JSON or CSV."""

import csv
import io

from cli_support import assert_refused


def test_json_holds_the_models_a_summary_of_each_null_and_what_was_found(run, folder):
    answer = run("surrogates", folder, "--count", 2)
    assert answer.status == 0
    assert set(answer.json["found"]) == {"template_names", "surviving", "edges"}
    assert [null["null"] for null in answer.json["nulls"]] == ["envelope", "signs"]
    for null in answer.json["nulls"]:
        assert null["models"] == 2 and null["share"] == null["with_surviving"] / 2
        assert null["interval"][0] <= null["share"] <= null["interval"][1]
        assert set(null["template_names"]) == {"mean", "low", "high", "p"}
    assert len(answer.json["models"]) == 4


def test_csv_has_a_row_a_model_and_a_seed_changes_nothing_else(run, folder):
    answer = run("surrogates", folder, "--count", 2, "--format", "csv", "--seed", 3)
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert list(rows[0]) == ["null", "model", "template_names", "surviving", "edges"] and len(rows) == 4


def test_no_models_are_refused(run, folder):
    assert_refused(run("surrogates", folder, "--count", 0), "from 1 to")

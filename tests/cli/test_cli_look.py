"""`heads`, `cells`, `decompose`, `lens`: the numbers of the Python calls, and refusals."""

import json
import math

import pytest
from cli_support import assert_refused

import mta_viz
from mta_viz.analysis.attention.spans import Span
from mta_viz.checkpoint.native import write_native
from mta_viz.model.stages import Stage
from tests.tiny_models import FULL, config, random_weights

TEXT = "abc.defabc"
PROMPT = ("--prompt", TEXT)
HEAD = ("--layer", 1, "--head", 2)


@pytest.fixture
def trace(folder):
    return mta_viz.capture(mta_viz.load(folder), TEXT)


def test_heads_have_the_scores_of_the_call(run, folder, trace, tmp_path):
    file = tmp_path / "heads.json"
    answer = run("heads", folder, *PROMPT, "--span", "2:4", "--query", 8, "--out", file)
    assert answer.status == 0, answer.err
    found = mta_viz.head_scores(trace, Span("2:4", "S", 2, 4), 8)
    assert json.loads(file.read_text()) == answer.json
    assert [one["key"] for one in answer.json["scores"]] == list(found.values)
    assert all(one["definition"] for one in answer.json["scores"])
    for row in answer.json["heads"]:
        for key, values in found.values.items():
            value = float(values[row["layer"], row["head"]])
            assert row[key] == (None if math.isnan(value) else value)


def test_one_score_ranks_the_heads(run, folder, trace):
    rows = run("heads", folder, *PROMPT, "--score", "previous").json["heads"]
    ranked = mta_viz.ranking(mta_viz.head_scores(trace), "previous")
    assert [(row["layer"], row["head"], row["previous"]) for row in rows] == [
        (one.layer, one.head, one.value) for one in ranked
    ]
    assert_refused(run("heads", folder, *PROMPT, "--score", "best"), "no score 'best'", "previous")
    assert_refused(run("heads", folder, *PROMPT, "--span", "2:40"), "ends at 40", "11 tokens")
    assert_refused(run("heads", folder, *PROMPT, "--span", "2:3,4:5"), "one span")
    assert_refused(run("heads", folder, *PROMPT, "--query", 11), "query 11 does not exist")


def test_cells_are_those_of_the_call_with_their_tokens(run, folder, trace):
    answer = run("cells", folder, *PROMPT, *HEAD, "--stage", "kq", "--by", "change", "--count", 3)
    assert answer.status == 0, answer.err
    found = mta_viz.top_cells(trace, 1, 2, Stage.KQ, 3, by="change")
    assert [(row["query"], row["key"], row["value"], row["change"]) for row in answer.json["cells"]] == [
        (one.query, one.key, one.value, one.change) for one in found
    ]
    first = answer.json["cells"][0]
    assert first["query_token"] == trace.tokens.pieces[found[0].query]
    assert answer.json["stage"] == "hook_scores_kq"
    wrong = ("cells", folder, *PROMPT, *HEAD, "--stage")
    assert_refused(run(*wrong, "kq", "--by", "contribution"), "only the final weights")
    assert_refused(run(*wrong, "best"), "is no stage; expected hook_attn_scores")
    assert_refused(run("cells", folder, *PROMPT, "--layer", 1, "--head", 9, "--stage", "kq"), "head 9")


def test_a_cell_is_the_sum_of_its_terms(run, folder, trace):
    answer = run("decompose", folder, *PROMPT, *HEAD, "--stage", "hook_scores_kq", "--query", 9, "--key", 4)
    assert answer.status == 0, answer.err
    found = mta_viz.decompose(trace, 1, Stage.KQ, 2, 9, 4)
    assert answer.json["value"] == found.value and answer.json["stage_before"] == "hook_attn_scores"
    assert sum(term["product"] for term in answer.json["terms"]) == pytest.approx(found.value, abs=1e-5)
    assert answer.json["terms"][0]["weight"] == found.terms[0].weight
    last = run("decompose", folder, *PROMPT, *HEAD, "--stage", "sm", "--key", 4).json
    assert (last["query"], last["terms"]) == (10, []) and last["log_normaliser"]
    masked = run("decompose", folder, *PROMPT, *HEAD, "--stage", "kq", "--query", 2, "--key", 4)
    assert_refused(masked, "by the mask")


def test_the_lens_follows_tokens_over_the_layers(run, folder, trace):
    answer = run("lens", folder, *PROMPT, "--follow", "ab", "--count", 2)
    assert answer.status == 0, answer.err
    ids = trace.model.tokenizer.encode("ab").ids[-2:]
    found = mta_viz.lens_over_layers(trace, 10, ids, k=2)
    assert [one["id"] for one in answer.json["tokens"]] == list(ids)
    assert [one["ranks"] for one in answer.json["depths"]] == found.ranks.tolist()
    assert [one["top"][0]["id"] for one in answer.json["depths"]] == [top[0].id for top in found.top]
    assert run("lens", folder, *PROMPT).json["depths"][-1]["ranks"] == [1, 2, 3, 4, 5]
    assert_refused(run("lens", folder, *PROMPT, "--position", 11), "position 11 does not exist")
    assert_refused(run("lens", folder, *PROMPT, "--follow", "a\udce9"), "--follow is not valid UTF-8")
    assert_refused(
        run("lens", folder, *PROMPT, "--follow", "a" * 300), "300 tokens are to be followed", "256"
    )


def test_followed_tokens_are_read_after_the_white_space_that_begins_them(run, tmp_path):
    shapes = config(FULL, 258)
    write_native(
        tmp_path / "b",
        shapes,
        random_weights(shapes),
        tokenizer_name="bytes",
        tokenizer_path=None,
        dtype=None,
    )
    answer = run("lens", tmp_path / "b", "--prompt", "It is", "--follow", " 7")
    assert answer.status == 0 and "read after the white space that begins ' 7'" in answer.err
    after = run("lens", tmp_path / "b", "--prompt", "It is ", "--follow", "7").json
    assert answer.json == after and [token["piece"] for token in after["tokens"]] == ["7"]

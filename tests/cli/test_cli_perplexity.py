"""`perplexity`: the numbers of the Python calls, tables, passages that are left out, refusals."""

import csv
import json

import pytest
from cli_support import assert_refused

from mta_viz.analysis.labs.text import score_passages, text_losses
from mta_viz.run.tracing import load

TEXT = "abc.defgh"
PASSAGES = "abc.de\nfgh\nijk.lmn.opqr"


def test_a_text_has_the_numbers_of_the_call(run, folder, tmp_path):
    answer = run("perplexity", folder, "--prompt", TEXT * 3, "--csv", tmp_path / "t.csv")
    assert answer.status == 0, answer.err
    found = text_losses(load(folder), TEXT * 3)
    assert answer.json["perplexity"] == found.perplexity and answer.json["loss"] == found.loss
    assert (answer.json["window"], answer.json["windows"]) == (16, 3)
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert len(rows) == answer.json["tokens"] == answer.json["predicted"] + 1
    assert [int(row["rank"]) for row in rows[1:]] == found.ranks[1:].tolist() and rows[0]["rank"] == ""
    assert float(rows[5]["loss_nats"]) == pytest.approx(float(found.losses[5]))


def test_last_words_have_the_numbers_of_the_call(run, folder, tmp_path):
    (tmp_path / "p.txt").write_text(PASSAGES)
    file = tmp_path / "p.txt"
    answer = run("perplexity", folder, "--file", file, "--last-word", "--csv", tmp_path / "w.csv")
    assert answer.status == 0 and "passage 2 is left out: it has one word only" in answer.err
    found = score_passages(load(folder), PASSAGES.split("\n"))
    assert (answer.json["passages"], answer.json["n"]) == (3, 2)
    assert answer.json["perplexity"] == found.perplexity
    assert answer.json["interval"] == list(found.accuracy.interval)
    rows = list(csv.DictReader((tmp_path / "w.csv").open()))
    assert [row["last_word"] for row in rows] == ["de", "", "opqr"] and "one word" in rows[1]["left_out"]
    (tmp_path / "p.jsonl").write_text(json.dumps({"text": "abc.de"}))
    alone = run("perplexity", folder, "--file", tmp_path / "p.jsonl", "--last-word").json
    (tmp_path / "lines.jsonl").write_text("abc\nde")
    assert "with --last-word its lines" in run("perplexity", folder, "--file", tmp_path / "lines.jsonl").err
    pasted = run("perplexity", folder, "--prompt", "abc.de", "--last-word").json
    assert alone == pasted and (pasted["word"], pasted["rank"]) == ("de", found.words[0].rank)


def test_what_cannot_be_read_is_refused(run, folder, tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"\xff\xfe")
    assert_refused(run("perplexity", folder, "--file", bad), "is not UTF-8 text")
    bad.write_text('{"text": 1}')
    assert_refused(run("perplexity", folder, "--file", bad, "--last-word"), "line 1: expected an object")
    assert_refused(run("perplexity", folder, "--prompt", "abc", "--last-word"), "one word only")
    assert_refused(run("perplexity", folder, "--prompt", ""), "one token")
    assert_refused(run("perplexity", folder, "--prompt", "ab", "--csv", bad), "exists")
    assert_refused(run("perplexity", folder), "--prompt --file is required")

"""`generate`: greedy, the continuation only, up to the end token."""

import json

import pytest
import torch
from cli_support import assert_refused

from mta_viz.tokenizers.loading import load_tokenizer


def test_every_id_is_the_most_likely_next_one(run, folder, model):
    answer = run("generate", folder, "--prompt", "ab#", "--max-new-tokens", 5)
    assert answer.status == 0, answer.err
    reply = answer.json
    assert list(reply) == ["prompt", "text", "ids", "computed_in"] and reply["prompt"] == "ab#"
    ids = [29, 0, 1, 27]
    for expected in reply["ids"]:
        assert model(torch.tensor([ids]))[0, -1].argmax() == expected
        ids.append(expected)
    assert 1 <= len(reply["ids"]) <= 5
    assert reply["text"] == load_tokenizer("char", None, folder=folder).decode(tuple(reply["ids"]))


def test_the_prompt_needs_letters_the_tokenizer_has(run, folder):
    assert_refused(run("generate", folder, "--prompt", "A", "--max-new-tokens", 1), "A")


def test_a_missing_tokenizer_file_is_asked_for(run, folder, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    params = json.loads((folder / "params.json").read_text())
    params["data"]["tokenizer"] = {"name": "tiktoken", "path": "elsewhere/my.tiktoken"}
    (copy / "params.json").write_text(json.dumps(params))
    (copy / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    answer = run("generate", copy, "--prompt", "a", "--max-new-tokens", 1)
    assert_refused(answer, "my.tiktoken", "--tokenizer FILE")


@pytest.mark.golden
def test_the_reference_generation(run, golden):
    about = json.loads((golden / "attn_dump" / "ABOUT.json").read_text())
    reply = run("generate", golden / "mta_toy", "--prompt", about["prompts"][0], "--max-new-tokens", 6).json
    assert reply["text"] == about["generated"][0]
    assert reply["ids"] == [4, 4, 4, 4, 4, 4]

"""Commands that run prompts say of a file of kernels that no prompt runs, not that it lacks a tokenizer."""

import pytest
from cli_support import CONFIG, assert_refused

from mta_viz.checkpoint.native import write_kernels

PROMPT = ("--prompt", "abcabc")
MAP = ("--layer", 1, "--head", 0, "--stage", "pattern")
KERNEL = ("--kernel", "L1 H0 pre")
COMMANDS = {
    "story": PROMPT, "kernels": PROMPT, "trace": (*PROMPT, "--out", "out"), "heads": PROMPT,
    "generate": (*PROMPT, "--max-new-tokens", 1),
    "cells": (*PROMPT, *MAP), "decompose": (*PROMPT, *MAP, "--key", 1), "lens": PROMPT, "gain": PROMPT,
    "operator": (*PROMPT, *KERNEL),
    "paths": (*PROMPT, *KERNEL), "ablate": PROMPT, "attribute": PROMPT,
    "direct-effect": PROMPT, "compare": (*PROMPT, "--prompt-b", "abcabd"), "evaluate": ("--task", "blocks"),
    "effects": ("--task", "blocks", "--out", "out"), "shapley": ("--task", "blocks"), "questions": (),
    "needle": ("--out", "out"), "perplexity": ("--file", "text"), "conjunction": (),
    "report": (*PROMPT, "--out", "r.html"),
    "insert": ("--layers", 0, "--out", "a.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_prompt_runs(run, model, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("Some words.")
    write_kernels(tmp_path / "kernels", CONFIG, model.state_dict())
    assert_refused(run(command, tmp_path / "kernels", *COMMANDS[command]), "holds kernels only")

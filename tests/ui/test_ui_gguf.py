"""A GGUF file in the app: in the picker by its name, its own tokenizer for the prompt."""

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from mta_viz.tokenizers.loading import remember_given
from tests.gguf_files import random_arrays, sizes, write_gguf
from tests.ui.driver import address_of, app_at, fine, run_until, said


@pytest.mark.parametrize(("pre", "words"), [("smollm", "5 tokens"), ("tekken", "is called 'tekken' there")])
def test_a_file_is_a_model_of_the_picker(tmp_path, monkeypatch, pre, words):
    """With a rule not known the app asks for the tokenizer's file."""
    write_gguf(tmp_path / "small.gguf", "llama", random_arrays(sizes()), sizes(), pre=pre)
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path / "small.gguf"))
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "prompts"))
    app = app_at(**address_of("small.gguf", "the 12")).run()
    fine(app)
    assert "gguf format" in said(app)
    run_until(app, words)


def test_a_tokenizer_given_before_is_taken_again_and_said(tmp_path, monkeypatch):
    write_gguf(tmp_path / "small.gguf", "llama", random_arrays(sizes()), sizes(), pre="tekken")
    words = Library(models.WordLevel({"the": 0, "12": 1}, "the"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "mine.json"))
    monkeypatch.setenv("MTA_VIZ_MODELS", str(tmp_path / "small.gguf"))
    monkeypatch.setenv("MTA_VIZ_PROMPTS", str(tmp_path / "prompts"))
    remember_given(tmp_path / "small.gguf", tmp_path / "mine.json")
    app = app_at(**address_of("small.gguf", "the 12")).run()
    fine(app)
    assert "given for this model before: mine.json" in said(app).replace("\\", "")
    run_until(app, "2 tokens")

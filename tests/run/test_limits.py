"""Prompts that are too long for this machine: refused before any work, with numbers, and cut where asked."""

import json

import pytest
import torch

from mta_viz.analysis.labs.four_prompts import written_prompts
from mta_viz.analysis.labs.text import text_losses
from mta_viz.cli import main
from mta_viz.errors import MemoryFullError, TooLongError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import devices
from mta_viz.run.devices import capture_bytes, cut
from mta_viz.run.scoring import end_logits
from mta_viz.run.tracing import MAX_TOKENS, capture, check_length, generate, run_hooks, score, tokenize
from mta_viz.tokenizers.base import CUT_PLACES, MOST_CHARACTERS, Tokens
from mta_viz.tokenizers.builtin import BytesTokenizer
from tests.tiny_models import FULL, config, random_weights, write_models

IDS = tuple(range(13)) * 3
TOKENS = Tokens((97, 98), ("a", "b"), ((0, 1), (1, 2)), "ab")
RUNS = {
    "capture": capture,
    "generate": lambda model, ids: generate(model, ids, 1),
    "hooks": lambda model, ids: run_hooks(model, ids, ["hook_embed"]),
    "score": lambda model, ids: score(model, torch.tensor([ids])),
    "end": lambda model, ids: end_logits(model, torch.tensor([ids]), 1),
}


@pytest.fixture
def model():
    model = HookedMTA(config(FULL, 258)).requires_grad_(False)
    model.load_state_dict(random_weights(model.config))
    return model


def free(monkeypatch, tmp_path, n_bytes: int) -> None:
    """This machine has so much memory left."""
    file = tmp_path / "meminfo"
    file.write_text(f"MemAvailable:   {n_bytes // 1024} kB\n")
    monkeypatch.setattr(devices, "MEMORY", file)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_what_memory_has_no_room_for_is_refused_and_does_not_run(monkeypatch, tmp_path, model, run):
    room = capture_bytes(model.config, 20) // 1024 * 1024
    free(monkeypatch, tmp_path, room)
    model.embed.register_forward_hook(lambda *_: pytest.fail("it ran"))
    with pytest.raises(TooLongError) as caught:
        run(model, IDS)
    assert 1 <= caught.value.most <= 20 and f"{caught.value.most} fit" in str(caught.value)


def test_the_most_that_fits_is_the_most(monkeypatch, tmp_path, model):
    free(monkeypatch, tmp_path, capture_bytes(model.config, 17) + 1024)
    with pytest.raises(TooLongError) as caught:
        capture(model, IDS)
    capture(model, IDS[: caught.value.most])
    with pytest.raises(TooLongError):
        capture(model, IDS[: caught.value.most + 1])


def test_a_run_that_takes_too_long_is_refused_by_its_time(monkeypatch, model):
    monkeypatch.setenv("MTA_VIZ_RUN_SECONDS", "0")
    with pytest.raises(TooLongError, match=r"would take about [\d,]+ s and .* may take 0 s") as caught:
        check_length(model, MAX_TOKENS)
    assert 0 < caught.value.most < MAX_TOKENS
    monkeypatch.setenv("MTA_VIZ_RUN_SECONDS", "10000000")
    check_length(model, caught.value.most + 1)


def test_nothing_is_too_short_for_the_limit_of_tokens(model):
    with pytest.raises(TooLongError, match=f"{MAX_TOKENS:,} tokens"):
        check_length(model, MAX_TOKENS + 1)


@pytest.mark.parametrize(
    ("place", "left"), [("left", (9, 10, 11, 12)), ("middle", (0, 1, 11, 12)), ("right", (0, 1, 2, 3))]
)
def test_ids_are_cut_where_asked(model, place, left):
    assert cut(model, tokenize(model, range(13)), 4, place) == left


@pytest.mark.parametrize("place", CUT_PLACES)
@pytest.mark.parametrize("text", ["abcdefghij", "aäöü€😀bcdefgh", "ab"])
def test_a_text_stays_a_text_that_fits_with_its_first_token(model, place, text):
    model.tokenizer = tokenizer = BytesTokenizer()
    tokens = tokenizer.encode(text)
    left = cut(model, tokens, 6, place)
    assert isinstance(left, str) and len(tokenizer.encode(left)) <= 6
    kept = {"left": text.endswith(left), "right": text.startswith(left), "middle": left[0] == "a"}
    assert left and kept[place]


@pytest.mark.parametrize("times", [1, 9])
def test_a_run_out_of_memory_is_tried_in_small_slabs_then_told(monkeypatch, model, times):
    (attention, norm), seen = (model.blocks[0].attn, model.blocks[0].ln1), list[int]()
    forward = norm.forward

    def fill(resid):
        seen.append(attention.slab_rows(1, 64))
        if len(seen) <= times:
            raise torch.OutOfMemoryError("tried to allocate 20 GiB")
        return forward(resid)

    monkeypatch.setattr(norm, "forward", fill)
    if times == 1:
        assert torch.isfinite(capture(model, IDS).residuals).all()
    else:
        with pytest.raises(MemoryFullError, match=r"39 tokens take about .* is free"):
            capture(model, IDS)
    assert len(seen) == 2 and seen[1] == seen[0] // 16
    assert model.lock.acquire(timeout=0.0)
    model.lock.release()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


def test_commands_refuse_200001_ids_and_cut_what_is_too_long(monkeypatch, tmp_path, folder, capsys):
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([7] * 200_001))
    assert main(["lens", str(folder / "tiny-mta"), "--tokens", str(ids)]) == 2
    words = capsys.readouterr().err
    assert "200,001 tokens" in words and "--cut left, middle or right" in words
    ids.write_text(json.dumps(list(range(100))))
    free(monkeypatch, tmp_path, 800_000)
    command = ["heads", str(folder / "tiny-mta"), "--tokens", str(ids)]
    assert main(command) == 2
    assert main([*command, "--cut", "middle"]) == 0 and "cut (middle)" in capsys.readouterr().err


@pytest.fixture
def no_tokens(monkeypatch, model):
    """A model that nobody may ask for the tokens of a text."""
    model.tokenizer = BytesTokenizer()
    monkeypatch.setattr(BytesTokenizer, "encode", lambda *_: pytest.fail("it made tokens"))
    return model


TEXTS = {
    **{name: run for name, run in RUNS.items() if name in ("capture", "generate", "hooks")},
    "tokenize": tokenize,
    "to_tokens": HookedMTA.to_tokens,
    "conjunction": lambda model, text: written_prompts(
        model.tokenizer, f"{text}{{A}}{{B}}{{A?}}{{B?}}", "{A}", [("a", "b", "c", "d")]
    ),
}


@pytest.mark.parametrize("run", TEXTS.values(), ids=TEXTS)
def test_a_text_that_no_run_takes_is_refused_before_tokens_are_made(no_tokens, run):
    with pytest.raises(TooLongError, match=r"the prompt has 1,048,5.. characters"):
        run(no_tokens, "a" * (MOST_CHARACTERS + 1))


def test_commands_refuse_three_million_characters_and_cut_them(monkeypatch, folder, capsys):
    seen = []
    monkeypatch.setattr(BytesTokenizer, "encode", lambda _, text: seen.append(len(text)) or TOKENS)
    command = ["lens", str(folder / "tiny-mta"), "--prompt", "a" * 3_000_000]
    assert main(command) == 2 and not seen
    words = capsys.readouterr().err
    assert "3,000,000 characters" in words and "--cut left, middle or right" in words
    assert main([*command, "--cut", "middle"]) == 0 and seen == [MOST_CHARACTERS]
    assert "cut (middle) to 1,048,576 characters" in capsys.readouterr().err


def test_a_text_read_in_windows_may_be_longer(monkeypatch, model):
    model.tokenizer = BytesTokenizer()
    monkeypatch.setattr(BytesTokenizer, "encode", lambda *_: TOKENS)
    assert text_losses(model, "a" * (MOST_CHARACTERS + 1)).tokens == TOKENS

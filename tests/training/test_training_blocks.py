"""The block-finding recipe end to end on models that train in seconds."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from mta_viz.analysis.labs.blocks import evaluate_blocks
from mta_viz.checkpoint.types import parameter_shapes
from mta_viz.errors import Cancelled, ConfigError, MtaVizError, PromptError, refuse_all
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.run.devices import checked_device
from mta_viz.tasks.blocks import BlockTask
from mta_viz.training.checks import run_checks
from mta_viz.training.from_scratch import BlocksRecipe, block_task, train_blocks
from mta_viz.training.recipe import PROGRESS_FILE, STATE_FILE, Batches, initial_model
from mta_viz.training.settings import BlocksConfig, NeedleConfig, recipe_config
from mta_viz.training.trainer import Batch, Trainer, TrainingError, TrainingProgress

SMALL = {"d_model": 32, "n_layers": 2, "batch_size": 8, "evaluation_samples": 30, "warmup_steps": 5}
TWENTY = BlocksConfig(**SMALL, n_blocks=4, block_mixture=(2, 4), steps=20)
# one block only: the answer is the second token, which a single layer learns in a moment
EASY = BlocksConfig(
    **(SMALL | {"n_layers": 1, "batch_size": 32, "evaluation_samples": 200}),
    n_letters=2,
    n_query=1,
    n_blocks=1,
    block_mixture=(1,),
    output="first",
    steps=150,
    learning_rate=1e-2,
)


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("blocks") / "twenty"
    train_blocks(TWENTY, out)
    return out


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("blocks") / "easy"
    return out, train_blocks(EASY, out)


def test_defaults_are_the_published_size() -> None:
    config = BlocksConfig().model_config()
    assert sum(map(prod, parameter_shapes(config).values())) == 3_418_512
    assert (config.n_ctx, config.kernels(3).pre) == (block_task(BlocksConfig()).n_tokens, (2, 2, 9))
    assert BlocksConfig(variant="transformer").model_config().variant == "transformer"


def test_a_run_leaves_a_whole_folder(twenty: Path) -> None:
    assert sorted(path.name for path in twenty.iterdir()) == [
        "README.md",
        "card.json",
        "kernel_history.safetensors",
        "model.safetensors",
        "params.json",
        "progress.json",
    ]
    card = json.loads((twenty / "card.json").read_text())
    assert (card["steps"], card["seed"], card["sequences"]) == (20, 0, 160)
    assert card["evaluation"]["n"] == 30
    assert len(card["loss_curve"]) == 20
    assert "20" in (twenty / "README.md").read_text()


def test_written_weights_give_the_trained_model_rounded(twenty: Path) -> None:
    model = initial_model(TWENTY.model_config(), TWENTY.seed, "cpu")
    with BlocksRecipe(TWENTY, block_task(TWENTY)).batches(torch.device("cpu")) as batches:
        Trainer(model, batches, TWENTY).run()
    rounded = {name: value.half().float() for name, value in model.state_dict().items()}
    model.load_state_dict(rounded)
    tokens = block_task(TWENTY).sample_range(0, 3, 5).tokens
    read = tracing.load(twenty, dtype=torch.float32)
    assert torch.equal(tracing.score(read, tokens), model(tokens).detach())


def test_history_ends_with_the_shipped_kernels(twenty: Path) -> None:
    weights = load_file(twenty / "model.safetensors")
    history = load_file(twenty / "kernel_history.safetensors")
    assert set(history) == {f"layers.{layer}.attention.mta_kernel" for layer in range(2)}
    for name, kernels in history.items():
        assert kernels.dtype == weights[name].dtype == torch.float16
        assert torch.equal(kernels[-1], weights[name])
        assert not torch.equal(kernels[-1], kernels[0])
    with safe_open(twenty / "kernel_history.safetensors", "pt") as file:
        steps = json.loads(file.metadata()["steps"])
    assert steps == list(range(21))
    assert len(steps) == len(history["layers.0.attention.mta_kernel"])


def stop_at_half(progress: TrainingProgress) -> None:
    if progress.steps_done == 10:
        raise Cancelled("stop")


def test_interrupted_and_resumed_equals_uninterrupted(twenty: Path, tmp_path: Path) -> None:
    out = tmp_path / "halves"
    with pytest.raises(Cancelled):
        train_blocks(TWENTY, out, report=stop_at_half)
    assert {path.name for path in out.iterdir()} == {STATE_FILE, PROGRESS_FILE}
    train_blocks(TWENTY, out, resume=True)
    for name in ("model.safetensors", "kernel_history.safetensors"):
        assert (out / name).read_bytes() == (twenty / name).read_bytes()
    halves, whole = (json.loads((folder / "card.json").read_text()) for folder in (out, twenty))
    assert halves["loss_curve"] == whole["loss_curve"]


def test_stopped_by_the_clock_says_so_and_can_go_on(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no model is written"):
        train_blocks(TWENTY, tmp_path / "early", max_seconds=1e-9)
    assert {path.name for path in (tmp_path / "early").iterdir()} == {STATE_FILE, PROGRESS_FILE}

    def slow(progress: TrainingProgress) -> None:
        time.sleep(0.3)

    card = train_blocks(TWENTY, tmp_path / "early", max_seconds=0.2, resume=True, report=slow)
    assert card["steps"] < card["planned_steps"] == 20
    assert "Stopped early" in (tmp_path / "early" / "README.md").read_text()
    assert train_blocks(TWENTY, tmp_path / "early", resume=True)["steps"] == 20


def progress_in(out: Path) -> dict[str, Any]:
    assert not [path for path in out.iterdir() if "partial" in path.name]
    return json.loads((out / PROGRESS_FILE).read_text())


def test_progress_can_be_followed_while_a_run_starts_stops_and_ends(tmp_path: Path) -> None:
    out, seen = tmp_path / "out", []

    def look(progress: TrainingProgress) -> None:
        seen.append(progress_in(out))
        assert seen[-1]["loss"] == progress.loss
        if len(seen) == 2:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        train_blocks(TWENTY, out, report=look)
    assert [(row["step"], row["steps"], row["state"]) for row in seen] == [
        (5, 20, "running"),
        (10, 20, "running"),
    ]
    assert seen[0]["seconds_left"] > 0
    assert progress_in(out) == seen[1] | {"state": "stopped"}
    during_evaluation = []
    card = train_blocks(
        TWENTY, out, resume=True, evaluation_progress=lambda _: during_evaluation.append(progress_in(out))
    )
    last = {"step": 20, "steps": 20, "seconds_left": 0.0}
    assert during_evaluation[0].items() >= (last | {"state": "running"}).items()
    assert progress_in(out) == last | {"loss": during_evaluation[0]["loss"], "state": "done"}
    assert progress_in(out)["loss"] == pytest.approx(sum(loss for _, loss in card["loss_curve"][-5:]) / 5)


def test_progress_is_there_from_before_the_first_step(tmp_path: Path) -> None:
    out, seen = tmp_path / "out", []

    class Watched(BlocksRecipe):
        @contextmanager
        def batches(self, device: torch.device) -> Iterator[Batches]:
            with super().batches(device) as batches:
                yield lambda step: seen.append(progress_in(out)) or batches(step)

    Watched(TWENTY, block_task(TWENTY)).train(out)
    assert seen[0] == {"step": 0, "steps": 20, "loss": None, "seconds_left": None, "state": "running"}


def test_a_run_that_left_nothing_but_its_progress_can_be_begun_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    diverging = replace(TWENTY, learning_rate=1e30)
    with pytest.raises(TrainingError, match="lower learning_rate"):
        train_blocks(diverging, out)
    stopped = progress_in(out)
    assert (stopped["loss"], stopped["state"]) == (None, "stopped")
    train_blocks(TWENTY, out)
    assert progress_in(out)["state"] == "done"


def test_loss_and_error_fall(easy: tuple[Path, dict[str, Any]]) -> None:
    card = easy[1]
    assert card["loss_curve"][0][1] > 2.0
    assert card["loss_curve"][-1][1] < 0.1
    assert card["evaluation"]["error"] < 0.05


@pytest.mark.parametrize("name", ["blocks.0.attn.wv.weight", "blocks.0.attn.kernel_pre"])
def test_evaluation_catches_a_zeroed_weight(easy: tuple[Path, dict[str, Any]], name: str) -> None:
    model = tracing.load(easy[0], dtype=torch.float32)
    before = evaluate_blocks(model, block_task(EASY), n=200)
    weights = dict(model.state_dict())
    model.load_state_dict(weights | {name: torch.zeros_like(weights[name])})
    after = evaluate_blocks(model, block_task(EASY), n=200)
    assert before.error < 0.05
    assert after.error > 0.5


def batch_of(config: BlocksConfig, step: int) -> Batch:
    with BlocksRecipe(config, block_task(config)).batches(torch.device("cpu")) as batches:
        return batches(step)


def test_a_plain_twin_sees_the_same_data_and_writes_no_history(tmp_path: Path) -> None:
    twin = BlocksConfig(**SMALL, n_blocks=4, block_mixture=(2, 4), steps=2, variant="transformer")
    train_blocks(twin, tmp_path / "twin")
    assert not (tmp_path / "twin" / "kernel_history.safetensors").exists()
    ours, theirs = (batch_of(config, 7) for config in (TWENTY, twin))
    assert torch.equal(ours.tokens, theirs.tokens)
    start, start_twin = (
        initial_model(config.model_config(), 0, "cpu").state_dict() for config in (TWENTY, twin)
    )
    assert all(torch.equal(start[name], value) for name, value in start_twin.items())


def test_the_seed_alone_decides_every_weight_a_run_starts_from() -> None:
    config = NeedleConfig(d_model=32, n_layers=1).model_config()  # its gate has a bias

    def weights(seed: int, before: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(before)
        return dict(initial_model(config, seed, "cpu").state_dict())

    first, again, other = weights(3, 1), weights(3, 2), weights(4, 1)
    assert all(torch.equal(first[name], value) for name, value in again.items())
    drawn = {name for name, value in other.items() if not torch.equal(first[name], value)}
    assert drawn == {name for name in first if name.endswith((".weight", ".bias")) and ".ln" not in name} - {
        "ln_final.weight"
    }


def perfect(tokens: torch.Tensor) -> torch.Tensor:
    """Logits of an oracle that knows the next token."""
    return torch.nn.functional.one_hot(tokens.roll(-1, 1), 32).float()


def test_evaluation_counts_sequences_with_any_wrong_letter() -> None:
    task = BlockTask(n_blocks=6)
    target = task.sample_range(0, 40, 9).target

    def errs_in_block_0(tokens: torch.Tensor) -> torch.Tensor:
        logits = perfect(tokens)
        in_first = (tokens[:, -5:] == tokens[:, 1:6]).all(1)
        logits[in_first, -3] = 0.0  # the prediction of the fourth letter becomes "a"
        return logits

    right = evaluate_blocks(perfect, task, n=40, seed=9)
    assert (right.error, right.letter_accuracy) == (0.0, (1.0,) * 5)
    result = evaluate_blocks(errs_in_block_0, task, n=40, seed=9, batch=7)
    answers = task.sample_range(0, 40, 9).tokens[:, -2]
    wrong = int(((target == 0) & (answers != 0)).sum())
    assert 0 < wrong == result.wrong
    assert result.error == wrong / 40
    assert [letter < 1 for letter in result.letter_accuracy] == [False, False, False, True, False]
    assert result.interval[0] < result.error < result.interval[1]


def test_progress_shows_before_all_samples_are_drawn() -> None:
    def stop(_: float) -> None:
        raise Cancelled("seen")

    with pytest.raises(Cancelled):
        evaluate_blocks(perfect, BlockTask(n_blocks=2), n=10**9, progress=stop)


def test_one_pass_agrees_with_greedy_decoding(easy: tuple[Path, dict[str, Any]]) -> None:
    task = BlockTask(n_letters=3, n_blocks=1, output="all")
    model = tracing.load(easy[0], dtype=torch.float32)
    samples = task.sample_range(0, 60, 1)
    start = task.n_tokens - task.n_answer
    greedy = samples.tokens[:, :start]
    for _ in range(task.n_answer):
        greedy = torch.cat([greedy, tracing.score(model, greedy)[:, -1:].argmax(-1)], dim=1)
    wrong = int((greedy != samples.tokens).any(1).sum())
    assert evaluate_blocks(model, task, n=60, seed=1).wrong == wrong


def test_evaluation_refuses_another_vocabulary_and_no_samples() -> None:
    config = BlocksConfig(**SMALL).model_config()
    other = HookedMTA(type(config)(**{**vars(config), "vocab_size": 40}))
    with pytest.raises(PromptError, match="40 tokens; block finding needs the character vocabulary"):
        evaluate_blocks(other, BlockTask(), n=1)
    with pytest.raises(ConfigError, match="n is 0"):
        evaluate_blocks(perfect, BlockTask(), n=0)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"variant": "plain"}, "variant is 'plain'; expected 'mta' or 'transformer' or 'differential'"),
        ({"variant": "differential", "n_heads": 1}, "n_heads 1 is odd; differential heads are two of these"),
        ({"block_mixture": ()}, "block_mixture"),
        ({"d_model": 30}, "not a multiple of 2"),
        ({"seed": 2**64}, "seed is 18446744073709551616; expected a whole number of at most 64 bits"),
        ({"evaluation_seed": -(2**63) - 1}, "evaluation_seed"),
        ({"kernel": (1,)}, r"kernel is \[1\]; expected two sizes"),
        ({"kernel": (1, 2, 3)}, r"kernel is \[1, 2, 3\]; expected two sizes"),
    ],
)
def test_impossible_configurations_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        BlocksConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "device", "word"),
    [
        ({"n_query": 5}, "cpu", "n_query is 5"),
        ({"output": "middle"}, "cpu", "output is 'middle'"),
        ({"learning_rate": 0.0}, "cpu", "learning_rate"),
        ({}, "nonsense", "device 'nonsense' cannot be used"),
    ],
)
def test_nothing_is_made_for_an_impossible_run(
    changes: dict[str, Any], device: str, word: str, tmp_path: Path
) -> None:
    with pytest.raises(MtaVizError, match=word):
        train_blocks(BlocksConfig(**changes), tmp_path / "out", device=device)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("device", ["meta", "hpu", "privateuseone", "cpu\n", ""])
def test_only_devices_that_can_train_are_taken(device: str) -> None:
    with pytest.raises(MtaVizError, match="cannot be used; there is: cpu"):
        checked_device(device)


def test_torchs_advice_on_a_device_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no such card\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch, "empty", refuse)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(MtaVizError, match=r"cannot be used \(no such card\); there is: cpu"):
        checked_device("cuda")


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, 0.0])
def test_a_time_limit_of_no_time_is_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(TrainingError, match="expected a number of seconds above 0"):
        train_blocks(TWENTY, tmp_path / "out", max_seconds=seconds)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(twenty: Path) -> None:
    before = {path.name: os.stat(path).st_mtime_ns for path in twenty.iterdir()}
    with pytest.raises(MtaVizError, match="twenty exists; choose another folder"):
        train_blocks(TWENTY, twenty)
    with pytest.raises(MtaVizError, match="nothing to resume"):
        train_blocks(TWENTY, twenty, resume=True)
    assert before == {path.name: os.stat(path).st_mtime_ns for path in twenty.iterdir()}


def test_a_link_to_nothing_is_no_folder_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(MtaVizError, match="link to something that is not there"):
        refuse_all(run_checks(tmp_path / "out"), "The run")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_overrides_defaults_and_flags_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("n_letters = 8\nn_blocks = 35\nblock_mixture = [8, 35]\nseed = 3\n")
    config = recipe_config(BlocksConfig, tmp_path / "b.toml", seed=4, variant=None)
    assert (config.n_letters, config.block_mixture, config.seed) == (8, (8, 35), 4)
    assert config.kernel_size == (2, 15)
    assert "--config" in config.command("cpu")
    assert BlocksConfig(seed=2).command("cuda") == (
        "python -m mta_viz train blocks --variant mta --seed 2 --steps 10000 --device cuda"
    )

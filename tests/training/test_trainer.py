"""The training loop on a model of three parameters: schedule, snapshots, resuming, refusals."""

import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from mta_viz.errors import Cancelled, ConfigError
from mta_viz.training.settings import (
    BlocksConfig,
    NeedleConfig,
    TrainerSettings,
    recipe_config,
    snapshot_steps,
)
from mta_viz.training.trainer import (
    Batch,
    Trainer,
    TrainingError,
    TrainingProgress,
    uninterrupted,
    weighted_loss,
)

VOCAB = 7


class Toy(nn.Module):
    """Predicts the next token from the last; its kernel scales the logits."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(VOCAB, VOCAB, generator=generator))
        self.kernel_pre = nn.Parameter(torch.ones(1, 1, 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table[tokens] * self.kernel_pre


def counting(step: int) -> Batch:
    """Each token is one more than the token before; the start depends on the step."""
    tokens = (torch.arange(6)[None] + torch.arange(4)[:, None] + step) % VOCAB
    return Batch(tokens, torch.ones(tokens.shape))


def settings_of(**changes: object) -> TrainerSettings:
    defaults = {"steps": 20, "warmup_steps": 4, "learning_rate": 0.05}
    return TrainerSettings(**(defaults | changes))


def test_loss_is_the_weighted_mean_by_hand() -> None:
    model = Toy()
    tokens = torch.tensor([[0, 1, 2]])
    log_p = model.table.detach().log_softmax(-1)
    expected = -(3.0 * log_p[0, 1] + 1.0 * log_p[1, 2]) / 4.0
    loss = weighted_loss(model, Batch(tokens, torch.tensor([[9.0, 3.0, 1.0]])))
    assert loss.item() == pytest.approx(expected.item())


def test_training_learns_to_count() -> None:
    result = Trainer(Toy(), counting, settings_of(steps=120)).run()
    assert len(result.losses) == 120
    assert result.losses[0] > 1.5
    assert result.losses[-1] < 0.3


def test_linear_rate_warms_up_holds_and_falls_to_nothing() -> None:
    rates = [settings_of(steps=100, warmup_steps=10).rate_factor(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:51] == [1.0] * 42
    assert rates[75] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.02)


def test_cosine_rate_is_half_at_half() -> None:
    assert NeedleConfig(steps=400, warmup_steps=5).rate_factor(200) == pytest.approx(0.5)


def test_kernels_take_their_own_rate() -> None:
    def moved(kernel_rate: float) -> float:
        trainer = Trainer(Toy(), counting, settings_of(steps=1, kernel_rate=kernel_rate))
        history = trainer.run().history
        return (history[-1].kernels["kernel_pre"] - history[0].kernels["kernel_pre"]).abs().item()

    assert moved(10.0) == pytest.approx(10 * moved(1.0), rel=1e-4)


def test_weight_decay_spares_kernels() -> None:
    still = lambda step: Batch(counting(step).tokens, torch.zeros(4, 6) + 1e-30)  # noqa: E731
    model = Toy()
    Trainer(model, still, settings_of(steps=1, warmup_steps=1, weight_decay=1.0, clip=1e-20)).run()
    assert model.table.abs().mean() < Toy().table.abs().mean()
    assert model.kernel_pre.item() == pytest.approx(1.0, abs=1e-6)


@given(st.integers(1, 20000), st.integers(2, 60))
def test_snapshot_steps_rise_from_start_to_end(steps: int, count: int) -> None:
    chosen = snapshot_steps(steps, count)
    assert (chosen[0], chosen[-1]) == (0, steps)
    assert all(a < b for a, b in pairwise(chosen))
    assert len(chosen) == min(count, steps + 1)


def test_snapshot_steps_are_about_evenly_spaced_in_log() -> None:
    late = [step for step in snapshot_steps(10_000, 48) if step >= 40]
    ratios = [b / a for a, b in pairwise(late)]
    assert max(ratios) < 1.1 * min(ratios) + 0.05


def interrupted_at_half(progress: TrainingProgress) -> None:
    if progress.steps_done == 10:
        raise Cancelled("stop")


def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole, halves = Toy(), Toy()
    expected = Trainer(whole, counting, settings_of()).run()
    with pytest.raises(Cancelled):
        Trainer(halves, counting, settings_of(), state_file=tmp_path / "state").run(
            report=interrupted_at_half
        )
    second_half = Toy()
    trainer = Trainer(second_half, counting, settings_of(), state_file=tmp_path / "state")
    trainer.resume()
    result = trainer.run()
    assert torch.equal(whole.table, second_half.table)
    assert result.losses == expected.losses
    assert [entry.step for entry in result.history] == [entry.step for entry in expected.history]
    for entry, twin in zip(result.history, expected.history, strict=True):
        assert torch.equal(entry.kernels["kernel_pre"], twin.kernels["kernel_pre"])


def test_the_clock_stops_a_run_and_the_rest_follows(tmp_path: Path) -> None:
    trainer = Trainer(Toy(), counting, settings_of(snapshots=3), state_file=tmp_path / "state")
    with pytest.raises(TrainingError, match="before the first step"):
        trainer.run(max_seconds=0.0)
    later = Trainer(Toy(), counting, settings_of(snapshots=3), state_file=tmp_path / "state")
    later.resume()
    assert later.run().losses == Trainer(Toy(), counting, settings_of()).run().losses


def test_history_of_a_run_stopped_early_ends_where_it_stopped() -> None:
    def slow(step: int) -> Batch:
        time.sleep(0.02)
        return counting(step)

    model = Toy()
    result = Trainer(model, slow, settings_of(snapshots=2, learning_rate=0.1)).run(max_seconds=0.1)
    assert result.steps_done < 20
    assert result.history[-1].step == result.steps_done
    assert torch.equal(result.history[-1].kernels["kernel_pre"], model.kernel_pre)


def test_history_ends_with_the_kernels_as_they_are() -> None:
    model = Toy()
    result = Trainer(model, counting, settings_of(snapshots=4)).run()
    assert result.history[-1].step == 20
    assert torch.equal(result.history[-1].kernels["kernel_pre"], model.kernel_pre)


def test_time_left_shrinks_to_nothing() -> None:
    seen: list[TrainingProgress] = []
    Trainer(Toy(), counting, settings_of()).run(report=seen.append)
    assert [progress.steps_done for progress in seen] == [5, 10, 15, 20]
    assert seen[0].seconds_left > 0
    assert seen[-1].seconds_left == 0
    Trainer(Toy(), counting, settings_of(), after=7.0).run(report=seen.append)
    assert seen[-1].seconds_left == 7


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    broken = lambda step: Batch(counting(step).tokens, torch.full((4, 6), torch.nan))  # noqa: E731
    with pytest.raises(TrainingError, match="lower learning_rate"):
        Trainer(Toy(), broken, settings_of()).run()


def test_resuming_nothing_or_another_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nothing to resume"):
        Trainer(Toy(), counting, settings_of(), state_file=tmp_path / "none").resume()
    Trainer(Toy(), counting, settings_of(), state_file=tmp_path / "state", identity="a").run()
    with pytest.raises(TrainingError, match="other settings"):
        Trainer(Toy(), counting, settings_of(), state_file=tmp_path / "state", identity="b").resume()


def trainer_at(file: Path) -> Trainer:
    return Trainer(Toy(), counting, settings_of(), state_file=file)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_ctrl_c_between_reports_loses_no_step(tmp_path: Path, stop: type[BaseException]) -> None:
    def interrupted(step: int) -> Batch:
        if step == 13:
            raise stop
        return counting(step)

    with pytest.raises(stop):
        Trainer(Toy(), interrupted, settings_of(), state_file=tmp_path / "state").run()
    later = trainer_at(tmp_path / "state")
    later.resume()
    assert torch.load(tmp_path / "state")["step"] == 13
    assert later.run().losses == Trainer(Toy(), counting, settings_of()).run().losses


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_an_update_to_finish() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_the_middle_of_an_update_loses_no_step(tmp_path: Path) -> None:
    updates: list[int] = []

    def interrupt(*_: object) -> None:
        updates.append(1)
        if len(updates) == 13:
            signal.raise_signal(signal.SIGINT)

    hook = register_optimizer_step_post_hook(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer_at(tmp_path / "state").run()
    finally:
        hook.remove()
    later = trainer_at(tmp_path / "state")
    later.resume()
    assert later.progress.steps_done == 13
    assert later.run().losses == Trainer(Toy(), counting, settings_of()).run().losses


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class Code:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("run",)


def half_trained(file: Path) -> dict[str, Any]:
    with pytest.raises(Cancelled):
        trainer_at(file).run(report=interrupted_at_half)
    return torch.load(file)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", {"table": torch.zeros(VOCAB, VOCAB)}),
        ("model", {"table": torch.zeros(2, 2), "kernel_pre": torch.ones(1, 1, 1)}),
        ("model", 3),
        ("optimizer", {}),
        ("optimizer", {"state": {}, "param_groups": []}),
        ("step", 21),
        ("step", "10"),
        ("seconds", float("nan")),
        ("losses", [1.0]),
        ("losses", None),
        ("history", []),
        ("history", 5),
        ("history", [(0, {"kernel_pre": torch.ones(2)})]),
        ("history", [(3, {"kernel_pre": torch.ones(1, 1, 1)})]),
        ("history", [(0, {}), (0, {})]),
        ("identity", Code()),
    ],
)
def test_a_state_with_a_wrong_part_is_damaged(tmp_path: Path, field: str, value: object) -> None:
    file = tmp_path / "state"
    torch.save(half_trained(file) | {field: value}, file)
    with pytest.raises(TrainingError, match=r"state is damaged: .*start anew in another folder") as caught:
        trainer_at(file).resume()
    assert "weights_only" not in str(caught.value)


def test_a_wrong_optimizer_moment_is_damaged(tmp_path: Path) -> None:
    state = half_trained(tmp_path / "state")
    state["optimizer"]["state"][0]["exp_avg"] = torch.zeros(1)
    torch.save(state, tmp_path / "state")
    with pytest.raises(TrainingError, match="its optimizer is not that of this model"):
        trainer_at(tmp_path / "state").resume()


@pytest.mark.parametrize("content", [b"not a state", b"", b"PK\x03\x04", b"\x80\x04\x95"])
def test_a_file_that_is_no_state_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(TrainingError, match="state is damaged"):
        trainer_at(tmp_path / "state").resume()


def test_a_state_that_lacks_parts_names_them(tmp_path: Path) -> None:
    torch.save({"model": {}, "step": 1}, tmp_path / "state")
    with pytest.raises(TrainingError, match="lacks identity, optimizer, seconds, losses, history"):
        trainer_at(tmp_path / "state").resume()


def test_settings_out_of_range_are_all_named() -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(steps=0, learning_rate=-1.0, clip=0.0, weight_decay=-0.1)
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["learning_rate", "kernel_rate", "weight_decay", "clip"])
def test_rates_must_be_finite(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}; expected a .*finite number"):
        settings_of(**{name: value})


def test_overrides_name_unknown_fields_and_wrong_types() -> None:
    with pytest.raises(ConfigError) as caught:
        recipe_config(BlocksConfig, stepz=3, steps="many", clip="x", block_mixture=8)
    assert len(caught.value.problems) == 4
    assert "unknown field 'stepz'" in str(caught.value)

"""Shapley values of kernels: on a tiny model all orders can be walked, so the truth is known."""

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch

from mta_viz.analysis.cause.answers import Answer, AnswerMeter
from mta_viz.analysis.cause.coalitions import Coalitions
from mta_viz.analysis.cause.effects import kernel_ids, without
from mta_viz.analysis.cause.shapley import Pairs, Shapley, passes, shapley_values
from mta_viz.analysis.cause.shapley_file import TaskShapley, prompt_batch, read_shapley
from mta_viz.analysis.cause.sweeps import outcome
from mta_viz.analysis.labs.task_samples import GoldBatch, blocks_batches
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import Cancelled, MtaVizError
from mta_viz.model.editing import edited
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.scoring import embedded
from mta_viz.run.tracing import capture
from mta_viz.tasks.blocks import BlockTask
from tests.tiny_models import random_weights

CONFIG = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=32,
    mta=MTAOptions(pre_kernel=(2, 3), mta_layers=(1,), head_post_group=2),
)  # fmt: skip
TASK = BlockTask(n_letters=3, n_query=1, n_blocks=3)


@pytest.fixture(scope="module")
def model() -> HookedMTA:
    model = HookedMTA(CONFIG).requires_grad_(False).eval()
    model.load_state_dict(random_weights(CONFIG, seed=3))
    return model


@pytest.fixture(scope="module")
def batches(model: HookedMTA):
    return blocks_batches(model, TASK, 20, 5)


@pytest.fixture(scope="module")
def shared(model: HookedMTA, batches) -> Shapley:
    return shapley_values(model, batches, "own-tap", most=60)


def worth(model: HookedMTA, batches, kept: set[int]) -> float:
    """By a plain run of the edited model."""
    ids = kernel_ids(model, "own-tap")
    plan = tuple(without(kernel, "own-tap") for at, kernel in enumerate(ids) if at not in kept)
    other = edited(model, plan)
    measured = outcome(other, [embedded(other, batch.ids) for batch in batches], 0, batches)
    return float(np.mean(measured.log_probability))


def test_kernels_are_those_of_the_layers_that_have_them(model: HookedMTA):
    assert [kernel.name() for kernel in kernel_ids(model, "own-tap")] == [
        "L0 H0 mix post", "L0 H1 mix post", "L1 H0 pre", "L1 H1 pre", "L1 H0 mix post", "L1 H1 mix post",
    ]  # fmt: skip
    assert [kernel.where for kernel in kernel_ids(model, "zero")] == ["pre", "pre"]


def test_a_coalition_is_the_edited_model_and_the_original_stays(model: HookedMTA, batches):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    coalitions = Coalitions(model, kernel_ids(model, "own-tap"), "own-tap", batches)
    kept = np.array([True, False, False, True, False, True])
    assert np.mean(coalitions(kept).log_probability) == pytest.approx(
        worth(model, batches, {0, 3, 5}), abs=1e-6
    )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_values_are_those_of_all_orders(model: HookedMTA, batches, shared: Shapley):
    n = 6
    value = {kept: worth(model, batches, set(kept)) for kept in _subsets(n)}
    exact = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        for at, kernel in enumerate(order):
            exact[kernel] += value[frozenset(order[: at + 1])] - value[frozenset(order[:at])]
    exact /= len(orders)
    ids = kernel_ids(model, "own-tap")
    for kernel in shared.values:
        place = ids.index(kernel.kernel)
        assert abs(kernel.shapley - exact[place]) < 5 * kernel.standard_error + 1e-6
        everything = frozenset(range(n))
        assert kernel.necessary == pytest.approx(value[everything] - value[everything - {place}], abs=1e-5)
        assert kernel.sufficient == pytest.approx(value[frozenset({place})] - value[frozenset()], abs=1e-5)
    assert np.ptp(exact) > 1e-3  # or the comparison could not fail


def test_values_sum_to_the_whole_effect_and_the_error_is_bounded(shared: Shapley):
    assert sum(value.shapley for value in shared.values) == pytest.approx(shared.effect, abs=1e-4)
    assert shared.n_orders == 120 or shared.largest_error <= 0.05
    assert [value.shapley for value in shared.values] == sorted(
        (value.shapley for value in shared.values), reverse=True
    )


def test_a_greedy_set_grows_by_one_kernel_and_is_measured(model: HookedMTA, batches, shared: Shapley):
    ids = kernel_ids(model, "own-tap")
    for size, removal in enumerate(shared.removals, start=1):
        out = {ids.index(kernel) for kernel in removal.kernels}
        assert len(out) == size
        assert removal.without_log_probability == pytest.approx(
            worth(model, batches, set(range(6)) - out), abs=1e-5
        )
        assert removal.only_log_probability == pytest.approx(worth(model, batches, out), abs=1e-5)
    first, *_, last = shared.removals
    for removal in (first, last):  # few enough sets for all others to be tried
        others = [set(kept) for kept in _subsets(6) if len(kept) == 6 - len(removal.kernels)]
        others.remove(set(range(6)) - {ids.index(kernel) for kernel in removal.kernels})
        worst = min(worth(model, batches, kept) for kept in others)
        assert removal.random_log_probability == pytest.approx(worst, abs=1e-5)
    pairs = zip(shared.removals, shared.removals[1:], strict=False)
    assert all(small.kernels == large.kernels[:-1] for small, large in pairs)


def test_the_same_seed_gives_the_same_and_progress_can_stop(model: HookedMTA, batches):
    first, second = (shapley_values(model, batches, most=3, seed=1) for _ in range(2))
    assert first == second

    def stop(share: float) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        shapley_values(model, batches, most=3, progress=stop)


def test_a_smaller_last_batch_counts_as_its_samples_do(model: HookedMTA, batches):
    """Six samples as four and two: the values sum to the effect on all six."""
    (batch,) = batches

    def part(start: int, stop: int) -> GoldBatch:
        return replace(batch, ids=batch.ids[start:stop], answers=batch.answers[start:stop], right=_none_right)

    shared = shapley_values(model, [part(0, 4), part(4, 6)], most=4)
    assert sum(value.shapley for value in shared.values) == pytest.approx(shared.effect, abs=1e-5)


def test_the_standard_error_counts_pairs_by_their_samples():
    """Batches of 4, 4 and 1: means by hand, and none where all pairs agree, however large their batches."""
    sizes = np.array([4.0, 4.0, 1.0])
    pairs = Pairs(np.array([[3.0, 2.0], [5.0, 2.0], [9.0, 2.0]]), sizes)
    mean = (4 * 3 + 4 * 5 + 9) / 9
    squares = (4 / 3 * (3 - mean)) ** 2 + (4 / 3 * (5 - mean)) ** 2 + (1 / 3 * (9 - mean)) ** 2
    assert pairs.mean == pytest.approx([mean, 2])
    assert pairs.standard_error == pytest.approx([(squares / (3 * 2)) ** 0.5, 0])
    alike = Pairs(pairs.marginals, np.full(3, 7.0))
    assert alike.standard_error == pytest.approx(pairs.marginals.std(0, ddof=1) / 3**0.5)


def _none_right(greedy: torch.Tensor) -> list[bool]:
    return [False] * len(greedy)


def test_medians_have_intervals_and_one_sample_has_none(model: HookedMTA, shared: Shapley):
    for value in shared.values:
        assert value.necessary_median_low <= value.necessary_median <= value.necessary_median_high
        assert value.sufficient_median_low <= value.sufficient_median <= value.sufficient_median_high
    assert any(value.sufficient_median_low < value.sufficient_median_high for value in shared.values)
    meter = AnswerMeter(capture(model, [3, 1, 4, 1, 5]), Answer((9, 2), "9 2", "given"))
    setting, one = prompt_batch(meter)
    alone = shapley_values(model, one, most=2)
    assert alone.complete == pytest.approx(meter.before, abs=1e-5) and "this prompt of 5 tokens" in setting
    assert {value.necessary_median for value in alone.values} == {None}


def test_the_number_of_passes_is_what_progress_counts(model: HookedMTA, batches):
    steps: list[float] = []
    shapley_values(model, batches, most=2, progress=steps.append)
    other = (5, 14, 19, 14, 5)  # sets of one to five of six kernels, but for the greedy one
    sets = (2 + 2 * 6) + (6 + 5 + 4 + 3 + 2) + 5 + sum(other)
    assert steps == sorted(steps) and steps[-1] == pytest.approx((sets + 2 * 2 * 6) / passes(6, 1, 2))


def test_a_file_is_read_as_it_was_written_and_its_faults_are_listed(tmp_path, shared: Shapley):
    whole = TaskShapley("abc", "blocks", "three blocks", 5, shared)
    file = tmp_path / "shapley.json"
    file.write_text(json.dumps(whole.as_data()))
    assert read_shapley(file) == whole
    older = whole.as_data()
    for row in older["kernels"]:
        del row["necessary_median"]
    file.write_text(json.dumps(older))
    assert {value.necessary_median for value in read_shapley(file).shared.values} == {None}
    file.write_text(json.dumps(whole.as_data() | {"task": "chess", "n_orders": "many"}))
    with pytest.raises(MtaVizError, match=r"(?s)n_orders.*task"):
        read_shapley(file)
    broken = whole.as_data()
    for kernel, words in (
        ("L9 H9 pre", "L9 H9 pre"),
        ("L0 H0 up", "expected"),
        (5, "expected"),
        (None, "expected"),
    ):
        broken["greedy_sets"][0]["kernels"] = [kernel]
        file.write_text(json.dumps(broken))
        with pytest.raises(MtaVizError, match=words):
            read_shapley(file)


def _subsets(n: int) -> list[frozenset[int]]:
    return [frozenset(at for at in range(n) if mask >> at & 1) for mask in range(2**n)]

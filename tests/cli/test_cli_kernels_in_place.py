"""`gain`, `operator`, `paths`, `shapley`, `recurrence`, `effects --edit`: the calls behind them."""

import pytest
from cli_support import assert_refused

import mta_viz
from mta_viz.analysis.attention.taps import operator, tap_gains
from mta_viz.analysis.cause.effects import find_effects, read_effects
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.history import kernel_entries
from mta_viz.model.interventions import KernelToOwnTap
from mta_viz.run.tracing import capture

KERNEL, NAME = KernelId(1, 2, "pre"), "L1 H2 pre"
PROMPT = "abcab.bcabc#ab"


def test_gain_lists_every_kernel_or_the_taps_of_one(run, folder):
    answer = run("gain", folder, "--prompt", PROMPT, "--span", "2:5").json
    assert answer["span"] == [2, 5]
    gains = tap_gains(capture(mta_viz.load(folder), PROMPT), KERNEL, range(2, 5))
    (row,) = [row for row in answer["kernels"] if (row["layer"], row["head"], row["where"]) == (1, 2, "pre")]
    assert row["gain"] == pytest.approx(gains.total, abs=1e-5)
    one = run("gain", folder, "--prompt", PROMPT, "--span", "2:5", "--kernel", NAME).json
    assert sum(tap["gain"] for tap in one["taps"]) == pytest.approx(gains.total, abs=1e-4)


def test_gain_needs_a_span_where_no_needle_is_asked_for(run, folder):
    assert_refused(run("gain", folder, "--prompt", PROMPT), "say which keys are meant with --span 3:8")


def test_operator_lists_the_taps_of_largest_share(run, folder):
    answer = run("operator", folder, "--prompt", PROMPT, "--kernel", NAME, "--top", 3).json
    expected = operator(capture(mta_viz.load(folder), PROMPT), KERNEL).top(3)
    assert [(tap["query_offset"], tap["key_offset"]) for tap in answer["taps"]] == [
        row[:2] for row in expected
    ]


def test_paths_list_every_edge_and_the_share_of_the_strongest(run, folder):
    answer = run("paths", folder, "--prompt", PROMPT, "--kernel", NAME).json
    assert {edge["part"] for edge in answer["edges"]} == {"mlp", "logits"}  # its layer is the last
    assert answer["share"] == pytest.approx(answer["together"] / answer["whole"], rel=1e-3)
    assert_refused(run("paths", folder, "--prompt", PROMPT, "--kernel", "L0 H2 pre"), "has no pre kernel")


def test_shapley_gives_a_row_a_kernel(run, small):
    answer = run("shapley", small, "--task", "blocks", "--samples", 2, "--most", 2)
    assert answer.status == 0, answer.err
    values = [row["shapley"] for row in answer.json["kernels"]]
    assert sum(values) == pytest.approx(answer.json["effect"], abs=1e-3)
    assert answer.json["edit"] == "own-tap" and answer.json["n_orders"] == 4
    assert len(answer.json["greedy_sets"]) == 5


def test_effects_at_own_tap_lie_beside_those_at_identity(run, small):
    for edit in ("identity", "own-tap"):
        answer = run("effects", small, "--task", "blocks", "--samples", 2, "--edit", edit)
        assert answer.status == 0, answer.err
    own = read_effects(small / "effects-own-tap.json")
    assert own.of(KERNEL).plan == (KernelToOwnTap(1, 2, "pre"),)
    assert own.of(KERNEL).log_probability_change != find_effects(small).of(KERNEL).log_probability_change
    assert find_effects(small, "own-tap") == own
    refused = run(
        "effects", small, "--task", "blocks", "--samples", 2, "--out", small / "effects-own-tap.json"
    )
    assert_refused(refused, "edit differ")


def test_recurrence_of_a_model_with_itself_and_with_a_file_of_kernels(run, folder, model, tmp_path):
    from safetensors.torch import save_file

    entries = kernel_entries(model.config)
    weights = model.state_dict()
    file = tmp_path / "seed1.safetensors"
    save_file(
        {entry.key: entry.layout.write(weights[name]).contiguous() for name, entry in entries.items()}, file
    )
    answer = run("recurrence", folder, folder, file).json
    for other in answer["others"]:
        assert other["same"] == other["named"]
        assert all(row["cosine"] == pytest.approx(1) for row in other["kernels"])
    save_file({"something": weights["embed.weight"].clone()}, tmp_path / "other.safetensors")
    assert_refused(
        run("recurrence", folder, tmp_path / "other.safetensors"), "the model has no kernel something"
    )


def test_head_mixing_has_no_taps_and_no_edit_to_zero(run, folder):
    for command in ("operator", "gain"):
        more = ("--span", "2:5") if command == "gain" else ()
        answer = run(command, folder, "--prompt", PROMPT, "--kernel", "L1 H2 head_pre", *more)
        assert_refused(answer, "is head mixing, which has no taps")
    zero = run("paths", folder, "--prompt", PROMPT, "--kernel", "L1 H2 head_pre", "--edit", "zero")
    assert_refused(zero, "has no edit 'zero'")

"""`gain`, `operator`, `paths`, `shapley`, `recurrence`, `effects --edit`: the calls behind them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cli_support import assert_refused

import mta_viz
from mta_viz.analysis.attention.taps import operator, tap_gains
from mta_viz.analysis.cause.effects import find_effects, read_effects
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.history import kernel_entries
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from mta_viz.model.interventions import KernelToOwnTap
from mta_viz.model.transformer import HookedMTA
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


def test_recurrence_in_a_file_of_kernels_and_none_with_itself(run, model, tmp_path):
    from safetensors.torch import save_file

    config = replace(model.config, mta=MTAOptions(pre_kernel=(6, 11)))
    folder, weights = tmp_path / "planted", HookedMTA(config).state_dict()
    weights["blocks.1.attn.kernel_pre"][2, :, :6] = torch.eye(6)  # a diagonal
    write_native(folder, config, weights, tokenizer_name="char", tokenizer_path=None, dtype=None)

    def saved(name: str, factor: float) -> Path:
        taps = {entry.key: entry.layout.write(factor * weights[at]) for at, entry in entries.items()}
        save_file({key: value.contiguous() for key, value in taps.items()}, tmp_path / name)
        return tmp_path / name

    entries = kernel_entries(config)
    (other,) = run("recurrence", folder, saved("twice.safetensors", 2.0)).json["others"]
    assert other["same"] == other["named"] == len(other["kernels"]) > 0
    assert all(row["cosine"] == pytest.approx(1) for row in other["kernels"])
    for itself in (folder, saved("own.safetensors", 1.0)):
        assert_refused(run("recurrence", folder, itself), "matched with itself every name comes again")
    plain = tmp_path / "plain"
    shapes = replace(model.config, mta=MTAOptions())
    write_native(
        plain, shapes, HookedMTA(shapes).state_dict(), tokenizer_name="char", tokenizer_path=None, dtype=None
    )
    for pair in ((plain,), (plain, folder), (folder, plain)):
        assert_refused(run("recurrence", *pair), f"{plain} has no key-query kernels, so none can come again")
    save_file({"something": weights["embed.weight"].clone()}, tmp_path / "other.safetensors")
    assert_refused(
        run("recurrence", folder, tmp_path / "other.safetensors"), "the model has no kernel something"
    )


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("direct-effect", "--layer", 99), "layer 99 does not exist; expected 0 to 1"),
        (("attribute", "--layer", 9, "--stage", "kq"), "layer 9 does not exist"),
        (("cells", "--layer", 1, "--head", 9, "--stage", "kq"), "head 9 does not exist; expected 0 to 3"),
        (("decompose", "--layer", -1, "--head", 0, "--stage", "kq", "--key", 1), "layer -1 does not exist"),
        (("operator", "--kernel", "L9 H0 pre"), "layer 9 does not exist"),
        (("gain", "--kernel", "L1 H7 pre", "--span", "2:5"), "head 7 does not exist"),
        (("paths", "--kernel", "L1 H7 pre"), "head 7 does not exist"),
        (("ablate", "--head", "L9 H0"), "L9 H0"),
        (("paper-figures", "--out", "DIR", "--layer", "9"), "layer 9 does not exist"),
        (("paper-figures", "--out", "DIR", "--head", "1,7"), "head 7 does not exist"),
    ],
)
def test_what_the_model_has_not_is_refused_before_anything_runs(
    run, folder, monkeypatch, tmp_path, command, named
):
    def ran(*_: object, **__: object) -> None:
        raise AssertionError("the prompt was run")

    for module in ("mta_viz.cli.paper_saved", "mta_viz", "mta_viz.run.tracing"):  # first what imports it
        monkeypatch.setattr(f"{module}.capture", ran)
    name, *options = (tmp_path / "figures" if word == "DIR" else word for word in command)
    assert_refused(run(name, folder, "--prompt", PROMPT, *options), named)


def test_a_task_that_does_not_fit_is_refused_with_the_one_that_does(run, small):
    for command in ("effects", "shapley", "kernels"):
        refused = run(command, small, "--task", "needle", "--samples", 2)
        assert_refused(refused, "needle prompts are text; the task that fits it is blocks")


def test_head_mixing_has_no_taps_and_no_edit_to_zero(run, folder):
    for command in ("operator", "gain"):
        more = ("--span", "2:5") if command == "gain" else ()
        answer = run(command, folder, "--prompt", PROMPT, "--kernel", "L1 H2 head_pre", *more)
        assert_refused(answer, "is head mixing, which has no taps")
    zero = run("paths", folder, "--prompt", PROMPT, "--kernel", "L1 H2 head_pre", "--edit", "zero")
    assert_refused(zero, "has no edit 'zero'")

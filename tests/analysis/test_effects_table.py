"""The table of effects: what it is keyed by, its file, and files that are none."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from mta_viz.analysis.cause.effects import (
    FILE,
    Absent,
    Effect,
    Effects,
    Estimate,
    MedianEstimate,
    find_effects,
    kernel_of,
    kernels_that_matter,
    read_effects,
    without,
    write_effects,
)
from mta_viz.analysis.cause.sweeps import effect_plans, heads_alone
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.reading import read_summary
from mta_viz.errors import MtaVizError
from mta_viz.model.interventions import AblateHead, KernelToIdentity, MixingToIdentity

ASSETS = Path(__file__).parents[2] / "assets"
PRE, ROW = KernelId(1, 0, "pre"), KernelId(0, 3, "head_post")
NO_CHANGE, BROKEN = Estimate(0.0, -0.5, 0.5), Estimate(math.nan, math.nan, math.nan)
FALL, UNMOVED = Estimate(-3.0, math.nan, math.nan), Estimate(0.0, math.nan, math.nan)
MEDIAN = MedianEstimate(-2.5, -4.0, -2.0, 0.875)


def table(digest: str) -> Effects:
    effects = (
        Effect((KernelToIdentity(1, 0, "pre"),), 0.25, Estimate(-0.75, -0.9, -0.5), FALL, MEDIAN),
        Effect((MixingToIdentity(0, "head_post", 3),), 1.0, NO_CHANGE, BROKEN),
        Effect((MixingToIdentity(0, "head_post"), AblateHead(0, 0)), 1.0, NO_CHANGE, UNMOVED),
    )
    return Effects(digest, "needle", 4, 7, "four needles", "0.1.0", 1.0, -0.125, effects)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Weights and the effects measured on them."""
    (tmp_path / "params.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_effects(tmp_path / FILE, table(sha256(tmp_path)))
    return tmp_path


def test_the_file_gives_back_the_table(folder: Path):
    found = find_effects(folder)
    assert repr(found) == repr(table(sha256(folder)))  # by words: NaN is not equal to itself
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


def test_kernels_matter_whose_interval_of_accuracy_lies_below_0(folder: Path, tmp_path: Path):
    assert kernels_that_matter(folder) == {PRE}
    write_effects(folder / FILE, replace(table(sha256(folder)), effects=()))
    assert kernels_that_matter(folder) == kernels_that_matter(None) == frozenset()
    at_ends = Effect((KernelToIdentity(1, 0, "pre"),), 0.9, Estimate(-0.1, -0.2, 0.0), FALL, MEDIAN)
    write_effects(folder / FILE, replace(table(sha256(folder)), effects=(at_ends,)))
    assert kernels_that_matter(folder) == frozenset()


def test_a_file_of_the_older_format_is_read_without_the_ends_of_its_means(folder: Path):
    data = json.loads((folder / FILE).read_text()) | {"format": "mta_viz effects 1"}
    for effect in data["effects"]:
        del effect["log_probability_change_median"]
    data["effects"][0]["log_probability_change"].update(low=-4.0, high=-2.0)
    (folder / FILE).write_text(json.dumps(data))
    found = read_effects(folder / FILE).of(PRE)
    assert found.log_probability_change.value == -3.0 and math.isnan(found.log_probability_change.low)
    assert found.accuracy_change.low == -0.9 and found.log_probability_change_median is None


def test_effects_are_found_by_kernel_and_told_apart_from_plans_of_more():
    found = table("x")
    assert found.of(PRE).accuracy == 0.25 and found.of(ROW) is found.effects[1]
    assert found.of(KernelId(1, 0, "post")) is None
    assert [kernel_of(effect) for effect in found.effects] == [PRE, ROW, None]
    assert kernel_of(Effect((MixingToIdentity(0, "head_post"),), 1.0, NO_CHANGE, NO_CHANGE)) is None
    assert kernel_of(Effect((AblateHead(0, 0),), 1.0, NO_CHANGE, NO_CHANGE)) is None
    assert without(ROW) == MixingToIdentity(0, "head_post", 3)


def test_without_a_file_the_effects_are_absent(folder: Path):
    (folder / FILE).unlink()
    assert find_effects(folder) == Absent(
        "The effect of each kernel on a task has not been measured for this checkpoint."
    )


def test_of_other_weights_they_are_absent(folder: Path):
    (folder / "model.safetensors").write_bytes(b"weights, trained on")
    assert "other weights" in find_effects(folder).reason


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda data: data.pop("task"), "'task' is missing"),
        (lambda data: data.update(format="mta_viz effects 3"), "format"),
        (lambda data: data.update(task="chess"), "chess"),
        (lambda data: data.update(samples="4"), "samples is '4'"),
        (lambda data: data.update(accuracy=True), "accuracy is True"),
        (lambda data: data.update(effects={}), "effects is {}"),
        (lambda data: data["effects"].append(3), "effects[3] is 3; expected an object"),
        (lambda data: data["effects"][0].pop("plan"), "'effects[0].plan' is missing"),
        (lambda data: data["effects"][0].update(plan=[{"kind": "x"}]), "effects[0].plan: number 1"),
        (
            lambda data: data["effects"][0]["accuracy_change"].pop("low"),
            "accuracy_change.low' is missing",
        ),
        (
            lambda data: data["effects"][0].update(accuracy_change=[1, 2, 3]),
            "accuracy_change is [1, 2, 3]",
        ),
        (lambda data: data.update(accuracy=10**400), "expected a valid number"),
    ],
)
def test_foreign_tables_are_refused_and_shown_as_absent(folder: Path, change, word: str):
    data = json.loads((folder / FILE).read_text())
    change(data)
    (folder / FILE).write_text(json.dumps(data))
    with pytest.raises(MtaVizError, match="Move it away and measure again") as raised:
        read_effects(folder / FILE)
    assert word in str(raised.value)
    assert find_effects(folder) == Absent(str(raised.value))


@pytest.mark.parametrize("content", [b"", b'{"format": ', b"\xff\xfe", b"[" * 100_000, b"null", b"[]"])
def test_damaged_files_are_refused(folder: Path, content: bytes):
    (folder / FILE).write_bytes(content)
    with pytest.raises(MtaVizError, match="Move it away"):
        read_effects(folder / FILE)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path):
    with pytest.raises(MtaVizError, match="cannot be written"):
        write_effects(tmp_path / "none" / FILE, table("x"))


@pytest.mark.parametrize("name", ["blocks-n5-mta", "needle-mta"])
def test_shipped_effects_belong_to_their_weights_and_lack_no_kernel_and_no_head(name: str):
    folder = ASSETS / name
    found, config = find_effects(folder), read_summary(folder).config
    assert isinstance(found, Effects), found
    assert {effect.plan for effect in found.effects} == {
        *effect_plans(config),
        *((head_off,) for head_off in heads_alone(config)),
    }
    assert found.accuracy > 0.98 and found.samples >= 20

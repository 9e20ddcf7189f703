"""The shipped rates meet the bars and agree with a small new measurement; every name has a definition."""

import contextlib
import io

import pytest

from benchmarks import shape_rates
from mta_viz.analysis.kernels.definitions import MeasuredRates, measured_rates, sections
from mta_viz.analysis.kernels.measures import NAMES
from mta_viz.analysis.kernels.probes import _OF_SHAPE
from mta_viz.analysis.kernels.table import HEAD_SCORES, KEY_QUERY_SCORES
from mta_viz.tasks.intervals import accuracy_interval

RATES = measured_rates()
WHERE = ("group", "source", "own_weight", "dominant_query", "dominant_key", "dominant_sign")


@pytest.mark.parametrize("noise", ["Gaussian", "identity + 0.05 x Gaussian"])
def test_noise_gets_a_name_in_at_most_one_of_a_hundred(noise):
    rates = [rate for rate in RATES.false_names if rate.kernels == noise]
    assert len(rates) == 6 and all(rate.n == 10_000 for rate in rates)
    assert max(rate.share for rate in rates) <= 0.01


def test_a_probe_passes_noise_about_as_often_as_it_says():
    assert {rate.n for rate in RATES.probes} == {1000}
    for rate in RATES.probes:
        assert accuracy_interval(rate.hits, rate.n)[0] <= 0.01, rate


@pytest.mark.parametrize(
    ("measure", "count", "shipped"),
    [(shape_rates.false_names, 400, RATES.false_names), (shape_rates.power, 40, RATES.power)],
)
def test_a_small_measurement_agrees_with_what_is_shipped(measure, count, shipped):
    with contextlib.redirect_stdout(io.StringIO()):
        found = list(measure(count))
    assert [(one.kernels, one.size) for one in found] == [(one.kernels, one.size) for one in shipped]
    far = []
    for one, other in zip(found, shipped, strict=True):
        low, high = accuracy_interval(one.hits, one.n)
        slack = 0.5 * (high - low)  # 95 % intervals of over 100 lines: some miss by chance
        if not low - slack <= other.share <= high + slack:
            far.append((one, other))
    assert far == []


def test_the_file_is_written_as_it_is_read():
    import json

    read = json.loads(RATES.text())
    assert len(read["power"]) == len(RATES.power) and read["probes"][0]["hits"] == RATES.probes[0].hits
    assert isinstance(RATES, MeasuredRates)


def test_every_score_and_name_has_a_definition():
    defined = {
        part.strip().replace("-", "_").replace(" ", "_")
        for section in sections()
        for name, _ in section.entries
        for part in name.split(",")
    }
    scores = {name for name in (*KEY_QUERY_SCORES, *HEAD_SCORES) if name not in WHERE}
    assert scores <= defined, scores - defined
    names = {name.removeprefix("negative ").replace("-", "_").replace(" ", "_") for name in _OF_SHAPE}
    said = " ".join(text for section in sections() for _, text in section.entries)
    missing = {name for name in names - defined if name.replace("_", " ") not in said}
    assert missing == set()
    assert all(text for section in sections() for _, text in section.entries)


def test_the_templates_are_read_off_the_library():
    entries = {name: text for section in sections() for name, text in section.entries}
    assert set(NAMES) <= set(entries)
    assert entries["induction"].startswith("(n, -1 - n)") and entries["smoothing"].startswith("boxes")
    assert "two-row" in entries["too small for a shape"]
    assert entries["diagonal at -2, diagonal at +1 ..."].startswith("(n, o - n): two keys after")


def test_definitions_hold_no_marks_of_code():
    assert not any("`" in text for section in sections() for _, text in section.entries)

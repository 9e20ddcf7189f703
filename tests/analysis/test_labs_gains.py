"""Finder scores over samples: the mean and interval of each head, against the plain bootstrap."""

import pytest
import torch
from lab_models import byte_model

from mta_viz.analysis.labs.finder import find, sample_parts
from mta_viz.analysis.labs.needle import finder_means, mean_score
from mta_viz.errors import Cancelled, ConfigError
from mta_viz.run.tracing import capture
from mta_viz.tasks.intervals import bootstrap_interval
from mta_viz.tasks.needles import NeedleTask, make_needle_sample

TASK = NeedleTask(2, 260, 50)


def test_mean_and_interval_are_those_of_one_head_alone():
    values = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(0))
    values[:, 1, 2] = torch.nan
    found = mean_score(values)
    for layer, head in ((0, 0), (1, 1)):
        each = values[:, layer, head].tolist()
        assert float(found.mean[layer, head]) == pytest.approx(sum(each) / 7, abs=1e-6)
        interval = (float(found.low[layer, head]), float(found.high[layer, head]))
        assert interval == pytest.approx(bootstrap_interval(each), abs=1e-6)
    assert found.mean[1, 2].isnan() and found.low[1, 2].isnan()


def test_samples_are_those_of_the_lab_and_partial_results_come_one_by_one():
    model, kept = byte_model(), []
    whole = finder_means(model, TASK, 5, 3, keep=kept.append)
    assert [one.n for one in kept] == [1, 2, 3] and whole.n == 3
    for key in ("span.final", "gain.kq", "selectivity"):
        each = []
        for seed in (5, 6, 7):
            sample = make_needle_sample(model.tokenizer, TASK, seed)
            each.append(find(capture(model, sample.tokens), sample_parts(sample)).asked.values[key])
        mean = torch.stack(each).mean(0)
        assert torch.allclose(whole.scores[key].mean, mean, atol=1e-6, equal_nan=True)
    assert torch.equal(kept[0].scores["span.final"].low, kept[0].scores["span.final"].mean)


def test_it_can_be_stopped_and_needs_a_sample():
    def stop(_share):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        finder_means(byte_model(), TASK, 0, 2, progress=stop)
    with pytest.raises(ConfigError, match="n is 0"):
        finder_means(byte_model(), TASK, 0, 0)

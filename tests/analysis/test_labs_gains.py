"""Finder scores over samples: mean, median and intervals of each head, against those of the head alone."""

import pytest
import torch
from lab_models import byte_model

from mta_viz.analysis.labs.finder import find, sample_parts
from mta_viz.analysis.labs.needle import finder_means, mean_score, ranked_places
from mta_viz.errors import Cancelled, ConfigError
from mta_viz.run.tracing import capture
from mta_viz.tasks.intervals import mean_interval, median_interval
from mta_viz.tasks.needles import NeedleTask

TASK = NeedleTask(2, 260, 50)


def test_mean_and_interval_are_those_of_one_head_alone():
    values = torch.rand(7, 2, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    values[:, 1, 2] = torch.nan
    found, unbounded = mean_score(values, (-1.0, 1.0)), mean_score(values)
    for layer, head in ((0, 0), (1, 1)):
        each = values[:, layer, head].tolist()
        assert float(found.mean[layer, head]) == pytest.approx(sum(each) / 7, abs=1e-6)
        interval = [float(found.low[layer, head]), float(found.high[layer, head])]
        assert interval == pytest.approx([float(end) for end in mean_interval(each, (-1.0, 1.0))], abs=1e-6)
        of_median = (float(found.median_low[layer, head]), float(found.median_high[layer, head]))
        alone = median_interval(each)
        assert of_median == pytest.approx((float(alone.low), float(alone.high)), abs=1e-6)
        assert of_median == pytest.approx((min(each), max(each)))  # of 7 samples, the widest of 95 %
    assert found.level == alone.level > 0.95
    assert found.mean[1, 2].isnan() and found.low[1, 2].isnan() and found.median_low[1, 2].isnan()
    assert unbounded.low.isnan().all() and torch.equal(unbounded.median[0], found.median[0])


def test_heads_are_ranked_by_the_lower_end_of_the_median_and_of_one_sample_by_it():
    values = torch.tensor([[[0.9, 0.5, torch.nan]], [[-0.9, 0.4, torch.nan]]])
    assert ranked_places(mean_score(values)) == [(0, 1), (0, 0)]
    assert ranked_places(mean_score(values[:1])) == [(0, 0), (0, 1)]
    assert mean_score(values[:1], (-1.0, 1.0)).low.isnan().all()


def test_samples_are_those_of_the_lab_and_partial_results_come_one_by_one():
    model, kept = byte_model(), []
    whole = finder_means(model, TASK, 5, 3, keep=kept.append)
    assert [one.n for one in kept] == [1, 2, 3] and whole.n == 3
    for key in ("span.final", "gain.kq", "selectivity"):
        each = []
        for seed in (5, 6, 7):
            sample = TASK.sample(model.tokenizer, seed)
            each.append(find(capture(model, sample.tokens), sample_parts(sample)).asked.values[key])
        mean = torch.stack(each).mean(0)
        assert torch.allclose(whole.score(key).mean, mean, atol=1e-6, equal_nan=True)
    assert not whole.score("span.final").low.isnan().any() and whole.score("gain.kq").low.isnan().all()
    assert kept[0].score("span.final").median_low.isnan().all()


def test_it_can_be_stopped_and_needs_a_sample():
    def stop(_share):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        finder_means(byte_model(), TASK, 0, 2, progress=stop)
    with pytest.raises(ConfigError, match="n is 0"):
        finder_means(byte_model(), TASK, 0, 0)

"""Every figure of every golden checkpoint can be drawn, and its numbers are the trace's."""

import json
from pathlib import Path

import numpy as np
import pytest

from mta_viz.analysis.attention.cells import top_tokens
from mta_viz.analysis.attention.changes import health
from mta_viz.analysis.attention.maps import head_map, head_maps, shared_limit, stages_table
from mta_viz.analysis.kernels.kernels import layer_kernels
from mta_viz.plots.attention.maps import attention_map
from mta_viz.plots.attention.stages import stage_strip
from mta_viz.plots.attention.tokens import next_tokens
from mta_viz.plots.cells import TARGETS
from mta_viz.plots.kernels.mosaic import kernel_grid
from mta_viz.plots.kernels.paper import head_mixing
from mta_viz.run.tracing import capture, load

CHECKPOINTS = ["baseline", "mta_full", "mta_headgroups2", "mta_toy", "talking_heads"]
LENGTH = 21


@pytest.mark.golden
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_figures_of_a_golden_checkpoint(golden: Path, name: str) -> None:
    model = load(golden / name)
    trace = capture(model, [5 + 7 * i % 23 for i in range(LENGTH)])
    for layer in range(model.config.n_layers):
        maps = head_maps(trace, layer, 1)
        limits = {
            unit: shared_limit([one for stage, one in maps.items() if stage.value.unit == unit])
            for unit in ("score", "weight")
        }
        ends = {stage: limits[stage.value.unit] for stage in maps}
        assert json.loads(stage_strip(maps, ends, next(iter(maps))).to_json())
        assert len(stages_table(maps, trace.tokens).rows) == len(maps) * LENGTH**2
        for stage, one in maps.items():
            figure = attention_map(one, trace.tokens, limit=limits[stage.value.unit])
            seen = next(trace for trace in figure.data if trace.meta == TARGETS)
            values = trace.map(layer, stage, 1).numpy()
            assert np.array_equal(seen.customdata[:, 0], values[seen.y, seen.x])
        pooled = head_map(trace, layer, stage, 1, max_cells=8)
        assert attention_map(pooled, trace.tokens, limit=1.0).to_json() and pooled.table(trace.tokens).rows
        kernels = layer_kernels(model.state_dict(), model.config, layer)
        for where in ("pre", "post"):
            assert getattr(kernels, where) is None or kernel_grid(kernels, where, layer=layer).to_json()
            mixed = getattr(kernels, f"head_{where}") is not None
            assert not mixed or head_mixing(kernels, f"head_{where}", layer).to_json()
        assert kernels.table().csv().startswith("kind,")
    assert next_tokens(top_tokens(trace, LENGTH - 1)).to_json()
    found = health(model, trace)
    assert found.n_nan == found.n_inf == 0 and found.self_check.logits_error < 1e-4

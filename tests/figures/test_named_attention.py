"""The named figures of attention: each draws, has numbers and a caption, and comes again as JSON."""

import json
from typing import Any

import pytest
import torch

import mta_viz
from mta_viz.analysis.attention.cells import top_cells
from mta_viz.analysis.attention.decomposition import decompose
from mta_viz.analysis.attention.maps import exact_map, head_maps, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.figures import figure, spec
from mta_viz.figures.base import Drawn, Source, drawn
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.cells import TARGETS
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import capture
from tests.figures.checked import assert_plotly_takes_it
from tests.tiny_models import FULL, config, random_weights, two_head_trace

HEAD = {"layer": 1, "head": 2}
CELL = {"query": 9, "key": 4}
CAT = Span("cat", "A", 2, 5)
FIGURES: dict[str, dict[str, Any]] = {
    "attention-map": HEAD | CELL | {"stage": "kq", "spans": (CAT,)},
    "stage-strip": HEAD | {"stage": "kq"},
    "difference-map": HEAD | CELL | {"stage": "kq", "first_token": True},
    "row": HEAD | CELL | {"stages": ("mix", "sm")},
    "column": HEAD | CELL | {"spans": (CAT,)},
    "attention-text": HEAD | {"stage": "final", "position": 9},
    "next-token": {"position": 9},
    "lens": {"position": 9, "shown": "lines"},
    "gate": {"layer": 1, "head": 2, "position": 9},
    "why": HEAD | CELL | {"stage": "kq"},
    "playground": HEAD | CELL | {"taps": ((0.5, 0.0, -1.0), (0.0, 1.0, 0.0)), "scores": "this head's scores"},
    "head-scores": {"score": "gain.kq", "span": CAT, "selected": (1, 2)},
    "heads-scatter": {"up": "sink", "colour": "distance"},
    "head-tiles": {"stage": "kq2", "layer": 1, "own_scale": False},
    "operator": HEAD | {"where": "post"},
    "tap-gains": HEAD | {"keys": (4, 7), "query": 9},
}
TABLES: dict[str, dict[str, Any]] = {
    "top-cells": HEAD | {"stage": "final", "by": "contribution", "count": 3},
    "row-statistics": HEAD,
}


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Twelve tokens through a model with every kind of kernel, mixing and gate."""
    shapes = config(FULL, 32)
    model = HookedMTA(shapes)
    model.load_state_dict(random_weights(shapes), strict=False)
    return capture(model, [5, 1, 2, 3, 4, 1, 2, 9, 8, 7, 6, 5])


def targets(figure: Drawn) -> dict[tuple[int, int], float]:
    """Query, key and value of every cell that takes a click."""
    traces = [trace for trace in figure.figure.data if trace.meta == TARGETS and trace.customdata is not None]
    return {
        (int(y), int(x)): float(numbers[0])
        for trace in traces
        for x, y, numbers in zip(trace.x, trace.y, trace.customdata, strict=True)
    }


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_draws_and_is_made_again_from_its_parameters_as_json(trace: Trace, name: str) -> None:
    made = figure(name, trace, **FIGURES[name])
    assert len(made.figure.data) > 0 and made.caption and made.table.rows
    assert_plotly_takes_it(made.figure)
    parameters = json.loads(json.dumps(made.spec.parameters()))
    assert spec(name, parameters) == made.spec
    again = figure(name, trace, **parameters)
    assert again.figure.to_json() == made.figure.to_json() and again.table.csv() == made.table.csv()
    assert "_" not in "".join(map(str, made.spec.file_parts()))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_rows_and_a_caption_and_no_picture(trace: Trace, name: str) -> None:
    made = figure(name, trace, **TABLES[name])
    assert made.figure is None and made.caption and made.table.rows
    assert spec(name, json.loads(json.dumps(made.spec.parameters()))) == made.spec


def test_labels_count_as_asked_and_rows_from_0(trace: Trace) -> None:
    made = figure("attention-map", trace, numbering=1, **HEAD, stage="kq")
    assert made.caption.startswith("L2 H3, after key-query conv, 12 tokens.")
    assert made.table.rows[0][:3] == (1, 2, "hook_scores_kq")


def test_the_map_is_the_traces_and_its_hover_tells_the_stage_before(trace: Trace) -> None:
    made = figure("attention-map", trace, **HEAD, stage="kq")
    values = trace.map(1, Stage.KQ, 2)
    assert len(targets(made)) == 78
    assert all(values[place] == value for place, value in targets(made).items())
    hovers = [trace.hovertemplate for trace in made.figure.data if trace.hovertemplate]
    assert any("before: " in hover and "change " in hover for hover in hovers)


def test_limits_are_the_maps_own_or_those_of_all_stages_of_its_unit(trace: Trace) -> None:
    maps = head_maps(trace, 1, 2)
    own, shared = (
        figure("attention-map", trace, **HEAD, stage="raw", scale=scale).result.limit
        for scale in ("this map", "all stages")
    )
    scores = [one for stage, one in maps.items() if stage.value.unit == "score"]
    assert (own, shared) == (shared_limit([maps[Stage.RAW]]), shared_limit(scores)) and own < shared


def test_a_part_is_exact_on_the_whole_maps_scale_and_named(trace: Trace) -> None:
    whole = figure("attention-map", trace, **HEAD, stage="final", **CELL)
    part = whole.cropped((6, 10), (2, 5))
    exact = exact_map(trace, 1, Stage.PATTERN, 2, slice(6, 10), slice(2, 5))
    assert torch.equal(part.result.shown.values, exact.values) and part.result.limit == whole.result.limit
    assert part.caption.endswith("Queries 6 to 9, keys 2 to 4.") and len(part.table.rows) == 12
    assert part.spec.file_parts()[-2:] == ("q6-9", "k2-4") and (part.spec.query, part.spec.key) == (
        None,
        None,
    )


def test_a_part_and_the_step_before_it_come_of_one_pass(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, slabs = figure("attention-map", trace, **HEAD, stage="final").cropped((6, 10), (2, 5)), Trace._slabs
    asked = []

    def counted(self: Trace, layer: int, wanted: set[Stage], queries: range | None, *rest: Any) -> Any:
        asked.append(queries)
        return slabs(self, layer, wanted, queries, *rest)

    monkeypatch.setattr(Trace, "_slabs", counted)
    result = part.spec.result(Source(trace.model, trace))
    assert asked.count(range(6, 10)) == 1
    for shown, stage in ((result.shown, Stage.PATTERN), (result.before, Stage.SOFTMAX_KQ)):
        exact = exact_map(trace, 1, stage, 2, slice(6, 10), slice(2, 5))
        torch.testing.assert_close(shown.values, exact.values)


def test_a_long_prompt_is_drawn_in_blocks_and_a_large_part_refused() -> None:
    trace = two_head_trace()
    long = capture(trace.model, [1, 2, 3, 4] * 75)
    place = {"layer": 0, "head": 1, "stage": "kq"}
    whole = figure("attention-map", long, **place, outlined=((0, 64), (0, 64)))
    assert whole.result.shown.block == 2 and "2 x 2 block" in whole.caption
    assert whole.figure.layout.dragmode == "select"
    assert figure("attention-map", long, **place, queries=(0, 256), keys=(0, 256)).result.shown.block == 1
    with pytest.raises(PromptError, match="at most 256 queries"):
        figure("attention-map", long, **place, queries=(0, 257), keys=(0, 9))
    with pytest.raises(PromptError, match=r"tokens 200\.\.399 are not in the prompt; it has 0\.\.299"):
        figure("difference-map", long, **place, queries=(0, 9), keys=(200, 400))


def test_why_has_a_picture_where_the_value_is_a_sum(trace: Trace) -> None:
    made = {
        stage: figure("why", trace, **HEAD, **CELL, stage=stage)
        for stage in ("raw", "kq", "mix", "sm", "final")
    }
    assert [stage for stage, one in made.items() if one.figure is not None] == ["raw", "kq", "mix", "final"]
    raw = made["raw"]
    assert sum(raw.result.products) == pytest.approx(raw.result.value, abs=1e-5)
    assert sum(raw.figure.data[0].y) == pytest.approx(raw.result.value, abs=1e-5)
    assert made["kq"].result.terms == decompose(trace, 1, Stage.KQ, 2, 9, 4).terms
    assert "kernel tap x raw scores" in made["kq"].caption and "cosine" in made["raw"].caption
    assert "less the logsumexp of the row" in made["sm"].caption
    assert "largest other term" in made["mix"].caption


def test_the_cells_are_the_largest(trace: Trace) -> None:
    made = figure("top-cells", trace, **HEAD, stage="final", by="contribution", count=3)
    assert made.result == top_cells(trace, 1, 2, Stage.PATTERN, 3, by="contribution", first_token=False)
    assert "3 cells of largest contribution" in made.caption and "query 0 and key 0 left out" in made.caption


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("attention-map", HEAD | {"stage": "kq3"}, "layer 1 has no stage 'kq3'; it has raw, kq, mix"),
        ("stage-strip", {"layer": 9, "head": 0, "stage": "kq"}, "layer 9 does not exist; expected 0 to 3"),
        ("difference-map", HEAD | {"stage": "sm"}, "stages with a difference: kq, mix, kq2, final"),
        ("head-scores", {"score": "gain.kq"}, "'gain.kq' here; it is one of a span, give one"),
        ("head-scores", {"score": "x"}, "no score 'x' here. There are previous"),
        ("head-tiles", {"stage": "x"}, "no stage 'x'; there are raw, raw2, kq"),
        ("top-cells", HEAD | {"stage": "kq", "by": "contribution"}, "only the final weights"),
        ("why", HEAD | {"stage": "kq", "query": 3, "key": 4}, "Key 4 comes after query 3"),
        ("row", HEAD | {"query": 12}, "query 12 does not exist"),
        ("next-token", {"position": 12}, "position 12 does not exist; expected 0 to 11"),
    ],
)
def test_what_is_not_there_is_named(trace: Trace, name: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(MtaVizError, match=words):
        figure(name, trace, **parameters)


def test_a_model_without_gates_says_so() -> None:
    with pytest.raises(PromptError, match="no gate"):
        figure("gate", two_head_trace(), layer=0)


def test_passes_over_all_layers_report_their_progress(trace: Trace) -> None:
    shares: list[float] = []
    source = Source(trace.model, trace, progress=shares.append)
    for name in ("head-scores", "head-tiles"):
        shares.clear()
        drawn(spec(name, {"stage": "kq"} if name == "head-tiles" else {}), source)
        assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)


def test_the_notebook_draws_by_name(trace: Trace) -> None:
    made = mta_viz.figure("row", trace, layer=1, head=2, query=9)
    assert made.table.columns[3] == "query" and made.figure.layout.width == 900

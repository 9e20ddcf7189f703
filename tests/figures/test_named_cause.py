"""The named figures of interventions and attributions: what they draw, say, and hold in their rows."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mta_viz
from mta_viz.analysis.attention.maps import exact_map, shared_limit
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.cause.answers import rerun
from mta_viz.analysis.cause.effects import Effect, Effects, Estimate, without, write_effects
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.checkpoint.locate import sha256
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.exporting.provenance import from_text, make_again, provenance_of
from mta_viz.figures import figure, spec
from mta_viz.figures.base import Drawn, Source, drawn
from mta_viz.figures.cause import NeededKernels, Sweep
from mta_viz.figures.cause.attribution import HeadCells, HeadSizes, TokenValues, groups_of
from mta_viz.model.interventions import AblateHead, BypassGate, BypassGroupNorm, KernelToIdentity, PatchHead
from mta_viz.model.plans import plan_as_data
from mta_viz.model.stages import Stage
from mta_viz.run.trace import Trace
from tests.figures.checked import assert_plotly_takes_it
from tests.figures.test_named_attention import FIGURES as OF_ATTENTION
from tests.tiny_models import write_models

PROMPT, OTHER = "Hello, hello", "Hallo, hello"
HEAD = {"layer": 1, "head": 2}
LO = Span("lo", "A", 4, 6)
SECONDS = {"max_seconds": 1.0}
PLAN = (KernelToIdentity(1, 2, "pre"),)
FIGURES: list[tuple[str, dict[str, Any]]] = [
    ("edited-map", HEAD | {"stage": "kq", "side": "edited", "query": 9, "key": 4, "spans": (LO,)}),
    ("edited-map", HEAD | {"stage": "final", "side": "difference", "first_token": True}),
    ("sweep", {"where": "head_pre", "answer": "xy", "selected": (1, 2)}),
    ("sweep", {"where": "heads"}),
    ("patched-heads", {"prompt": OTHER, "selected": (1, 2)}),
    ("attribution", {"kind": "bars", "spans": (LO,), "position": 9, "answer": "l"} | SECONDS),
    ("attribution", {"kind": "text", "method": "ablation", "groups": ((1, 2), (4,)), "baseline": 7}),
    ("attributed-heads", {"of": "sizes", "stage": "kq", "selected": (1, 2)} | SECONDS),
    ("attributed-heads", {"of": "ablated", "stage": "final"} | SECONDS),
    ("attributed-map", HEAD | {"of": "attribution", "stage": "sm", "position": 9} | SECONDS),
    ("attributed-map", HEAD | {"of": "map", "stage": "kq"} | SECONDS),
    ("responsibility", {"answer": "xyz", "token": 1, "selected": (1, 2)}),
    ("responsible-cells", HEAD | {"of": "responsibility", "cell": (12, 4), "keys": (2, 9)}),
    ("responsible-cells", HEAD | {"of": "softmax", "position": 9}),
    ("responsible-cells", HEAD | {"of": "final", "first_token": True}),
    ("kernel-paths", HEAD | {"where": "post", "answer": "xy"}),
    ("kernel-paths", HEAD | {"where": "head_pre", "edit": "identity", "into": "scores"}),
]
OF_MANY_RUNS: list[tuple[str, dict[str, Any]]] = [  # of a model with few kernels
    ("greedy-set", {"answer": "b"}),
    ("shapley", {"task": "prompt", "pairs": 2, "shown": 3}),
    ("necessity-sufficiency", {"task": "prompt", "pairs": 2, "edit": "zero", "answer": "b"}),
]
TABLES = ("removed-cells",)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def trace(models: Path) -> Trace:
    return mta_viz.capture(mta_viz.load(models / "tiny-mta"), PROMPT)


@pytest.fixture(scope="module")
def edited(trace: Trace) -> Trace:
    return rerun(trace, PLAN)


@pytest.fixture
def remembering(trace: Trace) -> Source:
    """As on a page: what is made once is kept."""
    kept: dict[Any, Any] = {}

    def remember(make, *key):
        if key not in kept:
            kept[key] = make()
        return kept[key]

    return Source(trace.model, trace, remember=remember, remember_with_run=remember)


def heat(made: Drawn) -> np.ndarray:
    """The drawn cells, NaN where there are none."""
    return np.array(next(part for part in made.figure.data if part.type == "heatmap").z, float)


@pytest.fixture(scope="module")
def short(models: Path) -> Trace:
    return mta_viz.capture(mta_viz.load(models / "tiny-blocks"), "aba")


@pytest.mark.parametrize(("name", "parameters"), OF_MANY_RUNS)
def test_a_figure_of_many_runs_is_made_again_from_its_parameters_as_json(short, name, parameters):
    drawn_from_its_parameters(figure(name, short, **parameters), name)


def drawn_from_its_parameters(made: Drawn, name: str) -> dict[str, Any]:
    """The parameters as a file has them, which name the same figure."""
    assert len(made.figure.data) > 0 and made.caption and made.table.rows
    assert_plotly_takes_it(made.figure)
    plain = json.loads(json.dumps(made.spec.parameters()))
    assert spec(name, plain) == made.spec
    return plain


@pytest.mark.parametrize(("name", "parameters"), FIGURES)
def test_a_figure_draws_and_is_made_again_from_its_parameters_as_json(trace, edited, name, parameters):
    made = figure(name, trace, beside=edited, **parameters)
    plain = drawn_from_its_parameters(made, name)
    if "max_seconds" not in parameters:  # gradients stop by the clock
        again = figure(name, trace, beside=edited, **plain)
        assert again.figure.to_json() == made.figure.to_json() and again.table.csv() == made.table.csv()


def test_removed_cells_are_a_table_of_those_asked_for(trace):
    made = figure("removed-cells", trace, answer="xyz", token=1, layer=1, count=3)
    assert made.figure is None and len(made.table.rows) == 3 and "not renormalised" in made.caption


def test_both_runs_are_on_one_scale_and_the_difference_is_theirs(trace, edited):
    sides = ("original", "edited", "difference")
    made = {side: figure("edited-map", trace, beside=edited, **HEAD, stage="kq", side=side) for side in sides}
    maps = [exact_map(run, 1, Stage.KQ, 2) for run in (trace, edited)]
    assert made["original"].result.limit == made["edited"].result.limit == shared_limit(maps)
    assert torch.equal(made["original"].result.map.values, maps[0].values)
    assert torch.allclose(made["difference"].result.map.values, maps[1].values - maps[0].values)
    assert made["original"].table == maps[0].table(trace.tokens)
    assert "edited − original" in made["difference"].figure.layout.annotations[-1].text
    part = {"queries": (5, 9), "keys": (2, 7)}
    seen = figure("edited-map", trace, beside=edited, **HEAD, stage="kq", side="difference", **part)
    whole = made["difference"].result.map.values
    assert torch.allclose(seen.result.map.values, whole[5:9, 2:7], atol=1e-5)
    assert seen.figure.layout.yaxis.range == (8.5, 4.5)
    nothing = figure("edited-map", trace, beside=trace, **HEAD, stage="kq", side="difference")
    assert nothing.caption == "No cell of this map changed."


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"layer": 9}, "no head L9 H2; they are L0 H0 to L3 H3"),
        ({"stage": "kq3"}, "no stage 'kq3'; it has raw"),
    ],
)
def test_a_map_that_is_not_there_is_said(trace, edited, wrong, words):
    parameters: dict[str, Any] = HEAD | {"stage": "kq", "side": "edited"} | wrong
    with pytest.raises(PromptError, match=words):
        figure("edited-map", trace, beside=edited, **parameters)
    with pytest.raises(MtaVizError, match="give it the other one"):
        figure("edited-map", trace, **(parameters | {"layer": 1, "stage": "kq"}))
    with pytest.raises(PromptError, match="no stage 'x'; there are raw, raw2, kq"):
        figure("attributed-heads", trace, of="sizes", stage="x")
    with pytest.raises(PromptError, match="no head L1 H9"):
        figure("responsible-cells", trace, layer=1, head=9, of="softmax")


def test_a_sweep_has_a_map_a_place_and_all_of_a_kind_share_a_scale(remembering, trace):
    made = {where: drawn(Sweep(where=where, answer="!"), remembering) for where in ("pre", "post")}
    rows = mta_viz.ablate(trace.model, trace.tokens, answer="!", sweeps=("kernels",)).sweep
    assert made["pre"].result is made["post"].result  # measured once
    change = {row.intervention: row.change for row in rows}
    cells = heat(made["post"])
    assert np.isnan(cells[[0, 2]]).all() and not np.isnan(cells[[1, 3]]).any()
    assert cells[3, 1] == pytest.approx(change[without(KernelId(3, 1, "post"))], abs=6e-4)
    assert len(made["pre"].table.rows) == 8 and made["pre"].table.rows[0][0] == "L1 H0 pre -> identity"
    limits = {made[where].figure.data[0].zmax for where in made}
    assert len(limits) == 1 and limits.pop() >= max(map(abs, change.values()))


def test_a_model_without_kernels_has_nothing_to_sweep(models):
    plain = mta_viz.capture(mta_viz.load(models / "tiny-plain"), PROMPT)
    with pytest.raises(MtaVizError, match="sweep over heads off instead"):
        figure("sweep", plain, where="pre")


def test_patched_heads_are_patches_one_at_a_time(trace):
    made = figure("patched-heads", trace, prompt=OTHER, answer="!")
    whole = mta_viz.ablate(trace.model, trace.tokens, [PatchHead(2, 1, "z", OTHER)], answer="!").board
    assert heat(made)[2, 1] == pytest.approx(whole.change, abs=6e-4)
    with pytest.raises(PromptError, match="tokens"):
        figure("patched-heads", trace, prompt="Hallo", answer="!")


def test_a_greedy_set_stands_beside_random_ones_and_says_that_it_is_greedy(remembering, trace):
    progress: list[float] = []
    source = replace(remembering, progress=progress.append)
    made = drawn(NeededKernels(answer="!"), source)
    sets = mta_viz.ablate(trace.model, trace.tokens, answer="!", needed=True).needed
    assert made.result == sets
    assert [row[0] for row in made.table.rows] == ["greedy", *["random"] * len(sets.random), "everything"]
    assert "There may be smaller sets" in made.caption and "Greedy" in made.caption
    assert progress == sorted(progress) and progress[15] == 0.5  # the sweep of 16 kernels, then the set


def test_a_path_s_graph_draws_the_edges_that_are_opened_together(trace):
    made = figure("kernel-paths", trace, **HEAD, where="pre", answer="!")
    lines = [part for part in made.figure.data if part.mode == "lines"]
    strongest = made.result.strongest()
    assert len(lines) == len(strongest) == made.result.n_together == 10
    widths = sorted(line.line.width for line in lines)
    assert widths == pytest.approx(
        sorted(0.8 + 8 * abs(edge.effect / strongest[0].effect) for edge in strongest)
    )
    dashes = [line.line.dash for line in lines]
    assert dashes.count("solid") == sum(edge.effect < 0 for edge in strongest)
    ends = {(line.x[-1], round(float(line.y[-1]), 2)) for line in lines}
    assert len(ends) == 10 and all(line.x[0] == 1 and line.y[0] == 2 for line in lines)
    assert "the 10 strongest of" in made.caption and "Single edges need not sum" in made.caption
    assert made.line.startswith("Answer “!”: ") and made.line not in made.caption
    little = replace(made.result, whole=0.009)
    assert made.spec.line(made.source, little).endswith("too little to share out.")
    scores = figure("kernel-paths", trace, **HEAD, where="pre", answer="!", into="scores")
    assert {edge.part for edge in scores.result.strongest("scores")} == {"scores"}
    assert "They hold the edges into queries and keys." in scores.caption and "%" not in scores.caption


def test_what_kernels_are_worth_is_read_from_the_file_or_measured(tmp_path):
    folder = write_models(tmp_path) / "tiny-mta"
    run = mta_viz.capture(mta_viz.load(folder), PROMPT)
    with pytest.raises(MtaVizError, match="have not been measured"):
        figure("shapley", run)
    made = figure("shapley", run, task="prompt", pairs=2, shown=3)
    shared = made.result.shared
    assert len(shared.values) == 48 and len(made.figure.data[0].x) == 3 and len(made.table.rows) == 48
    assert "Drawn: the 3 of 48 kernels" in made.caption and "over 4 orders" in made.caption
    assert "means over samples, which have no interval. Diamond" in made.caption  # one sample has no median
    reached = shared.largest_error <= 0.05
    assert ("MORE than the 5%" in made.caption) != reached
    assert ("NOT settled" in made.line) != reached and made.line.startswith("1 sample, whole effect")
    bars = {part.name: list(part.x) for part in made.figure.data}
    drawn_values = made.spec.largest(made.result)
    assert bars["necessary"] == [value.necessary for value in drawn_values]
    assert bars["sufficient"] == [value.sufficient for value in drawn_values]
    assert bars["Shapley value"] == [value.shapley for value in drawn_values]
    measured = replace(made.result, sha256=sha256(folder))
    (folder / "shapley.json").write_text(json.dumps(measured.as_data()))
    read = figure("necessity-sufficiency", run)
    assert read.result == measured
    points = {(x, y) for part in read.figure.data for x, y in zip(part.x, part.y, strict=True)}
    assert points == {(value.sufficient, value.necessary) for value in shared.values}
    (folder / "shapley.json").write_text(json.dumps(made.result.as_data()))
    with pytest.raises(MtaVizError, match="other weights"):
        figure("shapley", run)


def effects_of(folder: Path) -> Effects:
    """One kernel whose interval covers 0, one whose does not, a head, and two kernels at once."""
    first, second = without(KernelId(1, 2, "pre")), without(KernelId(3, 0, "pre"))
    found = [
        Effect((first,), 0.4, Estimate(-0.5, -0.6, -0.4), Estimate(-2.0, -3.0, -1.0)),
        Effect((second,), 0.95, Estimate(0.05, -0.1, 0.2), Estimate(0.1, 0.0, 0.2)),
        Effect((AblateHead(0, 1),), 0.9, Estimate(0.0, -0.1, 0.1), Estimate(0.0, -0.1, 0.1)),
        Effect((first, second), 0.1, Estimate(-0.8, -0.9, -0.7), Estimate(-9.0, -9.5, -8.0)),
    ]
    return Effects(sha256(folder), "needle", 100, 0, "4 needles", "1", 0.9, -0.3, tuple(found))


def own_tap_effects() -> tuple[Effect, ...]:
    """Of one kernel: apart from what it costs at the identity."""
    plan = (without(KernelId(1, 2, "pre"), "own-tap"),)
    return (Effect(plan, 0.85, Estimate(-0.05, -0.1, 0.0), Estimate(-0.5, -0.9, -0.1)),)


def test_accuracy_at_the_task_is_drawn_as_measured(tmp_path):
    folder = write_models(tmp_path) / "tiny-mta"
    model = mta_viz.load(folder)
    with pytest.raises(MtaVizError, match="has not been measured"):
        figure("task-accuracy", model, where="pre")
    write_effects(folder / "effects.json", effects_of(folder))
    made = figure("task-accuracy", model, where="pre", selected=(1, 2))
    cells = heat(made)
    assert (cells[1, 2], cells[3, 0]) == (-0.5, 0.05) and np.isnan(cells).sum() == 14
    assert made.caption == "Without: 0.900 right." and made.figure.data[0].zmax == 0.5
    dots = made.figure.data[-1]
    assert (list(dots.x), list(dots.y)) == ([0.36], [2.7])  # in the corner of the one that is unsure
    assert "95 % interval -0.600 to -0.400" in made.figure.to_json()
    assert [row[:3] for row in made.table.rows] == [(1, 2, "pre"), (3, 0, "pre")]
    own_tap = replace(effects_of(folder), edit="own-tap", effects=own_tap_effects())
    write_effects(folder / "effects-own-tap.json", own_tap)
    beside = figure("task-accuracy", model, where="pre").table
    assert beside.columns[: len(made.table.columns)] == made.table.columns
    differs = [row["differs_from_own_tap"] for row in beside.records()]
    assert differs == [True, None] and beside.records()[0]["own_tap_log_probability_change"] == -0.5
    heads = heat(figure("task-accuracy", model, where="heads"))
    assert heads[0, 1] == 0 and np.isnan(heads).sum() == 15


def test_bars_and_text_say_what_was_done_to_the_tokens(trace):
    gradients = figure("attribution", trace, kind="bars", baseline="bos", spans=(LO,))
    assert gradients.caption.startswith(
        "Integrated gradients from the embedding of BOS, token 256. Green: the token is for"
    )
    assert gradients.caption.endswith("Outlined: the named spans.")
    groups = {"method": "ablation", "groups": ((1, 2), (4,)), "baseline": 7, "spans": (LO,), "position": 4}
    bars = figure("attribution", trace, kind="bars", **groups)
    assert "becomes token 7; each token of a span has" in bars.caption and "Outlined" not in bars.caption
    assert [math.isnan(row[2]) for row in bars.table.rows] == [True, False, False, True, False]
    text = figure("attribution", trace, kind="text", **groups)
    assert text.caption.endswith("Dotted underneath: below zero. Hatched: not replaced.")
    largest = text.result.largest()
    assert {group for group, _ in largest} == {(1, 2), (4,)} and abs(largest[0][1]) >= abs(largest[1][1])


def test_spans_are_groups_up_to_the_token_asked_about_each_position_once():
    spans = (Span("a", "A", 2, 5), Span("b", "B", 4, 7), Span("c", "C", 8, 9))
    assert groups_of(spans, 5) == ((2, 3, 4), (5,))
    assert groups_of(spans[:1], 1) == ()


def test_heads_as_far_as_they_came_are_drawn_and_the_rest_is_hatched(trace):
    source = Source(trace.model, trace)
    spec = HeadSizes(of="ablated", stage="kq", max_seconds=1.0)
    kept: list[Any] = []
    spec.heads(source, (3,), kept.append)
    made = drawn(spec, source, kept[-1])
    cells = heat(made)
    assert np.isnan(cells[:3]).all() and cells[3] == pytest.approx(kept[-1].of(3).ablated.numpy(), abs=6e-5)
    with pytest.raises(MtaVizError, match="layer 1 is not measured"):
        HeadCells(of="map", stage="kq", **HEAD).shown(source, kept[-1])
    own = HeadCells(of="attribution", stage="kq", layer=3, head=1).shown(source, kept[-1])
    assert torch.equal(own.map.values, kept[-1].of(3).maps[1].values)


def test_responsible_cells_sum_to_what_their_head_adds(trace):
    made = figure("responsible-cells", trace, **HEAD, of="responsibility")
    heads = figure("responsibility", trace)
    assert float(made.result.map.values.sum()) == pytest.approx(heat(heads)[1, 2], abs=6e-5)
    assert "The 6 rows that the last token's convolution reads." in made.caption
    plain = figure("responsible-cells", trace, layer=0, head=0, of="responsibility")
    assert "this layer has no convolution after the softmax" in plain.caption
    weights = figure("responsible-cells", trace, **HEAD, of="softmax").caption
    assert (
        "Limit ±" not in weights
        and "Limit ±" in figure("responsible-cells", trace, **HEAD, of="final").caption
    )


def test_every_figure_of_attention_draws_an_edited_run(models):
    model = mta_viz.load(models / "tiny-mta")
    kinds = (BypassGroupNorm(1), BypassGate(2), PatchHead(1, 2, "sm", OTHER), AblateHead(3, 0))
    run = rerun(mta_viz.capture(model, PROMPT), kinds)
    for name, parameters in OF_ATTENTION.items():
        assert figure(name, run, **parameters).caption, name


def test_a_saved_figure_of_two_runs_is_made_again_from_its_file(trace, edited, models, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models))
    made = figure("edited-map", trace, beside=edited, **HEAD, stage="kq", side="difference")
    origin = from_text(provenance_of(made).text())
    assert origin.run.interventions == () and origin.beside.interventions == tuple(plan_as_data(PLAN))
    again = make_again(origin)
    assert again.table == made.table and again.caption == made.caption


def test_values_of_tokens_are_not_measured_twice(remembering):
    values = TokenValues(kind="bars", method="ablation", groups=((1,),), baseline=7)
    first = drawn(values, remembering)
    assert drawn(replace(values, kind="text"), remembering).result is first.result

"""The named figures of two runs: maps, answers, shares and kernels of A beside B."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mta_viz
from mta_viz.analysis.attention.maps import exact_map
from mta_viz.analysis.attention.spans import Span
from mta_viz.analysis.cause.answers import rerun
from mta_viz.analysis.compare.comparing import compare_runs, identity_plan
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import from_text, make_again, provenance_of
from mta_viz.figures import figure, spec
from mta_viz.figures.base import Source
from mta_viz.figures.beside import ComparedMaps
from mta_viz.figures.compare import side_names
from mta_viz.model.interventions import KernelToIdentity, PatchHead
from mta_viz.model.stages import Stage
from mta_viz.run.trace import Trace
from tests.figures.checked import assert_plotly_takes_it
from tests.tiny_models import config, random_weights, write_models

FACTS = "The magic number of Oslo is 88. Rain. The magic number of Rome is 17."
NEEDLES = f"{FACTS} The magic number of Oslo is"
ROME = f"{FACTS} The magic number of Rome is"
MAP = {"layer": 1, "head": 2, "stage": "kq"}
FIGURES: list[tuple[str, dict[str, Any]]] = [
    ("compared-map", MAP | {"side": "a", "query": 9, "key": 4, "spans": (Span("Rain", "R", 33, 37),)}),
    ("compared-map", MAP | {"side": "b", "other": (3, 1)}),
    ("compared-map", MAP | {"side": "difference", "first_token": True}),
    ("compared-answers", {"answer": " 7"}),
    ("compared-shares", {}),
    ("compared-share-map", {"side": "b", "selected": (1, 2), "span": Span("Rain", "R", 33, 37)}),
    ("compared-share-map", {"side": "difference"}),
    ("compared-kernels", {"where": "head_pre", "selected": (1, 2)}),
    ("compared-kernel", {"where": "post", "layer": 1, "head": 2}),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """`tiny-apart` is plain and of other random weights than the rest, so no kin."""
    folder, shapes = write_models(tmp_path_factory.mktemp("models")), config(MTAOptions(), 258)
    write_native(
        folder / "tiny-apart", shapes, random_weights(shapes, 7), tokenizer_name="bytes", tokenizer_path=None,
        dtype=torch.float32,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def a(models: Path) -> Trace:
    return mta_viz.capture(mta_viz.load(models / "tiny-mta"), NEEDLES)


@pytest.fixture(scope="module")
def twin(a: Trace) -> Trace:
    return rerun(a, identity_plan(a.model))


def both(first: Trace, second: Trace) -> Source:
    return Source(first.model, first, beside=Source(second.model, second))


@pytest.mark.parametrize(("name", "parameters"), FIGURES)
def test_a_figure_has_rows_and_is_made_again_from_its_parameters_as_json(a, twin, name, parameters):
    made = figure(name, a, beside=twin, **parameters)
    assert made.caption and made.table.rows and (made.figure is None or len(made.figure.data) > 0)
    if made.figure is not None:
        assert_plotly_takes_it(made.figure)
    plain = json.loads(json.dumps(made.spec.parameters()))
    assert spec(name, plain) == made.spec
    assert figure(name, a, beside=twin, **plain).table.csv() == made.table.csv()


def test_a_and_b_share_a_scale_and_a_stage_b_lacks_is_the_one_before(a, models):
    b = mta_viz.capture(mta_viz.load(models / "tiny-apart"), NEEDLES)
    made = {side: figure("compared-map", a, beside=b, **MAP, side=side, other=(0, 3)) for side in ("a", "b")}
    assert made["a"].result.limit == made["b"].result.limit
    assert made["b"].result.map.stage.value.key == "raw" and (made["b"].result.map.layer, 0) == (0, 0)
    difference = figure("compared-map", a, beside=b, **MAP, side="difference", other=(0, 3)).result.map
    assert torch.allclose(difference.values, made["a"].result.map.values - made["b"].result.map.values)


def test_every_cell_of_a_long_prompt_is_there_on_the_scale_of_its_blocks(a):
    text, shown = FACTS * 4, {}
    first, second = (mta_viz.capture(a.model, words) for words in (text, f"{text} Then."))
    source = both(first, second)
    for side in ("a", "b", "difference"):
        made = ComparedMaps(**MAP, side=side)
        blocks, shown[side] = made.result(source), made.exact(source)
        assert blocks.map.block > 1 == shown[side].map.block and shown[side].limit == blocks.limit
    own, other = (exact_map(run, 1, Stage.KQ, 2).values for run in (first, second))
    assert torch.equal(shown["a"].map.values, own) and torch.equal(shown["b"].map.values, other)
    n = len(first.tokens)
    assert torch.allclose(shown["difference"].map.values, own - other[:n, :n], atol=1e-5)


def test_prompts_that_differ_are_hatched_and_what_is_equal_is_said(a):
    rome = mta_viz.capture(a.model, ROME)
    made = figure("compared-map", a, beside=rome, **MAP, side="difference", query=90, key=4)
    assert made.result.map.unlike and made.caption.startswith(
        "Score in A minus score in B. Green: A has more"
    )
    short = mta_viz.capture(a.model, "The magic")
    equal = figure("compared-map", a, beside=short, **MAP, side="difference", query=90, key=4)
    assert "no token sees what comes after it" in equal.caption and equal.result.map.values.shape == (10, 10)
    first, second = (mta_viz.capture(a.model, ids) for ids in ([1, 2, 3], [4, 5]))
    with pytest.raises(MtaVizError, match="there is nothing to subtract"):
        figure("compared-map", first, beside=second, **MAP, side="difference")
    with pytest.raises(MtaVizError, match="tiny-mta has no head L9 H9; they are L0 H0 to L3 H3"):
        figure("compared-map", a, beside=rome, **MAP, side="b", other=(9, 9))


def test_the_sides_are_called_what_they_are(a, twin, models):
    edited = rerun(a, (KernelToIdentity(1, 2, "pre"),))
    plain = mta_viz.capture(mta_viz.load(models / "tiny-plain"), NEEDLES)
    assert side_names(both(a, twin)) == ("tiny-mta", "kernels at identity")
    assert side_names(both(a, edited)) == ("original", "edited")
    assert side_names(both(a, mta_viz.capture(a.model, ROME))) == ("prompt A", "prompt B")
    assert side_names(both(a, plain)) == ("tiny-mta", "tiny-plain")


@pytest.mark.parametrize("place", ["kept", "kept/0000000005", "kept/checkpoints/0000000005"])
@pytest.mark.parametrize("of_one_file", [False, True])
def test_a_trained_model_has_its_runs_name(tmp_path, place, of_one_file):
    shapes = config(MTAOptions(), 258)
    folder, weights = tmp_path / place, random_weights(shapes)
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    (folder / "train_state_00000.json").write_text('{"step": 5}')
    if of_one_file:
        (folder / "model.safetensors").rename(folder / "weights.safetensors")
    source = Source(mta_viz.load(folder / "weights.safetensors" if of_one_file else folder))
    assert source.model.source.step == 5
    assert source.name == "kept"


def test_an_edited_runs_answer_is_measured_under_its_plan(a):
    plan = (PatchHead(1, 2, "final", ROME), PatchHead(2, 0, "z", ROME), KernelToIdentity(3, 1, "pre"))
    found = compare_runs(a, rerun(a, plan), answer=" 88")  # of several tokens, so the run is longer than B
    board = mta_viz.ablate(a.model, a.tokens, plan, answer=" 88").board
    assert (found.answers[0].a, found.answers[0].b) == pytest.approx((board.before, board.after), abs=1e-5)
    assert abs(board.change) > 1e-3


def test_the_tables_have_a_line_a_head_a_kernel_and_a_token(a, twin):
    answers = figure("compared-answers", a, beside=twin, answer=" 7").table
    assert answers.columns == ("kind", "of", "text", "a", "b", "a_minus_b")
    assert answers.rows[0][:3] == ("answer", "A", " 7") and answers.rows[1][:2] == ("next token", None)
    shares = figure("compared-shares", a, beside=twin)
    first = shares.table.records()[6]
    assert (first["layer"], first["head"], first["layer_b"], first["head_b"]) == (1, 2, 1, 2)
    assert first["a_minus_b"] == pytest.approx(first["a"] - first["b"]) and first["pair_r"] is None
    assert "A (tiny-mta) solid, B (kernels at identity) dashed" in shares.caption
    kernels = figure("compared-kernels", a, beside=twin, where="pre").table.records()
    assert len(kernels) == 2 * 2 * 4 + 2 * 4 * 4 and {"a_from_identity", "shape_b"} <= set(kernels[0])
    assert all(row["b_from_identity"] == 0 for row in kernels)
    cells = np.array(figure("compared-kernels", a, beside=twin, where="pre").figure.data[0].z, float)
    distance = {(row["layer"], row["head"]): row["distance"] for row in kernels if row["where"] == "pre"}
    assert cells[1, 2] == pytest.approx(distance[1, 2], abs=6e-3) and np.isnan(cells[0]).all()


def test_what_is_not_there_is_said(a, twin):
    with pytest.raises(MtaVizError, match="has no kernel before the softmax in A nor in B"):
        figure("compared-kernel", a, beside=twin, where="pre", layer=0, head=0)
    short = mta_viz.capture(a.model, "Hello")
    with pytest.raises(MtaVizError, match="a prompt has no needle that is asked for"):
        figure("compared-shares", short, beside=short)


def test_a_saved_comparison_is_made_again_from_its_file(a, models, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models))
    b = mta_viz.capture(mta_viz.load(models / "tiny-plain"), NEEDLES)
    made = figure("compared-map", a, beside=b, **MAP, side="difference")
    origin = from_text(provenance_of(made).text())
    assert origin.beside is not None and origin.beside.checkpoint == "tiny-plain"
    again = make_again(origin)
    assert again.table == made.table and again.caption == made.caption

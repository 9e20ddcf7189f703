"""The named figures of kernels, without a page: what they show, and their numbers."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mta_viz.analysis.attention.matches import COLUMNS, measure_matches
from mta_viz.analysis.cause.effects import FILE, Effect, Effects, Estimate, write_effects
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.kernels.naming import IDENTITY
from mta_viz.analysis.kernels.table import kernel_frame, kernel_of
from mta_viz.checkpoint.history import HISTORY_FILE
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.config import MTAOptions
from mta_viz.errors import MtaVizError
from mta_viz.figures import figure, spec
from mta_viz.figures.base import Source, drawn
from mta_viz.figures.kernels.atlas import also, group_of
from mta_viz.figures.kernels.card import card_kernel
from mta_viz.figures.kernels.gallery import kernel_rows, target_id
from mta_viz.figures.kernels.layer import NoHistory
from mta_viz.figures.kernels.paper import every_kernel
from mta_viz.model.interventions import KernelToIdentity, MixingToIdentity
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.kernels.gallery import Look, common_limit
from mta_viz.plots.theme import INK
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import capture, load
from tests.analysis import test_finetuning_run as finetuning
from tests.figures.checked import assert_plotly_takes_it
from tests.tiny_models import FULL, config, random_weights, write_models, write_wide

ASSETS = Path(__file__).parents[2] / "assets"
NEEDLE = "Fog. The magic number of Oslo is 12. Rain. The magic number of Oslo is"
LAYER = "blocks.1.attn."
KERNEL = {"layer": 1, "head": 3}
FIGURES: dict[str, dict[str, Any]] = {
    "kernel-gallery": {"places": ("head_pre",), "numbers": True, "layer": 1, "head": 0, "where": "head_pre"},
    "kernel-table": {"query": "layer >= 3", "sort": "diagonal"},
    "kernel-taps": KERNEL | {"where": "post", "hide_own": True},
    "kernel-scores": KERNEL,
    "kernel-probe": KERNEL | {"probe": "run of keys"},
    "nearest-kernels": KERNEL,
    "kernel-frequencies": KERNEL,
    "mixing-row": KERNEL | {"where": "head_post"},
    "layer-kernels": {"layer": 1, "where": "post", "scale": "own"},
    "layer-mixing": {"layer": 0},
    "kernels": {"layer": 3, "where": "pre", "width": "column"},
    "kernel-map": KERNEL | {"where": "pre", "rows": (10, 14), "keys": (1, 4)},
    "head-kernels": {"layers": (1, 2), "where": "head_post"},
    "head-diagonal": {"width": "column"},
    "head-ratio": {},
}
SHIPPED: dict[str, dict[str, Any]] = {  # what needs more than weights: their history, measured effects
    "training-kernels": {"layer": 2, "step": 0},
    "training-curves": {"layer": 2, "head": 1, "score": "priming"},
    "kernel-effects": {"layer": 2, "head": 1},
    "task-accuracy": {"where": "pre", "selected": (2, 1)},
    "shapley": {"shown": 4},
    "necessity-sufficiency": {},
    "lasting-names": {},
}
TRAINED: dict[str, dict[str, Any]] = {"finetuning": {}}
NAMED = {"recurrence": {"others": ("tiny-mta", "no-tokenizer")}}


def write(folder: Path, mta: MTAOptions) -> Path:
    """Head 1 of zeros, 2 with NaN, 3 a diagonal; of the head mixing a row of zeros and one infinite."""
    shapes = config(mta, 258)
    weights = random_weights(shapes)
    kernels = weights[LAYER + "kernel_pre"]
    kernels[1] = 0
    kernels[2, 0, :2] = torch.nan
    if kernels.shape[1:] == (6, 11):
        for lag in range(6):
            kernels[3, 5 - lag, 5 - lag] = 3
        weights[LAYER + "head_pre"][0, 2] = 0
        weights[LAYER + "head_pre"][0, 3, 0] = torch.inf
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=torch.float32)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_models(root)
    write(root / "odd", FULL)
    write(root / "two-rows", MTAOptions(pre_kernel=(2, 9)))
    write_wide(root / "wide")
    return root


@pytest.fixture
def tiny(models) -> HookedMTA:
    return load(models / "tiny-mta")


@pytest.fixture(scope="module")
def odd(models) -> HookedMTA:
    return load(models / "odd")


@pytest.fixture(scope="module")
def of_odd(odd):
    """`of_odd("kernel-taps", layer=1)`: a figure of the odd model, whose kernels are named once."""
    kept: dict[Any, Any] = {}

    def remember(make, *key):
        return kept[key] if key in kept else kept.setdefault(key, make())

    def made(name, numbering=0, **parameters):
        return drawn(spec(name, parameters), Source(odd, numbering=numbering, remember_weights=remember))

    return made


def ids(drawn) -> list[str]:
    """The kernels one can click on, in order."""
    targets = next(trace for trace in drawn.figure.data if trace.meta == "targets")
    return [target[0] for target in targets.customdata]


def texts(drawn) -> list[str]:
    return [text for trace in drawn.figure.select_traces({"mode": "text"}) for text in trace.text]


def words(drawn) -> str:
    return " ".join(note.text for note in drawn.figure.layout.annotations)


def comes_again(name: str, drawn_from: HookedMTA | Trace, parameters: dict[str, Any]) -> None:
    made = figure(name, drawn_from, **parameters)
    assert made.table.rows and made.spec.file_parts()
    if made.figure is not None:
        assert made.caption and len(made.figure.data) > 0
        assert_plotly_takes_it(made.figure)
    plain = json.loads(json.dumps(made.spec.parameters()))
    assert spec(name, plain) == made.spec
    assert figure(name, drawn_from, **plain).table.csv() == made.table.csv()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_draws_and_is_made_again_from_its_parameters_as_json(tiny, name):
    comes_again(name, capture(tiny, NEEDLE), FIGURES[name])


@pytest.mark.parametrize("name", TRAINED)
def test_a_figure_of_a_finetuning_is_made_again_from_json(tmp_path, name):
    model = load(write(tmp_path / "trained", FULL))
    with pytest.raises(MtaVizError, match="of no finetuning"):
        figure(name, model)
    finetuning.write(tmp_path / "trained", finetuning.PROGRESS | {"state": "done"}, finetuning.CARD)
    comes_again(name, model, TRAINED[name])
    words = figure(name, model).caption
    assert "12 of 100 right, 12.0%" in words and "Change on the same samples: +50.0 points" in words
    assert "paired, +38.0 to +60.0" in words and "Perplexity of grammar: 4 to 4.2 (+5.0%)" in words


def test_a_gallery_may_hold_the_first_of_an_order_alone(of_odd):
    every = of_odd("kernel-gallery", places=("pre",), sort="distance_from_identity")
    first = of_odd("kernel-gallery", places=("pre",), sort="distance_from_identity", most=3)
    assert ids(first) == ids(every)[:3] and len(ids(every)) > 3
    assert "The 3 largest in distance from identity, the largest first" in first.caption


@pytest.mark.parametrize("name", NAMED)
def test_a_figure_of_named_kernels_is_made_again_from_json(odd, models, monkeypatch, name):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models))
    comes_again(name, capture(odd, NEEDLE), NAMED[name])


@pytest.mark.parametrize("name", SHIPPED)
def test_a_figure_of_what_lies_beside_the_weights_is_made_again_from_json(name):
    comes_again(name, load(ASSETS / "blocks-n5-mta"), SHIPPED[name])


def test_every_kernel_is_a_tile_and_every_mixing_row_a_target(tiny):
    kernels = figure("kernel-gallery", tiny)
    mixing = figure("kernel-gallery", tiny, places=("head_pre", "head_post"))
    assert len(ids(kernels)) == 2 * 2 * 4 and len(ids(mixing)) == 4 * 2 * 4
    assert ids(kernels)[5] == "post 1 1" and ids(mixing)[0] == "head_pre 0 0"
    assert len(kernels.table.rows) == 16 * 66
    assert kernels.table.columns == ("kernel", "row", "column", "value")
    assert "Hatched: own taps" in kernels.caption
    assert mixing.spec.file_parts() == ("kernels", "head_pre")


def test_a_query_leaves_its_rows_and_a_sort_puts_the_largest_first(tiny):
    query = figure("kernel-gallery", tiny, query="layer >= 3 and post, head != 1")
    assert ids(query) == ["post 3 0", "post 3 2", "post 3 3"]
    rows = figure("kernel-table", tiny, sort="diagonal").result
    values = [row["diagonal"] for row in rows]
    there = [value for value in values if value is not None]
    assert values[:16] == there == sorted(there, reverse=True) and len(there) == 16
    first = rows[0]
    tiles = figure("kernel-gallery", tiny, sort="diagonal")
    assert ids(tiles)[0] == f"{first['where']} {first['layer']} {first['head']}"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"query": "layer > 99"}, "no kernel pre or post of this model is left"),
        ({"query": "diagonl > 0.5"}, "Near it: diagonal"),
        ({"places": ("pre", "head_pre")}, "not both"),
        ({"sort": "beauty"}, "cannot be sorted by 'beauty'"),
    ],
)
def test_a_gallery_that_cannot_be_says_why(tiny, more, told):
    with pytest.raises(MtaVizError, match=told):
        figure("kernel-gallery", tiny, **more)


def test_one_kernel_is_framed_on_a_copy(tiny):
    framed = figure("kernel-gallery", tiny, layer=3, head=2, where="post")
    assert len(framed.figure.layout.shapes) == 2 and not figure("kernel-gallery", tiny).figure.layout.shapes


def test_broken_kernels_are_named_on_their_tile(models):
    assert {"NaN/inf: 1", "broken"} <= set(texts(figure("kernel-gallery", load(models / "tiny-nan"))))


def headings(drawn) -> list[str]:
    return [text for text in texts(drawn) if text.startswith("<b>")]


def atlas(source: HookedMTA | Trace, **more: Any):
    return figure("kernel-gallery", source, arranged="meaning", **more)


def test_the_atlas_groups_kernels_by_their_first_name_and_marks_their_size(odd):
    drawn = atlas(odd, places=("pre",))
    assert headings(drawn)[0] == "<b>Diagonal</b>: sequence match" and "<b>Broken</b>" in headings(drawn)[-1]
    assert (
        ids(drawn)[0] == "pre 1 3" and len(ids(drawn)) == 8 and set(ids(drawn)[-2:]) == {"pre 1 1", "pre 1 2"}
    )
    taps = odd.state_dict()[LAYER + "kernel_pre"][3].double().numpy()
    after = sum(taps[5 - lag, 5 - lag] for lag in range(6))
    targets = next(trace for trace in drawn.figure.data if trace.meta == "targets")
    assert f"sequence probe: +1 before, {after:+.3g} after" in targets.text[0]
    assert "probe" not in targets.text[-1]
    bars = [trace for trace in drawn.figure.data if trace.type == "scatter" and trace.line.width == 5]
    (whole, bar) = [trace.x[1] - trace.x[0] for trace in bars]
    assert whole == pytest.approx(11) and bar == pytest.approx(11)  # the largest change: as wide as its tile
    assert bars[1].x[4] - bars[1].x[3] < 11


def test_the_atlas_is_sorted_by_effects_else_by_the_run_else_by_size(tiny):
    size = atlas(tiny)
    assert size.result.order.by == "size" and "the size of the change" in size.caption
    rows = [row for row in kernel_rows(Source(tiny)) if row["where"] in ("pre", "post")]
    largest = max(rows, key=lambda row: row["distance_from_identity"])
    assert next(iter(size.result.order.values)) == kernel_of(largest)
    gain = atlas(capture(tiny, NEEDLE)).result.order
    assert gain.by == "gain" and gain.words.startswith("what each adds") and "“Oslo” on" in gain.words
    assert list(gain.values.values()) == sorted(gain.values.values(), reverse=True)
    own = atlas(capture(tiny, "Nothing is asked.")).result.order
    assert own.by == "gain" and "(of largest direct effect on the answer)" in own.words
    column = atlas(tiny, sort="diagonal").result
    assert column.order.values[kernel_of(column.shown[0])] == column.shown[0]["diagonal"]


def test_measured_effects_sort_each_group_and_stand_on_the_tiles():
    drawn = atlas(load(ASSETS / "blocks-n5-mta"))
    order, shown = drawn.result.order, drawn.result.shown
    assert order.by == "effect" and "nats, mean over 500 samples" in drawn.caption
    groups = [group_of(row) for row in shown]
    lost = [
        order.values[kernel_of(row)] for row, group in zip(shown, groups, strict=True) if group == groups[-1]
    ]
    assert lost == sorted(lost) and len(lost) > 2
    assert next(iter(order.values.values())) == min(order.values.values())
    assert f"L2 H0 {order.values[KernelId(2, 0, 'pre')]:.2f}".replace("-", "−") in texts(drawn)


def test_a_kernel_says_its_other_names_and_an_identity_shows_its_own_tap():
    drawn = atlas(load(ASSETS / "needle-mta"))
    for row in drawn.result.shown:
        names = (row["names"] or "").count(";") + bool(row["names"])
        assert also(row).count("+") == (names if row["faint"] else max(names - 1, 0))
    identity = next(row for row in drawn.result.shown if row["shape"] == IDENTITY)
    tiles = drawn.result.sheet(0, 470).tiles
    tile = next(tile for tile in tiles if tile.targets[0].id == target_id(kernel_of(identity)))
    assert tile.faint and common_limit([tile]) >= 1
    assert not Look(own_scale=True).hides(tile) and Look().hides(tile)


def test_the_paper_s_large_shape_is_drawn_and_says_that_numbers_do_not_fit(models):
    drawn = figure("kernel-gallery", load(models / "wide"), numbers=True)
    assert len(ids(drawn)) == 192 and "Numbers need cells of 26 px" in drawn.caption


def test_the_table_as_csv_is_the_data_frame_s(tiny):
    drawn = figure("kernel-table", tiny)
    assert drawn.table.csv() == kernel_frame(drawn.result).to_csv(index=False, lineterminator="\n")
    assert len(drawn.table.rows) == 48 and drawn.figure is None


def test_a_card_s_numbers_are_the_taps(odd, of_odd):
    drawn = of_odd("kernel-taps", layer=1, head=3)
    taps = odd.state_dict()[LAYER + "kernel_pre"][3].double()
    assert [row[2] for row in drawn.table.rows] == taps.flatten().tolist()
    assert drawn.spec.file_parts() == ("kernel-taps", "L1", "H3", "pre")
    hidden = of_odd("kernel-taps", layer=1, head=3, hide_own=True)
    assert "(hidden)" in json.dumps(hidden.figure.to_plotly_json(), default=str)
    with pytest.raises(MtaVizError, match="no kernel before the softmax in layer 0, head 0"):
        of_odd("kernel-taps", layer=0, head=0)


def test_the_probe_tests_the_name_and_another_its_own_claim(of_odd):
    own = of_odd("kernel-probe", layer=1, head=3)
    assert (own.result.probe, own.result.claim, own.result.acts) == ("sequence", "diagonal", True)
    run = of_odd("kernel-probe", layer=1, head=3, probe="run of keys")
    assert run.result.claim in ("edge-first", "edge-last") and len(run.table.rows) == run.result.before.size
    for head in (1, 2):
        with pytest.raises(MtaVizError, match="cannot be probed"):
            of_odd("kernel-probe", layer=1, head=head)
    with pytest.raises(MtaVizError, match="no probe 'x'"):
        of_odd("kernel-probe", layer=1, head=3, probe="x")


def test_with_a_run_a_probe_takes_its_level_and_the_table_what_each_kernel_does(tiny):
    run = capture(tiny, NEEDLE)
    probe = figure("kernel-probe", run, **KERNEL)
    at = measure_matches(kernel_rows(Source(tiny)), [run])
    assert probe.result.level == at[KernelId(1, 3, "pre")].gap.value
    assert np.abs(probe.result.before).max() == pytest.approx(abs(probe.result.level))
    assert "its mean above its row on this prompt" in probe.caption
    after = figure("kernel-probe", run, layer=1, head=0, where="post")
    assert after.result.level == at[KernelId(1, 0, "post")].match.value and "the mean weight" in after.caption
    assumed = figure("kernel-probe", tiny, **KERNEL)
    assert assumed.result.level is None and "not measured on this model's scores" in assumed.caption
    table = figure("kernel-table", run, matches=True)
    assert table.table.columns[-len(COLUMNS) :] == COLUMNS
    assert json.loads(json.dumps(table.spec.parameters()))["matches"] is True
    with pytest.raises(MtaVizError, match="give it a prompt"):
        figure("kernel-table", tiny, matches=True)


def test_scores_near_kernels_and_frequencies_of_a_kernel(of_odd):
    place = {"layer": 1, "head": 3}
    scores = dict(of_odd("kernel-scores", **place).table.rows)
    assert scores["shape"] == "diagonal" and scores["layer"] == 1
    near = of_odd("nearest-kernels", **place)
    assert KernelId(1, 3, "pre") not in dict(near.result.near) and len(near.result.near) == 4
    assert len(near.table.rows) == 4 * 66
    waves = of_odd("kernel-frequencies", **place)
    assert len(waves.table.rows) == 64 * 64 and waves.figure is not None
    with pytest.raises(MtaVizError, match="no tap besides its own"):
        of_odd("nearest-kernels", layer=1, head=1)


@pytest.mark.parametrize("where", ["head_pre", "head_post"])
def test_a_mixing_row_after_the_softmax_has_length_one(odd, of_odd, where):
    drawn = of_odd("mixing-row", layer=1, head=0, where=where, numbering=1)
    weights = odd.state_dict()[LAYER + where].double()[0, 0]
    expected = weights / weights.norm() if where == "head_post" else weights
    assert drawn.figure.data[0].x == pytest.approx(expected.numpy())
    assert ("not identified" in drawn.caption) == (where == "head_post") and "H1" in drawn.caption
    assert {row[0] for row in drawn.table.rows} == {"pre", "post", "head_pre", "head_post"}


def test_one_layer_shows_its_kernels_and_says_which_have_some(tiny):
    drawn = figure("layer-kernels", tiny, layer=1, scale="own")
    assert "4 kernels of 6 queries x 11 keys" in drawn.caption
    assert len(drawn.table.rows) == 2 * 4 * 66 + 2 * 16
    assert figure("layer-mixing", tiny, layer=0).figure.data[0].z.shape == (4, 4)
    with pytest.raises(MtaVizError, match="layers that have: 1, 3"):
        figure("layer-kernels", tiny, layer=0)


def test_snapshots_share_one_colour_scale_and_curves_one_history():
    model = load(ASSETS / "blocks-n5-mta")
    first = figure("training-kernels", model, layer=2, step=0)
    last = figure("training-kernels", model, layer=2)
    assert first.figure.data[0].zmax == last.figure.data[0].zmax
    assert not np.array_equal(first.figure.data[0].z, last.figure.data[0].z, equal_nan=True)
    assert "after 0 training steps" in first.caption
    curves = figure("training-curves", model, layer=2, head=1, score="first_of_run")
    assert "first of run" in words(curves)
    older = figure("training-curves", model, layer=2, head=1, score="edge_first")  # as files still name it
    assert words(older) == words(curves)
    assert len(curves.table.rows) == model.config.n_heads * len(curves.result.steps)
    with pytest.raises(MtaVizError, match="there are the steps 0, "):
        figure("training-kernels", model, layer=2, step=9)
    with pytest.raises(MtaVizError, match="no score 'x'"):
        figure("training-curves", model, layer=2, score="x")


def copied(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes((ASSETS / "blocks-n5-mta" / name).read_bytes())
    return folder


def test_without_a_history_the_steps_of_the_run_are_one(tmp_path):
    for step, factor in (("0000000000", 0.5), ("0000000100", 1.0)):
        (folder := tmp_path / "checkpoints" / step).mkdir(parents=True)
        weights = load_file(copied(folder, "params.json", "model.safetensors") / "model.safetensors")
        key = "layers.1.attention.mta_kernel"
        save_file(weights | {key: weights[key] * factor}, folder / "model.safetensors")
    model = load(tmp_path)
    whole, half = (figure("training-kernels", model, layer=1, step=step) for step in (100, 0))
    for kernel, smaller in zip(whole.table.rows, half.table.rows, strict=True):
        assert smaller[-1] == pytest.approx(kernel[-1] / 2)


def test_no_history_and_that_of_other_weights_are_said(tmp_path):
    model = load(copied(tmp_path, "model.safetensors", "params.json"))
    with pytest.raises(NoHistory, match=HISTORY_FILE):
        figure("training-kernels", model, layer=1)
    weights = load_file(copied(tmp_path, HISTORY_FILE) / "model.safetensors")
    weights["layers.1.attention.mta_kernel"] = weights["layers.1.attention.mta_kernel"] * 2
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(NoHistory, match="belongs to another checkpoint"):
        figure("training-kernels", load(tmp_path), layer=1)


def test_effects_are_drawn_on_one_scale_with_the_kernel_framed(tmp_path):
    folder = write_models(tmp_path) / "tiny-mta"
    with pytest.raises(MtaVizError, match="has not been measured"):
        figure("kernel-effects", load(folder), layer=1, head=2)
    fall, nothing = Estimate(-0.879, -0.93, -0.8), Estimate(0.001, -0.03, 0.03)
    never = Estimate(math.nan, math.nan, math.nan)
    effects = (
        Effect((KernelToIdentity(1, 2, "pre"),), 0.12, fall, Estimate(-3.2, -4.0, -3.0)),
        Effect((MixingToIdentity(0, "head_post", 3),), 1.0, nothing, Estimate(0.0, -0.1, 0.1)),
        Effect((MixingToIdentity(0, "head_post"), KernelToIdentity(1, 2, "pre")), 0.0, never, never),
    )
    digest = sha256(folder)
    write_effects(folder / FILE, Effects(digest, "needle", 120, 0, "4 needles", "0", 0.999, -0.01, effects))
    drawn = figure("kernel-effects", load(folder), layer=1, head=2)
    heat = next(trace for trace in drawn.figure.data if trace.type == "heatmap")
    assert (heat.zmin, heat.zmax) == (-5.0, 5.0)
    assert any(shape.x0 == 1.5 and shape.y0 == 0.5 for shape in drawn.figure.layout.shapes)
    assert [row[:4] for row in drawn.table.rows] == [(1, 2, "pre", 0.12), (0, 3, "head_post", 1.0)]


def test_a_map_opens_at_the_question_the_asked_needle_and_the_strongest_head(tiny):
    drawn = figure("kernel-map", capture(tiny, NEEDLE))
    assert "rows: “The magic number of Oslo is”, columns: “The magic number of Oslo is 12.”" in drawn.caption
    kernel = drawn.result.kernel
    again = figure("kernel-map", capture(tiny, NEEDLE), layer=kernel.layer, head=kernel.head, where="pre")
    assert again.caption == drawn.caption
    assert again.spec.file_parts() == ("kernel-map", f"L{kernel.layer}", f"H{kernel.head}", "pre")


@pytest.mark.parametrize(
    ("prompt", "more", "told"),
    [
        ("Nothing is asked.", {}, "asks for no needle"),
        (NEEDLE, {"layer": 1}, "go together"),
        (NEEDLE, {"layer": 1, "head": 9}, "head 9 does not exist; expected 0 to 3"),
        (NEEDLE, {"layer": 0, "head": 0}, "layers that have: 1, 3"),
        (NEEDLE, {"rows": (1, 4), "keys": (10, 14)}, "comes after every query"),
        (NEEDLE, {"rows": (1, 4000)}, "the prompt has"),
    ],
)
def test_a_map_that_cannot_be_says_why(tiny, prompt, more, told):
    with pytest.raises(MtaVizError, match=told):
        figure("kernel-map", capture(tiny, prompt), **more)


def test_a_map_needs_a_run(tiny):
    with pytest.raises(MtaVizError, match="give it a prompt"):
        figure("kernel-map", tiny)


@pytest.mark.parametrize(
    ("name", "folder", "told"),
    [
        ("kernels", "tiny-plain", "no kernels at all: no key-query kernels"),
        ("head-kernels", "tiny-plain", "no kernels at all: no head mixing"),
        ("head-diagonal", "tiny-blocks", "this checkpoint has no head mixing"),
        ("head-ratio", "tiny-blocks", "this checkpoint has no head mixing"),
    ],
)
def test_what_the_model_lacks_is_said(models, name, folder, told):
    with pytest.raises(MtaVizError, match=told):
        figure(name, load(models / folder), **({"layer": 0} if name == "kernels" else {}))


def test_layers_of_the_mixing_can_be_chosen(tiny):
    assert texts(figure("head-kernels", tiny, layers=(1, 2)))[-2:] == ["L1", "L2"]


def test_every_kernel_is_a_layer_and_place_then_the_mixing():
    specs = list(every_kernel(config(FULL, 258), "column"))
    assert [drawn.file_parts() for drawn in specs] == [
        *(("kernels", layer, where) for where in ("pre", "post") for layer in ("L1", "L3")),
        *(("head-kernels", where) for where in ("head_pre", "head_post")),
    ]
    assert {drawn.width for drawn in specs} == {"column"}


def test_numbering_changes_names_only(tiny):
    zero, one = (figure("layer-kernels", tiny, layer=1, numbering=start) for start in (0, 1))
    assert zero.table == one.table and "L1 " in words(zero) and "L2 " in words(one)


def test_a_card_finds_its_row_and_stack(odd):
    source = Source(odd)
    card = card_kernel(source, KernelId(1, 3, "pre"))
    assert card.row in kernel_rows(source) and card.taps.shape == (6, 11)
    assert replace(card).offsets == card.stack.offsets


def test_names_come_again_in_trainings_that_are_found_by_their_shape(odd, models, monkeypatch):
    monkeypatch.setenv("MTA_VIZ_MODELS", str(models))
    made = figure("recurrence", odd, others=("tiny-mta", "no-tokenizer"))
    (named,) = [match for match in made.result.named if "diagonal" in match.shape]
    assert named.kernel.name() == "L1 H3 pre" and not named.same  # planted here alone
    grid = made.figure.data[0]
    assert np.asarray(grid.z).shape == (len(made.result.named), 2)
    assert [training.name for training in made.result.trainings] == ["tiny-mta", "no-tokenizer"]
    first = made.result.trainings[0].recurrence
    assert f"{first.same} of {len(first.matches)}, chance {first.expected:.1f}" in made.figure.to_json()
    assert len(made.table.rows) == 2 * len(first.matches) and made.table.columns[-1] == "p"
    with pytest.raises(MtaVizError, match="no training of this shape is named nobody; there are"):
        figure("recurrence", odd, others=("nobody",))


def test_a_name_without_another_training_says_what_is_needed(tmp_path):
    write(tmp_path / "models" / "alone", MTAOptions(pre_kernel=(5, 7)))
    with pytest.raises(MtaVizError, match="needs a second training of this shape"):
        figure("recurrence", load(tmp_path / "models" / "alone"))


def test_names_over_steps_are_filled_where_they_are_borne():
    made = figure("lasting-names", load(ASSETS / "blocks-n5-mta"))
    rows = made.result.rows
    assert rows and np.asarray(made.figure.data[0].z).shape == (len(rows), 48)
    assert [int(sum(line)) for line in made.figure.data[0].z] == [sum(row.bears) for row in rows]
    assert all(row.bears[-1] and row.share == sum(row.bears) / 48 for row in rows)
    assert "there is no p" in made.caption


def test_numbers_fit_their_cells(of_odd):
    made = of_odd("kernel-gallery", places=("head_pre",), numbers=True)
    numbers = [number for line in made.figure.data[0].text for number in line if number]
    assert len(numbers) > 8 and all(len(number) <= 5 for number in numbers)  # ".43", not "+0.429"


def test_words_under_a_tile_begin_where_it_does(of_odd):
    made = of_odd("kernel-gallery", places=("pre",))
    written = made.figure.select_traces({"mode": "text"})
    (marks,) = (trace for trace in written if (trace.textfont.size, trace.textfont.color) == (9, INK))
    assert marks.textposition == "bottom right" and all(x % 1 == 0.5 for x in marks.x)

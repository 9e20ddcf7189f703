"""The paper's figures as printed: true size, readable text, what is marked, and what captions say."""

import csv
import io
from itertools import chain

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from mta_viz.analysis.kernels.mixing import mixing_by_layer
from mta_viz.config import ModelConfig
from mta_viz.figures import figure
from mta_viz.figures.base import Drawn
from mta_viz.model.transformer import HookedMTA
from mta_viz.plots.kernels.paper import WITH_KERNELS, WITHOUT_KERNELS
from tests.tiny_models import FULL, config, random_weights, two_head_trace

SHAPES = config(FULL, 258)
SMALLEST_PX = 7 * 96 / 72


def weights(broken: bool = False):
    found = random_weights(SHAPES)
    if broken:
        found["blocks.1.attn.kernel_pre"][2, 0, :3] = torch.nan
        found["blocks.1.attn.kernel_pre"][3] = 0
        found["blocks.2.attn.head_pre"][0, 1, 1] = torch.nan
    return found


def model(shapes: ModelConfig, taken: dict[str, torch.Tensor]) -> HookedMTA:
    loaded = HookedMTA(shapes)
    loaded.load_state_dict(taken)
    return loaded


def made(name: str, *, broken: bool = False, numbering: int = 0, **look: str) -> Drawn:
    if name == "kernel-map":
        place = {"layer": 0, "head": 1, "where": "pre", "rows": (2, 6), "keys": (1, 5)}
        return figure(name, two_head_trace(), numbering=numbering, **place, **look)
    layer = {"layer": 1} if name == "kernels" else {}
    return figure(name, model(SHAPES, weights(broken)), numbering=numbering, **layer, **look)


def words(figure: go.Figure) -> str:
    traces = chain.from_iterable(
        trace.text for trace in figure.data if getattr(trace, "text", None) is not None
    )
    return " | ".join([*(note.text for note in figure.layout.annotations), *map(str, traces)])


def rows(figure: Drawn) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.table.csv())))


def sizes(value: object, name: str = "") -> list[float]:
    """Every font size in a figure's JSON."""
    if isinstance(value, dict):
        own = [value["size"]] if "font" in name and "size" in value else []
        return own + [size for key, inner in value.items() for size in sizes(inner, key)]
    return [size for inner in value for size in sizes(inner, name)] if isinstance(value, list | tuple) else []


PRESETS = ("kernels", "kernel-map", "head-kernels", "head-diagonal", "head-ratio")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("width", "px"), [("column", 317), ("page", 658)])
def test_every_figure_has_its_width_white_paper_and_no_small_text(preset, width, px):
    drawn = made(preset, width=width).figure
    assert drawn.layout.width == px  # 84 and 174 mm at 96 pixels to the inch
    assert drawn.layout.height < 247 * 96 / 25.4  # a page's text is that high
    assert drawn.layout.paper_bgcolor == "white" and drawn.layout.font.color
    found = sizes(drawn.to_plotly_json())
    assert found and min(found) >= SMALLEST_PX


@pytest.mark.parametrize("preset", PRESETS)
def test_captions_name_the_model_and_count_as_asked(preset):
    caption = made(preset, numbering=1).caption
    assert " of model" in caption and caption.endswith("Layers and heads count from 1.")


def test_panels_are_named_by_layer_and_head_and_broken_kernels_named():
    assert "L1 H0" in words(made("kernels").figure)
    broken = made("kernels", broken=True)
    assert "L1 H2 NaN/inf: 3" in words(broken.figure) and "L1 H3 all 0" in words(broken.figure)
    assert "NaN or infinite in head 2 (3 values)." in broken.caption and "All 0: head 3." in broken.caption
    assert "Crosses" not in made("kernels").caption


def test_a_cell_of_the_layer_figure_is_a_tap_and_the_scale_is_printed():
    heat = next(trace for trace in made("kernels").figure.data if isinstance(trace, go.Heatmap))
    taps = weights()["blocks.1.attn.kernel_pre"].numpy()
    drawn = np.sort(heat.z[np.isfinite(heat.z)])
    assert drawn == pytest.approx(np.sort(taps.ravel()))
    assert heat.colorbar.ticktext[0].endswith(f"{heat.zmax:g}")


def test_the_csv_holds_every_tap():
    taps = weights()["blocks.1.attn.kernel_pre"].numpy()
    for row in rows(made("kernels")):
        at = int(row["head"]), 5 + int(row["query_offset"]), 5 + int(row["key_offset"])
        assert np.float32(row["value"]) == taps[at]


def test_kernel_and_map_share_a_figure_and_a_csv():
    drawn = made("kernel-map")
    assert "<b>L0 H1</b> after key-query conv (score)" in words(drawn.figure)
    heats = [trace for trace in drawn.figure.data if isinstance(trace, go.Heatmap)]
    assert [heat.xaxis for heat in heats] == [None, "x2"]
    assert list(drawn.figure.layout.yaxis2.range) == [5.5, 1.5]  # queries down
    cells = [row for row in rows(drawn) if row["part"] == "map"]
    assert len(cells) == 16 and len(rows(drawn)) == 16 + 6
    masked = [row for row in cells if int(row["key"]) > int(row["query"])]
    assert masked and all(row["masked"] == "1" and row["value"] == "" for row in masked)


def test_head_mixing_shows_a_panel_a_layer_and_a_row_a_layer_in_groups():
    alone = made("head-kernels", broken=True)
    assert "L2 NaN/inf: 1" in words(alone.figure) and "layer 2 (1 value)" in alone.caption
    pairs = figure("head-kernels", _paired())
    assert pairs.figure.layout.xaxis.ticktext == ("H0–1", "H2–3")
    assert pairs.figure.layout.yaxis.ticktext == ("L0", "L1", "L2", "L3")
    assert "group of 2 heads" in pairs.caption
    last = rows(pairs)[-1]
    assert (last["group"], last["target_head"], last["source_head"]) == ("1", "3", "3")


def _paired() -> HookedMTA:
    shapes = config(FULL.__class__(head_post_group=2), 258)
    return model(shapes, random_weights(shapes))


def test_bars_mark_layers_with_key_query_kernels():
    drawn = made("head-diagonal").figure
    bars = {bar.marker.color: list(bar.x) for bar in drawn.data if bar.xaxis == "x"}
    assert bars == {WITH_KERNELS: [1, 3], WITHOUT_KERNELS: [0, 2]}
    assert "<b>before the softmax</b>" in words(drawn) and "<b>after the softmax</b>" in words(drawn)


def test_bars_are_sizes_and_the_csv_has_signed_values_too():
    found, ratio = mixing_by_layer(weights(), SHAPES), made("head-ratio")
    for bar in ratio.figure.data[:2]:
        assert bar.y == pytest.approx(found.places[0].ratio[list(bar.x)])
    first = rows(ratio)[0]
    assert float(first["mean_off_diagonal"]) == found.places[0].off_diagonal[0]
    assert float(first["ratio_of_abs"]) == found.places[0].ratio[0]
    assert float(first["ratio_of_signed"]) == found.places[0].signed_ratio[0] != float(first["ratio_of_abs"])


def test_a_layer_without_a_number_is_crossed_and_named():
    broken = made("head-ratio", broken=True, numbering=1)
    cross = next(trace for trace in broken.figure.data if isinstance(trace, go.Scatter))
    assert list(cross.x) == [2]
    assert "Without a number before the softmax: layer 3 (NaN in 1 weight)." in broken.caption

"""Curves of kernels over training, on taps small enough to redo by hand."""

import numpy as np
import torch

from mta_viz.analysis.kernels.table import FROM_START, kernel_curves
from mta_viz.checkpoint.history import KernelHistory
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.plots.kernels.mosaic import training_curves

CONFIG = ModelConfig(
    d_model=4, n_layers=1, n_heads=2, n_kv_heads=2, d_head=2, d_mlp=4, vocab_size=8, tied=True,
    mta=MTAOptions(pre_kernel=(2, 3)),
)  # fmt: skip


def history() -> KernelHistory:
    """Head 0 grows a tap of 3 beside its own; head 1 its own tap from 1 to 5."""
    taps = torch.zeros(2, 2, 2, 3)
    taps[:, :, 1, 1] = 1
    taps[1, 0, 0, 0], taps[1, 1, 1, 1] = 3, 5
    return KernelHistory((0, 10), {"blocks.0.attn.kernel_pre": taps})


def test_distances_and_energy_by_hand():
    curves = kernel_curves(history(), CONFIG, 0, "pre")
    assert curves is not None and curves.steps == (0, 10)
    np.testing.assert_allclose(curves.values["distance_from_identity"], [[0, 3], [0, 4]])
    np.testing.assert_allclose(curves.values[FROM_START], [[0, 3], [0, 4]])
    np.testing.assert_allclose(curves.values["energy_off_identity"], [[0, 9 / 10], [0, 0]])


def test_distance_from_the_start_is_not_that_from_identity():
    doubled = KernelHistory((0, 10), {name: 2 * taps for name, taps in history().kernels.items()})
    curves = kernel_curves(doubled, CONFIG, 0, "pre")
    assert curves is not None
    np.testing.assert_allclose(curves.values[FROM_START], [[0, 6], [0, 8]])
    np.testing.assert_allclose(curves.values["distance_from_identity"][1], [1, 9])


def test_a_place_without_kernels_has_no_curves():
    assert kernel_curves(history(), CONFIG, 0, "post") is None


def test_the_figure_and_the_table_hold_the_curves():
    curves = kernel_curves(history(), CONFIG, 0, "pre")
    assert curves is not None
    figure = training_curves(curves, FROM_START, head=1, snapshot=1, title="L0", numbering=1)
    assert [line.line.width for line in figure.data[:2]] == [1, 3]
    np.testing.assert_allclose(figure.data[1].y, [0, 4])
    targets = figure.data[2]
    assert targets.customdata.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert targets.text[3] == "H2 · step 10<br>+4<br>click to choose"
    assert figure.layout.shapes[0].x0 == 1 and list(figure.layout.xaxis.ticktext) == ["0", "10"]
    lines = curves.table().csv().splitlines()
    assert lines[0].startswith("head,step,") and len(lines) == 5
    assert lines[2].split(",")[lines[0].split(",").index(FROM_START)] == "3"

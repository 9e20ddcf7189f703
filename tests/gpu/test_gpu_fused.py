"""On a GPU: a run by fused kernels is the CPU's, and whoever listens to a map gets slabs of the same."""

from pathlib import Path

import pytest
import torch

import mta_viz
from mta_viz.model.backends import described
from mta_viz.run.tracing import run_hooks

pytestmark = pytest.mark.gpu
ASSETS = Path(__file__).parents[2] / "assets"
IDS = [(7 * position) % 500 for position in range(301)]


@pytest.mark.parametrize(
    ("name", "way"), [("needle-mta", "in fused kernels"), ("needle-transformer", "by torch's own attention")]
)
def test_a_run_is_the_cpus_and_says_how(name, way):
    there, here = (
        mta_viz.load(ASSETS / name, device=place, dtype=torch.float32) for place in ("cuda", "cpu")
    )
    found, want = mta_viz.capture(there, IDS), mta_viz.capture(here, IDS)
    assert described(found.backends) == f"{there.config.n_layers} layers {way}"
    size = want.residuals.norm()
    assert (found.residuals.cpu() - want.residuals).norm() < 1e-4 * size
    assert torch.equal(found.residuals, mta_viz.capture(there, IDS).residuals)
    last = f"blocks.{there.config.n_layers - 1}"
    hooks = run_hooks(there, IDS, [f"{last}.attn.hook_pattern", f"{last}.hook_resid_post"])
    assert (hooks[f"{last}.hook_resid_post"] - want.residuals[-1]).norm() < 1e-4 * size

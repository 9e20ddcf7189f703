"""On a GPU: a run by fused kernels is the CPU's, whoever listens to a map gets slabs of the same, and an
overview of a map is pooled without waiting."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from model_cases import random_case

import mta_viz
from mta_viz.analysis.attention.maps import NO_CELLS, AttentionMap, WholeMap
from mta_viz.model.backends import described
from mta_viz.model.stages import Stage
from mta_viz.run.tracing import run_hooks

pytestmark = pytest.mark.gpu
ASSETS = Path(__file__).parents[2] / "assets"
DIFFERENTIAL = {
    "dim": 64, "n_layers": 3, "n_heads": 2, "multiple_of": 4, "vocab_size": 13, "differential": True,
    "mta": {"group_norm": True, "layer_norm_rescale": True},
}  # fmt: skip
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


@pytest.mark.parametrize("name", ["needle-mta", "blocks-n5-mta"])
def test_maps_are_the_cpus(name, monkeypatch):
    """Their convolutions are Triton's; cells that are not finite are the same ones."""
    from mta_viz.model import fused  # Triton is only where CUDA is

    convolved = Mock(wraps=fused.convolved)
    monkeypatch.setattr(fused, "convolved", convolved)
    ids, part = [position % 30 for position in IDS], (slice(40, 200), slice(31, 170))
    there, here = (
        mta_viz.capture(mta_viz.load(ASSETS / name, device=place), ids) for place in ("cuda", "cpu")
    )
    for layer in (1, 3):
        for stage in here.model.blocks[layer].attn.stages:
            for sides in ((), part):
                want, found = (run.maps(layer, stage, *sides).cpu() for run in (here, there))
                assert (found - want).abs().max() < 1e-4 * want.abs().max()  # of what the run's inputs differ
        for run in (there, here):
            run.residuals[layer, 77] = torch.nan
        for stage in here.model.blocks[layer].attn.stages:
            want, found = (run.maps(layer, stage).cpu() for run in (here, there))
            assert torch.equal(found.isfinite(), want.isfinite())
    assert convolved.called


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("head_dim", [8, 128])
def test_diff_transformers_torch_attention_is_the_float64_reference(head_dim, dtype, most):
    case = random_case(DIFFERENTIAL | {"head_dim": head_dim}, seed=3)
    model, ids = case.build().requires_grad_(False).to("cuda", dtype), [id % 13 for id in IDS]
    assert described(mta_viz.capture(model, ids).backends) == "3 layers by torch's own attention"
    want = torch.from_numpy(case.reference(ids)["logits"])
    with torch.no_grad():
        found = model(torch.tensor([ids, ids[::-1]], device="cuda"))[0].double().cpu()
    assert (found - want).norm() < most * want.norm()


@pytest.mark.parametrize("broken", [False, True])
def test_an_overview_is_the_cpus_and_nothing_waits_for_it(broken):
    cells = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(0))
    if broken:
        cells[1, 40, 7], cells[2, 50, 3] = torch.nan, torch.inf

    def pooled(place):
        whole = WholeMap(AttentionMap(0, 0, Stage.RAW, *NO_CELLS), 64, 8)
        slabs = [(start, cells[:, start : start + 28, : start + 28].to(place)) for start in (0, 28, 56)]
        torch.cuda.set_sync_debug_mode("error")
        try:
            for start, slab in slabs:
                whole.add(slab, start)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return [whole.result(head) for head in range(3)]

    for there, here in zip(pooled("cuda"), pooled("cpu"), strict=True):
        torch.testing.assert_close(there.values, here.values, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(there.pooled.peak_key[~there.future], here.pooled.peak_key[~here.future])
        torch.testing.assert_close(there.pooled.means, here.pooled.means, equal_nan=True)
        assert there.n_bad == here.n_bad
        assert there.negative_share == pytest.approx(here.negative_share)
        assert there.row_sums == pytest.approx(here.row_sums)

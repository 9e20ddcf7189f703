"""On a GPU: edits, patching, attribution, responsibility, comparison, saved runs say what the CPU says."""

from pathlib import Path

import pytest
import torch

import mta_viz
from mta_viz.analysis.labs.conjunction import conjunction
from mta_viz.analysis.labs.four_prompts import block_prompts
from mta_viz.analysis.labs.text import text_losses
from mta_viz.model.interventions import AblateHead, KernelToIdentity, PatchHead
from mta_viz.model.stages import Stage
from mta_viz.tasks.blocks import BlockTask

pytestmark = pytest.mark.gpu

ASSETS = Path(__file__).parents[2] / "assets"
PLACES = ("cpu", "cuda")
TOLERANCE = 1e-3  # nats, or of a share


@pytest.fixture(autouse=True)
def exact_convolutions():
    """cuDNN's TF32, whose 10-bit products would hide a difference, is off."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="module")
def models():
    return {
        place: mta_viz.load(ASSETS / "blocks-n5-mta", device=place, dtype=torch.float32) for place in PLACES
    }


@pytest.fixture(scope="module")
def prompts():
    """Two sequences of blocks, as ids."""
    task = BlockTask()
    return [tuple(row[: -task.n_answer].tolist()) for row in task.sample_range(0, 2, seed=0).tokens]


def alike(found, of):
    """Whether both places give the same numbers."""
    first, second = (torch.as_tensor(of(found[place])).cpu().double() for place in PLACES)
    torch.testing.assert_close(first, second, atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True)


def test_edits_sweeps_and_patches(models, prompts):
    plan = (KernelToIdentity(2, 1, "pre"), AblateHead(0, 1), PatchHead(1, 0, "final", prompts[1]))
    found = {
        place: mta_viz.ablate(model, prompts[0], plan, sweeps=("kernels", "mixing", "heads"), needed=True)
        for place, model in models.items()
    }
    alike(found, lambda one: [one.board.before, one.board.after])
    alike(found, lambda one: sorted(row.change for row in one.sweep))


def test_attribution(models, prompts):
    for method in ("gradients", "ablation"):
        found = {
            place: mta_viz.attribute(model, prompts[0], method=method, groups=[[3], [7, 8]])
            if method == "ablation"
            else mta_viz.attribute(model, prompts[0], method=method, max_seconds=2.0)
            for place, model in models.items()
        }
        alike(found, lambda one: one.found.score)
    alike(found, lambda one: one.found.values)
    heads = {
        place: mta_viz.attribute_heads(model, prompts[0], Stage.PATTERN, layers=[2], max_seconds=1.0)
        for place, model in models.items()
    }
    alike(heads, lambda one: one.of(2).ablated)


def test_responsibility(models, prompts):
    found = {place: mta_viz.responsibilities(model, prompts[0]) for place, model in models.items()}
    for layer in range(3):
        alike(found, lambda one, layer=layer: one.layers[layer].values)


def test_comparison_with_itself_at_identity_and_a_twin(models, prompts):
    twins = {
        place: mta_viz.load(ASSETS / "blocks-n5-transformer", device=place, dtype=torch.float32)
        for place in PLACES
    }
    for others in (twins, dict.fromkeys(PLACES)):
        found = {place: mta_viz.compare(models[place], others[place], prompts[0]) for place in PLACES}
        alike(found, lambda one: [[pair.a, pair.b] for pair in one.answers])
        alike(found, lambda one: one.pairs.r)


def test_a_saved_run_opens_without_and_with_the_model(models, prompts, tmp_path):
    trace = mta_viz.capture(models["cuda"], prompts[0])
    file = mta_viz.save_trace(trace, tmp_path / "run.safetensors", stages=[Stage.PATTERN])
    for model in (None, models["cuda"], models["cpu"]):
        opened = mta_viz.open_trace(file, model)
        pattern = opened.maps(2, Stage.PATTERN).cpu()
        torch.testing.assert_close(pattern, trace.maps(2, Stage.PATTERN).cpu(), atol=1e-5, rtol=1e-4)


def test_the_labs(models):
    samples = block_prompts(BlockTask(), 4)
    tested = {place: conjunction(model, samples) for place, model in models.items()}
    for measure in tested["cpu"].values:
        alike(tested, lambda one, measure=measure: one.values[measure])
    needle = {
        place: mta_viz.load(ASSETS / "needle-mta", device=place, dtype=torch.float32) for place in PLACES
    }
    text = "The city of Paris has the number 4. " * 20
    alike({place: text_losses(model, text) for place, model in needle.items()}, lambda one: one.loss)

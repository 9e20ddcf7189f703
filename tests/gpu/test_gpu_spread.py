"""Layers spread over devices give one device's numbers: over two GPUs, and over a GPU and the CPU."""

from pathlib import Path

import pytest
import torch

from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.model.editing import edited
from mta_viz.model.interventions import KernelToIdentity
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import build_model
from mta_viz.run import tracing
from mta_viz.run.placing import spread_layers
from mta_viz.run.scoring import self_check

pytestmark = pytest.mark.gpu

CHECKPOINT = Path(__file__).parents[2] / "assets" / "needle-mta"
IDS = torch.randint(0, 4000, (700,), generator=torch.Generator().manual_seed(0)).tolist()


@pytest.fixture(params=["cuda:1", "cpu"])
def places(request):
    """The first half on the first GPU, the other half elsewhere."""
    if request.param == "cuda:1" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU here")
    first, other = torch.device("cuda:0"), torch.device(request.param)
    return {f"blocks.{layer}.": other for layer in (3, 4, 5)} | {"": first}


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-3)])
def test_a_spread_model_gives_one_devices_numbers(places, dtype, error):
    if places["blocks.3."].type == "cpu":
        error = 5e-2 if dtype == torch.bfloat16 else 1e-4  # other kernels there
    checkpoint = read_checkpoint(CHECKPOINT)
    one, spread = (build_model(checkpoint, device=device, dtype=dtype) for device in ("cuda:0", places))

    def near(ours, theirs):
        assert float((ours - theirs).abs().max() / theirs.abs().max()) <= error

    ours, theirs = (tracing.capture(model, IDS) for model in (spread, one))
    near(ours.logits(), theirs.logits())
    for stage in (Stage.RAW, Stage.SOFTMAX, Stage.PATTERN):
        near(ours.maps(3, stage), theirs.maps(3, stage))
    plan = (KernelToIdentity(4, 1, "pre"),)
    near(*(tracing.capture(edited(model, plan), IDS).logits() for model in (spread, one)))
    assert self_check(ours).logits_error <= max(error, 2e-2 if dtype == torch.bfloat16 else 1e-5)
    if dtype == torch.float32:
        assert tracing.generate(spread, IDS[:300], 8) == tracing.generate(one, IDS[:300], 8)


def test_a_card_with_little_room_leaves_the_rest_to_others():
    pytest.importorskip("accelerate")
    config = read_checkpoint(CHECKPOINT).config
    others: dict[int | str, int | str] = {1: "1GiB"} if torch.cuda.device_count() > 1 else {}
    places = spread_layers(config, torch.float32, {0: "16MiB", **others, "cpu": "1GiB"})
    assert places["embed."] == torch.device("cuda:0") and len(set(places.values())) > 1

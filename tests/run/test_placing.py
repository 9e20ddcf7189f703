"""Layers spread over devices: who lies where, equal runs, and no tensor meets one of another device."""

from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mta_viz.analysis.attention.cells import value_norms
from mta_viz.analysis.cause.direct_effect import layer_effect
from mta_viz.checkpoint.types import Checkpoint, Source, parameter_shapes
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError
from mta_viz.model import editing, hooking
from mta_viz.model.interventions import AblateHead, KernelToIdentity, PatchHead
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import build_model
from mta_viz.run import scoring, tracing
from mta_viz.run.placing import placed, spread_layers
from mta_viz.run.trace import Trace
from mta_viz.tokenizers.base import tokens_from_ids
from tests.tiny_models import random_weights

CONFIG = ModelConfig(
    d_model=16, n_layers=3, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=32, tied=False,
    mta=MTAOptions(
        pre_kernel=(2, 3), post_kernel=(2, 3), mta_layers=(1,), head_pre=True, head_post_group=2,
        group_norm=True, gate="1d",
    ),
)  # fmt: skip
IDS = tuple(range(9))
SOURCE = Source(Path("tiny"), "native", None, 0)


def test_a_layer_is_on_one_device_and_what_is_shared_on_the_first():
    pytest.importorskip("accelerate")
    places = {part: str(place) for part, place in spread_layers(CONFIG, None, {"cpu": "1MiB"}).items()}
    assert set(places.values()) == {"cpu"}
    layer = 4 * sum(
        torch.Size(s).numel() for name, s in parameter_shapes(CONFIG).items() if "blocks.1" in name
    )
    memory = {0: 4 * 2 * 32 * 16 + 2 * layer + 99, 1: layer + 99, "cpu": "1MiB"}
    places = {part: str(place) for part, place in spread_layers(CONFIG, None, memory).items()}
    assert [places[f"blocks.{layer}."] for layer in range(3)] == ["cuda:0", "cuda:1", "cpu"]
    assert {places[part] for part in ("embed.", "unembed.", "ln_final.")} == {"cuda:0"}
    with pytest.raises(MtaVizError, match="hold too little for this model"):
        spread_layers(CONFIG, None, {"cpu": 2 * layer})


def test_spread_over_what_a_cpu_has_a_run_is_that_of_one_device():
    pytest.importorskip("accelerate")
    checkpoint = Checkpoint(CONFIG, random_weights(CONFIG), None, SOURCE)
    one, spread = (placed(checkpoint, name, torch.float32) for name in ("cpu", "auto"))
    ours, theirs = tracing.capture(spread, IDS), tracing.capture(one, IDS)
    assert torch.equal(ours.logits(), theirs.logits())
    for stage in (Stage.RAW, Stage.SOFTMAX, Stage.PATTERN):
        assert torch.equal(ours.maps(1, stage), theirs.maps(1, stage))


def test_nothing_meets_a_tensor_of_another_device(monkeypatch):
    """Tensors without values know their device, and raise where two meet: layer 1 is on another one."""
    for module in (hooking, editing):
        monkeypatch.setattr(module, "mark", lambda tensor: "")  # reads values
    with FakeTensorMode(), torch.no_grad():
        state = {name: torch.zeros(shape) for name, shape in parameter_shapes(CONFIG).items()}
        places = {"blocks.1.": torch.device("lazy:0"), "": torch.device("cpu")}
        model = build_model(Checkpoint(CONFIG, state, None, SOURCE), device=places)
        assert model.blocks[1].attn.wq.weight.device.type == "lazy"
        ids, cell, question = (
            torch.zeros(1, 9, dtype=torch.long),
            (0, 5, 3),
            scoring.Question(IDS[:8], (1, 2)),
        )
        residuals = tracing.captured(model, ids)[0]
        trace = Trace(tokens_from_ids(IDS, vocab_size=32, tokenizer=None), residuals, model)
        moved = scoring.moved_inputs(trace, 1, torch.zeros(9, 16))
        patch = PatchHead(1, 0, "z", IDS)
        changed = editing.edited(model, (KernelToIdentity(1, 0, "pre"), AblateHead(1, 1)))
        patched = editing.edited(model, (patch,), {patch: torch.zeros(9, 8)})
        answers = [
            residuals,
            *(trace.maps(1, stage) for stage in model.blocks[1].attn.stages),
            trace.lens(2),
            value_norms(trace, 1, 0),
            layer_effect(trace, 1, 8, 3).values,
            tracing.run_hooks(model, IDS, ["blocks.1.attn.hook_pattern"])["logits"],
            *(scoring.end_logits(made, ids, 2) for made in (model, changed, patched)),
            scoring.attention_output(model, trace, 1),
            *(scoring.without_cell(trace, layer, cell, 8).added for layer in range(3)),
            scoring.with_added(trace, 1, {name: value[None] for name, value in moved.items()}, (1,)),
            scoring.of_ids(model, question)(ids[:, :8]),
            scoring.of_maps(trace, 1, Stage.SOFTMAX, question)(torch.zeros(1, 2, 9, 9)),
        ]
        continued = tracing.Continuation(model, ids[0])
        gate = trace.gate(1)
        assert {str(answer.device) for answer in [*answers, continued.logits]} == {"cpu"}
        assert gate is not None and continued.past[1].k.device.type == "lazy"

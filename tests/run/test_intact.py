"""A trace is never of two models: hooks and changed weights are refused, in memory and in files."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

import mta_viz
from mta_viz.analysis.labs.sweep import Sweep
from mta_viz.analysis.labs.sweep_file import empty_results, results_of
from mta_viz.checkpoint.native import write_native
from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import provenance_of
from mta_viz.exporting.report import report
from mta_viz.model.editing import edited
from mta_viz.model.hooking import mark
from mta_viz.model.interventions import AblateHead, BypassGate, KernelToIdentity
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.files import open_trace, save_trace
from mta_viz.run.scoring import write_inserted
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import capture, generate, load, operated
from tests.tiny_models import FULL, config, random_weights, write_models

PROMPT = "abc.def"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder, shapes = tmp_path_factory.mktemp("intact") / "tiny", config(FULL, 258)
    weights = random_weights(shapes)
    write_native(folder, shapes, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    return folder


@pytest.fixture
def model(folder: Path) -> HookedMTA:
    return load(folder)


HOOKED = {
    "a stage": lambda model: model.hooks(fwd_hooks=[("blocks.3.attn.hook_pattern", lambda a, hook: a * 0)]),
    "the embedding": lambda model: model.hooks(fwd_hooks=[("hook_embed", lambda a, hook: a * 0)]),
    "one that only looks": lambda model: model.hooks(fwd_hooks=[(lambda name: True, lambda a, hook: None)]),
}
PERMANENT = {
    "a permanent one": lambda model: model.add_perma_hook("blocks.1.hook_mlp_out", lambda a, hook: a * 0),
    "torch's": lambda model: model.blocks[1].attn.wq.register_forward_hook(lambda *arguments: None),
    "torch's, before": lambda model: model.blocks[1].register_forward_pre_hook(lambda *arguments: None),
    "torch's, on the whole": lambda model: model.register_forward_hook(lambda *arguments: None),
}
READS: dict[str, Callable[[Trace], object]] = {
    "map": lambda trace: trace.map(3, Stage.KQ, 0),
    "maps": lambda trace: trace.maps(1, Stage.PATTERN),
    "slabs": lambda trace: list(trace.stage_slabs(1)),
    "logits": lambda trace: trace.logits(),
    "gate": lambda trace: trace.gate(1),
    "project": lambda trace: trace.project(1),
}


@pytest.mark.parametrize("name", HOOKED)
def test_no_trace_is_made_or_read_under_hooks(model, name):
    trace = capture(model, PROMPT)
    with HOOKED[name](model):
        for ask in (lambda: capture(model, PROMPT), lambda: generate(model, PROMPT, 2)):
            with pytest.raises(MtaVizError, match=r"hooks at (hook_embed|blocks\.3\.attn\.hook_pattern)"):
                ask()
        for read in READS.values():
            with pytest.raises(MtaVizError, match="would mix two models"):
                read(trace)
    assert torch.equal(capture(model, PROMPT).residuals, trace.residuals)


@pytest.mark.parametrize("name", PERMANENT)
def test_hooks_that_stay_are_seen_as_well(model, name, tmp_path):
    trace = capture(model, PROMPT)
    PERMANENT[name](model)
    with pytest.raises(MtaVizError, match=r"hooks at (blocks\.1|the model itself)"):
        capture(model, PROMPT)
    with pytest.raises(MtaVizError, match="hooks at"):
        save_trace(trace, tmp_path / "run.safetensors", stages=[Stage.PATTERN])


def assign(model: HookedMTA) -> None:
    model.blocks[1].attn.wq.weight = torch.nn.Parameter(model.blocks[1].attn.wq.weight.flip(0))


CHANGES: dict[str, Callable[[HookedMTA], object]] = {
    "in place": lambda model: model.blocks[1].attn.wq.weight.mul_(1.5),
    "one value": lambda model: model.blocks[1].attn.kernel_pre[0, 0, 0].add_(1),
    "through .data": lambda model: model.blocks[1].attn.kernel_pre.data.copy_(
        model.blocks[1].attn.kernel_pre.data.flip(-1)
    ),
    "data in place": lambda model: model.blocks[1].attn.wk.weight.data[3].mul_(2),
    "data of others": lambda model: setattr(model.blocks[1].ln1.weight, "data", torch.ones(64)),
    "another parameter": assign,
    "loaded": lambda model: model.load_state_dict(random_weights(model.config, 1), strict=False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_weights_that_changed_since_are_refused(model, name, tmp_path):
    trace = capture(model, PROMPT)
    before = trace.map(0, Stage.PATTERN, 0)
    CHANGES[name](model)
    with pytest.raises(MtaVizError, match=r"blocks\.1\..* changed since this run was made"):
        trace.map(1, Stage.PATTERN, 0)
    with pytest.raises(MtaVizError, match="changed since"):
        replace(trace, residuals=trace.residuals.clone()).project(1)
    again = capture(model, PROMPT)  # of one model, which no file holds
    for run in (trace, again):
        with pytest.raises(MtaVizError, match="changed since the model was read"):
            save_trace(run, tmp_path / "run.safetensors")
    assert not list(tmp_path.iterdir())
    with pytest.raises(MtaVizError, match="changed since the model was read"):
        provenance_of(mta_viz.figure("attention-map", again, layer=1, head=0, stage="final"))
    assert torch.equal(again.map(1, Stage.RAW, 0), again.maps(1, Stage.RAW)[0])
    if name != "loaded":  # what layer 0 computes is what it was
        assert torch.equal(trace.map(0, Stage.PATTERN, 0), before)


@pytest.mark.parametrize("shape", [(900, 301), (512, 512), (301, 900)])
def test_a_large_matrix_is_looked_at_in_every_row_and_column(shape):
    matrix = torch.randn(shape)
    own = mark(matrix)
    for place in (
        (7, slice(None)),
        (slice(None), 300),
        (slice(None), slice(64, 72)),
        (slice(200, 240), slice(40, 80)),
    ):
        other = matrix.clone()
        other[place] += 1
        assert mark(other) != own
    assert mark(matrix.T.contiguous().T) == own and mark(matrix.half()) != own


def test_a_saved_run_opens_with_the_model_as_it_was_read_alone(model, tmp_path):
    file = save_trace(capture(model, PROMPT), tmp_path / "run.safetensors")
    assert open_trace(file, model).logits().shape == (8, 258)
    model.blocks[2].attn.wv.weight.mul_(2)
    with pytest.raises(MtaVizError, match=r"blocks\.2\.attn\.wv\.weight changed since the model was read"):
        open_trace(file, model)


def test_interventions_are_no_change(model, tmp_path):
    plan = (KernelToIdentity(1, 0, "pre"), AblateHead(0, 1), BypassGate(2))
    run = capture(edited(operated(model, plan[:1], 8), plan[1:]), PROMPT)
    file = save_trace(run, tmp_path / "run.safetensors")
    assert torch.equal(open_trace(file, model).logits(), run.logits())
    model.blocks[0].attn.wo.weight.data.mul_(2)  # what the plan then changes was not as read
    with pytest.raises(MtaVizError, match=r"blocks\.0\.attn\.wo\.weight changed since the model was read"):
        save_trace(capture(edited(model, plan), PROMPT), tmp_path / "other.safetensors")


def test_traces_travel(model, tmp_path):
    trace = capture(model, PROMPT)
    stored = open_trace(save_trace(trace, tmp_path / "run", stages=[Stage.KQ]), model)
    expected = trace.maps(1, Stage.KQ)
    for other in (
        pickle.loads(pickle.dumps(trace)),
        copy.deepcopy(trace),
        pickle.loads(pickle.dumps(stored)),
    ):
        assert torch.equal(other.maps(1, Stage.KQ), expected) and other.tokens == trace.tokens
        other.model.blocks[1].attn.wq.weight.data.mul_(2)
        with pytest.raises(MtaVizError, match="changed since this run"):
            other.maps(1, Stage.RAW)
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        assert torch.equal(pool.submit(Trace.maps, trace, 1, Stage.KQ).result(60), expected)
        assert torch.equal(pool.submit(capture, model, PROMPT).result(60).residuals, trace.residuals)


@pytest.mark.parametrize("device", ["mps", "cuda:97", "tpu", "meta", ""])
def test_a_device_that_is_not_there_is_said_in_words(folder, device):
    with pytest.raises(MtaVizError, match=r"device .* cannot be used.*; there is: cpu") as error:
        load(folder, device=device)
    assert "aten" not in str(error.value) and "\n" not in str(error.value)


def test_no_report_sweep_or_adapter_names_weights_that_changed_since_they_were_read(tmp_path):
    plain = load(write_models(tmp_path) / "tiny-plain")
    inserted = mta_viz.insert_mta(plain, [0], kernel=(2, 3))
    plain.blocks[1].attn.wo.weight.mul_(2)
    sweep = empty_results(Sweep(lengths=(128,), samples=1))
    for write in (
        lambda: report(plain, PROMPT),
        lambda: results_of(plain, "plain", sweep),
        lambda: write_inserted(tmp_path / "a.safetensors", plain, inserted),
    ):
        with pytest.raises(
            MtaVizError, match=r"blocks\.1\.attn\.wo\.weight changed since the model was read"
        ):
            write()

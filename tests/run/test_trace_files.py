"""A saved run gives its maps back bit for bit, the others with its checkpoint, and no damaged file opens."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from mta_viz.analysis.attention.maps import exact_map, head_map
from mta_viz.checkpoint.native import write_native
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import MtaVizError, PromptError
from mta_viz.model.editing import edited
from mta_viz.model.interventions import AblateHead, KernelToIdentity, PatchHead
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import files
from mta_viz.run.files import open_trace, save_trace, trace_bytes, trace_size
from mta_viz.run.tracing import Trace, capture, load, operated
from tests.tiny_models import random_weights

# Layer 0 has head mixing only, layer 1 all stages; the byte tokenizer has 258 ids.
CONFIG = ModelConfig(
    d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=8, d_mlp=16, vocab_size=258,
    mta=MTAOptions(pre_kernel=(2, 3), post_kernel=(2, 3), mta_layers=(1,), head_pre=True),
)  # fmt: skip
PROMPT = 'é "a" <b>\n'


def write(folder: Path, seed: int = 0) -> HookedMTA:
    weights = random_weights(CONFIG, seed)
    write_native(folder, CONFIG, weights, tokenizer_name="bytes", tokenizer_path=None, dtype=None)
    return load(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> HookedMTA:
    return write(tmp_path_factory.mktemp("checkpoint") / "small")


@pytest.fixture(scope="module")
def trace(model: HookedMTA) -> Trace:
    return capture(model, PROMPT)


@pytest.fixture
def file(trace: Trace, tmp_path: Path) -> Path:
    return save_trace(trace, tmp_path / "run.safetensors", stages=[Stage.KQ, Stage.PATTERN])


def test_stored_maps_come_back_bit_for_bit_without_the_checkpoint(file, trace):
    alone = open_trace(file)
    assert alone.tokens == trace.tokens and not alone.recomputes
    assert torch.equal(alone.residuals, trace.residuals)
    for layer, stage in ((0, Stage.PATTERN), (1, Stage.PATTERN), (1, Stage.KQ)):
        assert torch.equal(alone.maps(layer, stage), trace.maps(layer, stage))
        crop = alone.map(layer, stage, 1, slice(3, 7), slice(2, 5))
        assert torch.equal(crop, trace.map(layer, stage, 1)[3:7, 2:5])  # slabs of other rows round otherwise
    mine, theirs = (exact_map(one, 1, Stage.KQ, 0) for one in (alone, trace))
    assert torch.equal(mine.values, theirs.values) and mine.negative_share == theirs.negative_share
    assert torch.equal(*(head_map(one, 1, Stage.KQ, 0, 4).values for one in (alone, trace)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda trace: trace.maps(1, Stage.SOFTMAX),
        lambda trace: list(trace.stage_slabs(1)),
        lambda trace: trace.logits(),
        lambda trace: trace.project(0),
    ],
)
def test_what_is_not_stored_is_refused_with_what_is_and_the_way_to_the_rest(file, ask):
    with pytest.raises(
        PromptError, match="layer 0: hook_pattern; layer 1: hook_scores_kq, hook_pattern"
    ) as said:
        ask(open_trace(file))
    assert "checkpoint, small: open_trace(file, model=load(checkpoint))" in str(said.value)


def test_with_the_checkpoint_every_stage_is_there(file, trace, model):
    again = open_trace(file, model)
    for layer, block in enumerate(model.blocks):
        for stage in block.attn.stages:
            torch.testing.assert_close(again.maps(layer, stage), trace.maps(layer, stage), rtol=0, atol=1e-6)
        for (_, mine), (_, theirs) in zip(again.stage_slabs(layer), trace.stage_slabs(layer), strict=True):
            assert mine.keys() == theirs.keys()
    assert torch.equal(again.logits(), trace.logits())


def test_a_stored_map_is_read_even_with_the_checkpoint(file, model):
    run = files.read_run(file)
    other = {place: (one + 1).tril() for place, one in run.maps.items()}
    again = replace(run, maps=other).trace(model)
    assert torch.equal(again.maps(1, Stage.KQ), other[1, Stage.KQ])
    _, slabs = next(again.stage_slabs(1))
    assert torch.equal(slabs[Stage.KQ], other[1, Stage.KQ])


def test_a_run_with_interventions_is_opened_with_them(model, tmp_path):
    patch = PatchHead(1, 0, "kq", "0123456789")
    plan = (KernelToIdentity(1, 0, "pre"), AblateHead(0, 1), patch)
    prompt = "abcdefghij"
    run = capture(operated(model, plan, len(prompt) + 1), prompt)
    again = open_trace(save_trace(run, tmp_path / "run"), model)
    assert again.model.plan == plan
    for stage in (Stage.KQ, Stage.PATTERN):
        torch.testing.assert_close(again.maps(1, stage), run.maps(1, stage), rtol=0, atol=1e-6)
    kept = save_trace(open_trace(tmp_path / "run"), tmp_path / "again")
    assert files.read_run(kept).about.plan == plan
    with pytest.raises(MtaVizError, match="interventions of its own"):
        open_trace(kept, edited(model, [AblateHead(0, 0)]))


def test_nan_and_pasted_ids_are_kept(model, tmp_path):
    run = capture(model, [5, 6, 7])
    run = replace(run, residuals=run.residuals.index_fill(1, torch.tensor([1]), torch.nan))
    again = open_trace(save_trace(run, tmp_path / "run", stages=[Stage.RAW]))
    assert again.tokens == run.tokens and again.tokens.text is None
    assert torch.equal(again.residuals.view(torch.int32), run.residuals.view(torch.int32))
    assert again.map(1, Stage.RAW, 0)[1].isnan().any()


def test_other_weights_or_another_dtype_are_refused(file, model, tmp_path):
    with pytest.raises(MtaVizError, match=r"run is of small with the sha256 .* open it with its own"):
        open_trace(file, write(tmp_path / "other", seed=1))
    half = load(model.source.path, dtype=torch.bfloat16)
    with pytest.raises(MtaVizError, match=r"computed in float32.*load it with dtype=torch\.float32"):
        open_trace(file, half)
    with pytest.raises(MtaVizError, match="came from no checkpoint"):
        save_trace(capture(HookedMTA(CONFIG), [1, 2]), tmp_path / "no")


@pytest.mark.parametrize("stages", [(), (Stage.RAW,), [stage for stage in Stage if not stage.is_second]])
@pytest.mark.parametrize("layers", [None, (1,)])
def test_the_size_is_known_before(trace, stages, layers):
    told, content = (
        trace_size(trace, stages=stages, layers=layers),
        trace_bytes(trace, stages=stages, layers=layers),
    )
    assert told < len(content) < told + 600 + 150 * 12


def test_layers_and_stages_choose(trace, tmp_path):
    run = files.read_run(
        save_trace(trace, tmp_path / "a", stages=[Stage.MIX, Stage.SOFTMAX_KQ], layers=[0, 1])
    )
    assert set(run.maps) == {(0, Stage.MIX), (1, Stage.MIX), (1, Stage.SOFTMAX_KQ)}
    with pytest.raises(PromptError, match="none of these layers computes hook_scores_kq"):
        save_trace(trace, tmp_path / "b", stages=[Stage.KQ], layers=[0])
    with pytest.raises(PromptError, match="no layer 2; the model has layers 0 to 1"):
        trace_size(trace, layers=[2])
    with pytest.raises(PromptError, match="no layer True"):
        save_trace(trace, tmp_path / "c", layers=[True])
    for name in ("nul\0", "n" * 300):
        with pytest.raises(MtaVizError, match="cannot be written"):
            save_trace(trace, tmp_path / name)


def test_nothing_is_overwritten_unasked_and_a_failed_write_leaves_nothing(trace, tmp_path, monkeypatch):
    path = tmp_path / "run"
    path.write_text("mine")
    with pytest.raises(MtaVizError, match="exists; choose another name"):
        save_trace(trace, path)
    monkeypatch.setattr(files, "save_file", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(MtaVizError, match="cannot be written"):
        save_trace(trace, path, force=True)
    assert path.read_text() == "mine" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(MtaVizError, match="more than"):
        monkeypatch.setattr(files, "MAX_BYTES", 1000)
        save_trace(trace, tmp_path / "other")


def test_a_file_too_large_or_no_file_is_refused(file, tmp_path, monkeypatch):
    with pytest.raises(
        MtaVizError, match=r"none\.safetensors cannot be opened as a saved run: it is missing"
    ):
        open_trace(tmp_path / "none.safetensors")
    monkeypatch.setattr(files, "MAX_BYTES", 100)
    with pytest.raises(MtaVizError, match=r"it has .* more than"):
        open_trace(file)


def test_foreign_files_are_refused_with_the_reason(tmp_path, model):
    path = tmp_path / "x"
    path.write_bytes(b"PK\x03\x04 a zip, perhaps")
    with pytest.raises(MtaVizError, match="no safetensors file"):
        open_trace(path)
    save_file({"tokens": torch.zeros(1)}, path)
    with pytest.raises(MtaVizError, match="does not say what run it is of"):
        open_trace(path)
    with pytest.raises(MtaVizError, match="does not say what run it is of"):
        open_trace(model.source.path / "model.safetensors")


def rewritten(file: Path, change) -> Path:
    """The same file with another description, whose digest is right."""
    run, tensors = files.read_run(file), load_file(file)
    data = json.loads(run.about.to_text())
    change(data, tensors)
    text = json.dumps(data)
    save_file(tensors, file, metadata={"mta_viz": text, "sha256": files._digest(text, tensors)})
    return file


CHANGES = {
    "format": (lambda d, t: d.update(format="mta_viz run 9"), "format is 'mta_viz run 9'"),
    "pieces": (lambda d, t: d["pieces"].pop(), "11 tokens and 12 spans"),
    "kinds": (
        lambda d, t: d.update(text=3, spans=[[0]], dtype="F8"),
        r"(?s)dtype is 'F8'.*text is 3.*spans.*missing",
    ),
    "letters": (lambda d, t: d.update(text="\ud800"), "is no JSON"),
    "span": (lambda d, t: d["spans"].__setitem__(0, [-5, 10**30]), r"spans\[0\] is no span"),
    "missing": (lambda d, t: d.pop("params"), "params"),
    "layers": (
        lambda d, t: d["params"]["model"].update(n_layers=3),
        "first residuals: F32 .3, 12, 16. instead",
    ),
    "many": (lambda d, t: d["params"]["model"].update(n_layers=9999), "9999 layers; at most 1000"),
    "heads": (lambda d, t: d["params"]["model"].update(n_heads=0), "its model cannot be"),
    "map": (lambda d, t: d["maps"].append([0, "kq"]), "list of maps"),
    "twice": (lambda d, t: d["maps"].append(d["maps"][0]), "list of maps"),
    "absent": (lambda d, t: d["maps"].append([0, "raw"]), "none instead of F32 .2, 12, 12."),
    "extra": (lambda d, t: t.update(more=torch.zeros(2)), r"first more: F32 \[2\] instead of none"),
    "half": (lambda d, t: t.update(residuals=t["residuals"].half()), "F16"),
    "vocabulary": (lambda d, t: t["tokens"].fill_(258), "not all in 0 to 257"),
    "future": (lambda d, t: t["blocks.1.attn.hook_pattern"][0, 3].fill_(0.5), "keys after their query"),
    "plan": (
        lambda d, t: d.update(interventions=[{"kind": "ablate_head", "layer": 7, "head": 0}]),
        "layer 7",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_description_that_does_not_fit_is_refused(file, name):
    change, said = CHANGES[name]
    with pytest.raises(MtaVizError, match=said) as error:
        open_trace(rewritten(file, change))
    assert str(error.value).startswith("run.safetensors cannot be opened as a saved run: ")


@pytest.fixture(scope="module")
def content(trace: Trace) -> bytes:
    return trace_bytes(trace, stages=[Stage.KQ])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bit_goes_unseen(content, tmp_path, data):
    (header,) = struct.unpack("<Q", content[:8])
    in_header = data.draw(st.integers(0, 8 + header - 1))
    place = data.draw(st.sampled_from([in_header, data.draw(st.integers(0, len(content) - 1))]))
    flipped = bytearray(content)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "flipped"
    path.write_bytes(flipped)
    with pytest.raises(MtaVizError, match="flipped cannot be opened as a saved run: "):
        open_trace(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_truncated_file_opens(content, tmp_path, data):
    path = tmp_path / "cut"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(MtaVizError, match="cut cannot be opened as a saved run: "):
        open_trace(path)

"""Files as other programs leave them: read with a note, or one line that says what it is and what to do."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoint_samples import lingua_tensors, problems_of, tiny_config, write_consolidated
from safetensors.torch import save_file

from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary

CONFIG = tiny_config()
PARAMS = params_from_config(CONFIG, "char", None)
Tensors = dict[str, torch.Tensor]


def renamed(rename: Callable[[str], str]) -> Tensors:
    return {rename(key): value for key, value in lingua_tensors(CONFIG).items()}


def in_safetensors(folder: Path, tensors: Tensors, name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(PARAMS))
    save_file({key: value.contiguous().clone() for key, value in tensors.items()}, folder / name)
    return folder


def in_torch(folder: Path, saved: object, name: str = "consolidated.pth") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(PARAMS))
    torch.save(saved, folder / name)
    return folder


WRITTEN = pytest.mark.parametrize(
    "write", [in_safetensors, lambda folder, tensors: in_torch(folder, {"model": tensors})]
)


def whole(folder: Path) -> tuple[str, ...]:
    """The notes of a folder that must hold the model of `lingua_tensors`."""
    checkpoint, wanted = read_checkpoint(folder), lingua_tensors(CONFIG)
    assert torch.equal(checkpoint.state_dict["embed.weight"], wanted["tok_embeddings.weight"])
    wanted_mixing = wanted["layers.1.attention.wpsm.weight"][None]
    assert torch.equal(checkpoint.state_dict["blocks.1.attn.head_pre"], wanted_mixing)
    assert read_summary(folder).notes == checkpoint.notes
    return checkpoint.notes


@pytest.mark.parametrize(
    "rename",
    [
        lambda key: f"_orig_mod.{key}",
        lambda key: f"module._orig_mod.{key}",
        lambda key: f"_fsdp_wrapped_module._orig_mod.module.{key}",
        lambda key: key.replace("layers.1.", "layers.1._checkpoint_wrapped_module._orig_mod."),
        lambda key: key.replace(".attention.", "._fsdp_wrapped_module.attention._orig_mod."),
        lambda key: f"model.{key}",
        lambda key: f"module.net.{key}",
    ],
)
@WRITTEN
def test_names_of_wrapped_models_are_read_without_the_wrappers(tmp_path: Path, rename, write) -> None:
    (note,) = whole(write(tmp_path, renamed(rename)))
    assert note.startswith("names are read without ")


def test_two_tensors_under_one_name_are_a_fault(tmp_path: Path) -> None:
    twice = lingua_tensors(CONFIG) | {"_orig_mod.norm.weight": torch.ones(8)}
    (problem,) = problems_of(in_safetensors(tmp_path, twice))
    assert "norm.weight and _orig_mod.norm.weight are both norm.weight" in problem.replace(
        "_orig_mod.norm.weight and norm.weight", "norm.weight and _orig_mod.norm.weight"
    )


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (lambda model: model, "its bare state dict is read as one"),
        (lambda model: {"state_dict": model, "epoch": 3}, 'its "state_dict" is read as one'),
        (lambda model: {"model_state_dict": model, "optimizer_state_dict": {}}, 'its "model_state_dict" is'),
        (lambda model: {"net": model, "optimizer": {"state": {}}, "rng": torch.zeros(2)}, 'its "net" is'),
        (lambda model: {"app": {"model": model, "optim": {"x": torch.zeros(3)}}}, 'its "app.model" is'),
    ],
)
def test_a_model_under_another_name_is_read_with_a_note(tmp_path: Path, saved, words: str) -> None:
    (note,) = whole(in_torch(tmp_path, saved(lingua_tensors(CONFIG))))
    assert words in note


def test_of_several_models_under_own_names_none_is_chosen(tmp_path: Path) -> None:
    model = lingua_tensors(CONFIG)
    (problem,) = problems_of(in_torch(tmp_path, {"net": model, "ema": model, "optimizer": {}}))
    assert 'holds tensors in net, ema, none of them "model"; save the one to open' in problem
    (problem,) = problems_of(in_torch(tmp_path / "none", {"model": {}}))
    assert 'has no "model" dict of tensors' in problem


HUGGING_FACE = {"model.embed_tokens.weight": (32, 8), "model.layers.0.self_attn.q_proj.weight": (8, 8)}
LORA = {f"base_model.model.layers.0.self_attn.q_proj.lora_{side}.weight": (2, 8) for side in "AB"}


def zeros(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    return {key: torch.zeros(shape) for key, shape in shapes.items()}


FOREIGN: dict[str, tuple[Tensors, str]] = {
    "hugging face": (
        zeros(HUGGING_FACE),
        "Hugging Face's names (model.embed_tokens.weight), not Lingua's",
    ),
    "lora": (zeros(LORA), "a LoRA adapter (base_model.model.layers.0.self_attn.q_proj.lora_A.weight)"),
    "lora beside": (
        lingua_tensors(CONFIG) | zeros({"layers.0.attention.wq.lora_A.weight": (2, 8)}),
        "hold a LoRA adapter (layers.0.attention.wq.lora_A.weight) beside the model; merge it",
    ),
    "ia3": (
        zeros({"base_model.model.layers.0.attention.wk.ia3_l": (8, 1)}),
        "an adapter of peft (base_model.model.layers.0.attention.wk.ia3_l)",
    ),
    "weight norm": (
        renamed(lambda key: key.replace("wq.weight", "wq.weight_v")),
        "computed from others (layers.0.attention.wq.weight_v, as by weight norm",
    ),
    "two models": (
        renamed(lambda key: f"model.{key}") | renamed(lambda key: f"ema.{key}"),
        "it holds 2 models (ema., model.); save",
    ),
    "gradients": (renamed(lambda key: f"{key}.grad"), "and none of the 32 tensors (tok_embeddings.weight"),
    "empty": (
        {key: value[:0] for key, value in lingua_tensors(CONFIG).items()},
        "its 33 tensors are empty: their values lie elsewhere, in pieces; write",
    ),
    "optimiser": (zeros({"optim.state.norm.weight.exp_avg": (8,)}), "an optimiser's state alone"),
    "flattened": (zeros({"_fsdp_wrapped_module._flat_param": (99,)}), "pieces that FSDP flattened"),
    "float8": (
        {key: value.to(torch.float8_e4m3fn) for key, value in lingua_tensors(CONFIG).items()},
        ": float8_e4m3fn), which is not read; save it in bf16",
    ),
    "int8": (
        {
            key: value.to(torch.int8) if value.ndim > 1 else value
            for key, value in lingua_tensors(CONFIG).items()
        },
        ": int8), which is not read",
    ),
    "gpt-2": (
        zeros({"h.0.attn.c_attn.weight": (8, 24)}),
        "GPT-2's or a relative's names (h.0.attn.c_attn.weight), whose architecture is not read; give",
    ),
    "gpt-neox": (zeros({"gpt_neox.embed_in.weight": (32, 8)}), "GPT-NeoX's names"),
    "nobody's": (zeros({"foo.weight": (8,)}), "none of its 1 tensors has a known name (foo.weight"),
    "experts": (
        lingua_tensors(CONFIG) | zeros({"layers.0.feed_forward.experts.0.w1.weight": (8, 8)}),
        "experts (layers.0.feed_forward.experts.0.w1.weight) in place of one MLP",
    ),
    "joined": (
        lingua_tensors(CONFIG) | zeros({"layers.0.attention.wqkv.weight": (24, 8)}),
        "projections joined in one matrix (layers.0.attention.wqkv.weight)",
    ),
    "torchtune": (
        zeros({"layers.0.attn.q_proj.weight": (8, 8), "layers.0.sa_norm.scale": (8,)}),
        "torchtune's",
    ),
    "integers": (
        {key: (9 * value).int() for key, value in lingua_tensors(CONFIG).items()},
        "tok_embeddings.weight and 32 more are int32; expected bf16, fp16 or fp32",
    ),
    "gptq": (
        lingua_tensors(CONFIG) | {"layers.0.attention.wq.qweight": torch.zeros(1, 8, dtype=torch.int32)},
        "quantised (layers.0.attention.wq.qweight)",
    ),
}


@pytest.mark.parametrize(("tensors", "words"), FOREIGN.values(), ids=FOREIGN)
@WRITTEN
def test_what_is_no_model_of_this_format_is_one_line(tmp_path: Path, tensors, words: str, write) -> None:
    (problem,) = problems_of(write(tmp_path, tensors))
    assert words in problem and ";" in problem
    (found,) = find_checkpoints([tmp_path]).found
    assert words in str(found.problem)


def test_a_tied_matrix_may_have_its_untied_name_and_scales_of_float8_may_lie_beside(tmp_path: Path) -> None:
    tensors = renamed(lambda key: key.replace("output.tied_module", "output"))
    scales = {"layers.0.attention.wq._extra_state": torch.empty(0, dtype=torch.uint8)}
    (note,) = whole(in_safetensors(tmp_path / "same", tensors | scales))
    assert note == "layers.0.attention.wq._extra_state is left out, since float8 is not computed in"
    (problem,) = problems_of(
        in_safetensors(tmp_path / "other", tensors | {"output.weight": torch.ones(32, 8)})
    )
    assert problem.startswith("output.weight differs from tok_embeddings.weight")


def scripted() -> torch.jit.ScriptModule:
    return torch.jit.script(torch.nn.Linear(2, 2))


def web_page(file: Path) -> None:
    file.write_text("<!DOCTYPE html><html>secret</html>")


def pointer(file: Path) -> None:
    file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "optimiser": (
        "consolidated.pth",
        lambda file: torch.save({"state": {}, "param_groups": [{"lr": 1}]}, file),
        "consolidated.pth holds an optimiser's state and no model; give the model's file",
    ),
    "script": (
        "consolidated.pth",
        lambda file: torch.jit.save(scripted(), file),
        "it is a TorchScript archive, a program with its weights; save the model's state_dict",
    ),
    "lfs": ("consolidated.pth", pointer, "is a git-LFS pointer, not the file itself; run `git lfs pull`"),
    "lfs safetensors": ("model.safetensors", pointer, "model.safetensors is a git-LFS pointer"),
    "lfs part": ("consolidated.00.pth", pointer, "it is a git-LFS pointer"),
    "link": ("model.safetensors", lambda file: file.symlink_to("gone"), "is a link to something that is not"),
    "link torch": ("consolidated.pth", lambda file: file.symlink_to("gone"), "is a link to something that"),
    "link loose": (
        "last.pt",
        lambda file: file.symlink_to("gone"),
        "is a link to something that is not there",
    ),
    "web page": (
        "model.safetensors",
        web_page,
        "model.safetensors is a web page or XML, no safeten",
    ),
    "web page torch": ("consolidated.pth", web_page, "it is a web page or XML; give what torch.save wrote"),
    "torch in safetensors": (
        "model.safetensors",
        lambda file: torch.save({}, file),
        "model.safetensors is a ZIP archive, as torch.save writes, no safetensors file; save it by",
    ),
    "pickle": (
        "consolidated.pth",
        lambda file: file.write_bytes(pickle.dumps({"model": {}})),
        "it is a pickle, but none of torch.save; give",
    ),
    "before gguf": (
        "model.bin",
        lambda file: file.write_bytes(b"tjgg\1\0\0\0"),
        "a file of GGML, from before",
    ),
    "no values": (
        "consolidated.pth",
        lambda file: torch.save(
            {"model": {key: value.to("meta") for key, value in lingua_tensors(CONFIG).items()}}, file
        ),
        "none of its 33 tensors can be used: tok_embeddings.weight in consolidated.pth has no values",
    ),
    "link metadata": (".metadata", lambda file: file.symlink_to("gone"), ".metadata is a link to something"),
    "link index": (
        "model.safetensors.index.json",
        lambda file: file.symlink_to("gone"),
        "model.safetensors.index.json is a link to something",
    ),
    "array": (
        "consolidated.pth",
        lambda file: torch.save(torch.ones(3), file),
        "holds a single tensor; expected",
    ),
}


@pytest.mark.parametrize(("name", "make", "words"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_something_else_is_named(tmp_path: Path, name: str, make, words: str) -> None:
    (tmp_path / "params.json").write_text(json.dumps(PARAMS))
    make(tmp_path / name)
    (problem,) = problems_of(tmp_path)
    assert words in problem and "secret" not in problem and "\n" not in problem
    (found,) = find_checkpoints([tmp_path]).found
    assert words in str(found.problem)


def test_a_dangling_link_gives_way_to_a_file(tmp_path: Path) -> None:
    (in_torch(tmp_path, {"model": lingua_tensors(CONFIG)}) / "model.safetensors").symlink_to("gone")
    assert whole(tmp_path) == ()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a.pt", "b.pt"], "a.pt (one of several: give its path), b.pt (one of several: give its path)"),
        (["model.onnx"], "model.onnx (ONNX's format: save the model again with safetensors)"),
        (["model.pt2"], "model.pt2 (torch.export's format: save the model again with safetensors)"),
        (["model.ckpt.index", "checkpoint"], "model.ckpt.index (TensorFlow's format"),
        (
            ["model.safetensors.part"],
            "model.safetensors.part (a download that is not finished: fetch it again)",
        ),
        (
            ["model-1-of-2.pt", "model-2-of-2.pt"],
            "model-1-of-2.pt (one of several shards: save the model again",
        ),
        (
            ["zero_pp_rank_0_mp_rank_00_optim_states.pt"],
            "(what a run leaves beside its weights, by its name)",
        ),
        (["x.gguf"], "x.gguf (give its path)"),
        (["large.dat"], "large.dat (of no kind that is read, by its name: save"),
        (["model.safetensors.dvc"], "model.safetensors.dvc (where DVC finds a file: run `dvc pull`)"),
        (["rank0.pt", "rank1.pt"], "rank0.pt (one of several shards: save the model again"),
        (["weights.zip", "optimizer.pt"], "optimizer.pt (what a run leaves beside its weights, by its name)"),
        (["notes.txt"], "it holds params.json but no weights. Looked for"),
    ],
)
def test_files_that_are_not_read_are_named_with_why(tmp_path: Path, names: list[str], words: str) -> None:
    (tmp_path / "params.json").write_text(json.dumps(PARAMS))
    for name in names:
        (tmp_path / name).write_bytes(b"x" if name != "large.dat" else bytes(2**20))
    (problem,) = problems_of(tmp_path)
    assert words in problem
    assert words in str(find_checkpoints([tmp_path]).found[0].problem)
    assert ("no weights." in problem) == (names == ["notes.txt"])


def test_endings_in_capitals_are_read_and_hidden_files_are_not(tmp_path: Path) -> None:
    in_safetensors(tmp_path, lingua_tensors(CONFIG), "MODEL.SAFETENSORS")
    (tmp_path / "._MODEL.SAFETENSORS").write_bytes(b"\0\5\x16\7")  # as macOS leaves on other disks
    assert whole(tmp_path) == whole(tmp_path / "MODEL.SAFETENSORS") == ()


def test_checkpoints_below_are_named(tmp_path: Path) -> None:
    in_safetensors(tmp_path / "snapshots" / "abc", lingua_tensors(CONFIG))
    (problem,) = problems_of(tmp_path)
    assert problem == "it is no checkpoint; give the path of what is in it: snapshots/abc"


def test_weights_below_that_lack_their_settings_are_named(tmp_path: Path) -> None:
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        in_torch(tmp_path / "global_step5", {"module": lingua_tensors(CONFIG)}, name)
    (tmp_path / "global_step5" / "params.json").rename(tmp_path / "params.json")
    (problem,) = problems_of(tmp_path)
    assert problem.endswith(
        "no weights; give the path of what is in it: global_step5/mp_rank_00_model_states.pt"
    )


def test_a_folder_of_attention_maps_is_named(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    for name in ("0/attn_dump.00.0", "kernel_weights.pt"):
        (tmp_path / name).write_bytes(b"x")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("it is a dump of attention maps, without a model: open_trace(folder)")


def test_a_link_to_nothing_and_weights_under_another_name_beside_config_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "x.gguf").symlink_to("gone")
    (problem,) = problems_of(tmp_path)
    assert (
        problem
        == "it holds config.json but no weights that are read: x.gguf (a link to something that is not there)"
    )
    (tmp_path / "x.gguf").unlink()
    save_file(zeros(HUGGING_FACE), tmp_path / "weights.safetensors")
    (problem,) = problems_of(tmp_path)
    assert "weights.safetensors (beside config.json it is to be called model.safetensors)" in problem


def test_a_folder_of_an_adapter_of_peft_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    save_file(zeros(LORA), tmp_path / "adapter_model.safetensors")
    assert (
        "it is an adapter of peft (LoRA and the like), no model by itself; merge it"
        in problems_of(tmp_path)[0]
    )


WIDE = tiny_config(d_head=4)
FOUR = 1e4 ** (-torch.arange(2, dtype=torch.float64) / 2)  # what its two pairs turn by


def angles(turns: torch.Tensor = FOUR) -> torch.Tensor:
    return torch.arange(64, dtype=torch.float64)[:, None] * turns


def matrices(turns: torch.Tensor = FOUR) -> torch.Tensor:
    cos, sin = angles(turns).cos(), angles(turns).sin()
    return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2).float()


def with_tables(folder: Path, tables: Tensors) -> Path:
    return write_consolidated(folder, params_from_config(WIDE, "char", None), lingua_tensors(WIDE) | tables)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("rope.freqs", FOUR.float()),
        ("rope.freqs", FOUR.bfloat16()),
        ("rope_embeddings.freqs_cis", matrices()),
        ("freqs_cis", torch.polar(torch.ones(64, 2, dtype=torch.float64), angles()).cfloat()),
        ("layers.0.attention.rotary_emb.inv_freq", FOUR.float()),
        ("layers.1.attention.rotary_emb.cos_cached", angles().cos().repeat(1, 2)[None, None].float()),
        ("layers.1.attention.rotary_emb.sin_cached", angles().sin().repeat(1, 2)[None, None].float()),
    ],
)
def test_a_rotary_table_of_the_settings_is_left_out_with_a_note(tmp_path: Path, name: str, table) -> None:
    checkpoint = read_checkpoint(with_tables(tmp_path, {name: table}))
    (note,) = (note for note in checkpoint.notes if "mixes" not in note)
    assert note.startswith(f"{name} is left out, since the settings give rotary angles")


@pytest.mark.parametrize(
    ("name", "table", "words"),
    [
        (
            "rope.freqs",
            FOUR.pow(1.5).float(),
            "pair 1 turns by 0.001 a position, expected 0.01 (the table is of theta 1,",
        ),
        ("rope.freqs", torch.ones(3), "3 frequencies, of heads 6 wide; its heads are 4 wide"),
        ("rope_embeddings.freqs_cis", matrices(FOUR * 1.01), "the cosine of pair 0 at position "),
        ("rope_embeddings.freqs_cis", torch.ones(64, 5), "its shape is [64, 5]"),
        (
            "layers.0.attention.rotary_emb.sin_cached",
            angles().cos().float(),
            "the sine of pair 0 at position 0 is 1, expected 0",
        ),
    ],
)
def test_another_rotary_table_is_refused_with_what_differs(
    tmp_path: Path, name: str, table, words: str
) -> None:
    (problem,) = problems_of(with_tables(tmp_path, {name: table}))
    assert problem.startswith(f"{name} holds other rotary angles than params.json gives: {words}")
    assert "remove" not in problem


SEEN = torch.ones(8, 8, dtype=torch.bool).tril()
MASKS = {
    "bytes": ("layers.0.attention.bias", SEEN.byte()[None, None]),  # one that could be taken for quantised
    "hidden": ("layers.1.attention.causal_mask", ~SEEN),
    "float": ("causal_mask", torch.zeros(8, 8).masked_fill(~SEEN, -torch.inf)),
    "half": ("mask", torch.zeros(1, 1, 8, 8).masked_fill(~SEEN, -65504.0).half()),
    "number": ("layers.0.attention.masked_bias", torch.tensor(-1e4)),
}


def test_tables_of_every_layer_that_differ_alike_are_one_line(tmp_path: Path) -> None:
    tables = {f"layers.{layer}.attention.rotary_emb.inv_freq": FOUR**2 for layer in range(2)}
    (problem,) = problems_of(with_tables(tmp_path, tables))
    assert "layers.0.attention.rotary_emb.inv_freq and 1 more hold other rotary angles" in problem


@pytest.mark.parametrize("kind", MASKS)
def test_a_causal_mask_is_left_out_with_a_note(tmp_path: Path, kind: str) -> None:
    name, mask = MASKS[kind]
    checkpoint = read_checkpoint(with_tables(tmp_path, {name: mask}))
    (note,) = (note for note in checkpoint.notes if "mixes" not in note)
    assert note == f"{name} is left out, since attention is causal; compared when the model is read"


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (SEEN & ~SEEN.tril(-3), "it hides key 0 from query 3"),
        (SEEN | (torch.arange(8) < 2), "it shows key 1 to query 0"),
        (torch.zeros(8, 8).masked_fill(~SEEN, -2.5), "of later keys it holds -2.5, of others 0"),
        (torch.ones(2, 8, 8), "its shape is [2, 8, 8], expected [n, n]"),
    ],
)
def test_another_mask_is_refused_with_what_differs(tmp_path: Path, mask: torch.Tensor, words: str) -> None:
    (problem,) = problems_of(with_tables(tmp_path, {"layers.0.attention.mask": mask}))
    assert problem == f"layers.0.attention.mask is no causal mask, which alone is supported: {words}"

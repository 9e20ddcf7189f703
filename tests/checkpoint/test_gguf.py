"""GGUF files: the same model as `transformers` makes of the dequantised values, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

import mta_viz
from mta_viz.checkpoint.locate import locate, sha256
from mta_viz.checkpoint.native import write_native
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint, read_summary
from mta_viz.config import RopeScaling
from mta_viz.errors import CheckpointError
from mta_viz.model.transformer import build_model
from mta_viz.run.scoring import write_inserted
from mta_viz.tokenizers.loading import gguf_tokenizer_file
from tests.gguf_files import random_arrays, sizes, transformers_logits, write_gguf

IDS = [5, 17, 3, 299, 41, 41, 8, 120, 2, 77]
LLAMA = "llama"


def logits(file: Path, ids: list[int] = IDS, dtype: torch.dtype | None = None) -> torch.Tensor:
    with torch.no_grad():
        return build_model(read_checkpoint(file), dtype=dtype)(torch.tensor([ids]))[0]


def small(folder: Path, **options: Any) -> Path:
    file = folder / "small.gguf"
    write_gguf(file, LLAMA, random_arrays(sizes()), sizes(), **options)
    return file


def problem_of(file: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(file)
    return str(caught.value)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.BF16, Kind.Q8_0, Kind.Q4_1, Kind.Q5_0])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_logits_are_those_of_transformers(tmp_path: Path, architecture: str, kind: Kind) -> None:
    s = sizes()
    biases = "attn_q attn_k attn_v" if architecture == "qwen2" else ""
    arrays = random_arrays(s, tied=architecture == "llama", biases=biases)
    seen = write_gguf(tmp_path / "m.gguf", architecture, arrays, s, kind=kind)
    wanted = transformers_logits(architecture, seen, s, IDS)
    assert torch.allclose(logits(tmp_path / "m.gguf", dtype=torch.float32), wanted, atol=1e-4)


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K])
def test_types_the_library_only_reads(tmp_path: Path, kind: Kind) -> None:
    s = sizes(d_model=256, d_mlp=256)
    seen = write_gguf(tmp_path / "m.gguf", LLAMA, random_arrays(s), s, kind=kind)
    assert torch.allclose(logits(tmp_path / "m.gguf"), transformers_logits(LLAMA, seen, s, IDS), atol=1e-4)


def test_biases_of_every_projection(tmp_path: Path) -> None:
    s, names = sizes(), "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down"
    seen = write_gguf(tmp_path / "m.gguf", LLAMA, random_arrays(s, biases=names), s)
    wanted = transformers_logits(LLAMA, seen, s, IDS, attention_bias=True, mlp_bias=True)
    assert torch.allclose(logits(tmp_path / "m.gguf"), wanted, atol=1e-4)


def test_a_half_precision_file_stays_half_precision(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays := random_arrays(sizes()), sizes(), kind=Kind.F16)
    checkpoint = read_checkpoint(tmp_path / "m.gguf")
    embedding = checkpoint.state_dict["embed.weight"]
    assert (embedding.dtype, checkpoint.source.dtype) == (torch.float16, "float16")
    assert np.array_equal(embedding.numpy(), arrays["token_embd.weight"].astype(np.float16))


def test_what_a_quantised_file_holds_is_told(tmp_path: Path) -> None:
    summary = read_summary(small(tmp_path, kind=Kind.Q4_1))
    assert summary.notes == (
        "the file holds Q4_1 (15 tensors), F32 (5 tensors); dequantised to float32 on reading",
    )
    assert (summary.dtype, summary.format, summary.tokenizer_name) == ("float32", "gguf", "gguf")


# Llama 3.1 at d 16 and theta 10000: pairs that turn once in more than 8,192 tokens are 8 times slower.
RULE = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_theta": 10000.0,
}  # fmt: skip


def test_llama_3_factors_are_recognised(tmp_path: Path) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    def frequencies(rope: dict[str, Any]) -> np.ndarray:
        config = LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters=rope)
        return LlamaRotaryEmbedding(config).inv_freq.numpy()

    s, plain = sizes(heads=2, kv_heads=1), {"rope_type": "default", "rope_theta": 10000.0}
    factors = frequencies(plain) / frequencies(RULE)
    assert factors.min() == 1 and factors.max() == 8 and any((factors > 1) & (factors < 8))  # all three cases
    arrays = random_arrays(s) | {"rope_freqs.weight": factors.astype(np.float32)}
    seen = write_gguf(tmp_path / "m.gguf", LLAMA, arrays, s)
    assert read_summary(tmp_path / "m.gguf").config.rope_scaling == RopeScaling(8.0, 1.0, 4.0, 8192)
    del seen["rope_freqs.weight"]
    wanted = transformers_logits(LLAMA, seen, s, IDS, rope_parameters=RULE)
    assert torch.allclose(logits(tmp_path / "m.gguf"), wanted, atol=1e-4)
    arrays["rope_freqs.weight"] = factors.astype(np.float32) * np.float32(1.01)
    write_gguf(tmp_path / "other.gguf", LLAMA, arrays, s)
    assert "rope_freqs.weight is not what Llama 3's rule gives" in problem_of(tmp_path / "other.gguf")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count is 8; expected 0: a mixture of experts"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type is \"yarn\"; expected 'none'"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count is 8; expected 16"),
        ({"llama.attention.sliding_window": 64}, "windowed attention is not supported"),
        ({"llama.logit_scale": 2.0}, "llama.logit_scale (2.0) is not a field this program knows"),
        ({"split.count": 3}, "it is one of 3 parts of a model; join them into one file"),
        ({"general.type": "adapter"}, "it holds 'adapter', no model"),
    ],
)
def test_what_would_change_the_computation_is_refused(
    tmp_path: Path, extra: dict[str, Any], message: str
) -> None:
    assert message in problem_of(small(tmp_path, extra=extra))


def test_what_changes_nothing_is_passed_over(tmp_path: Path) -> None:
    extra = {"llama.vocab_size": 300, "llama.expert_count": 0, "llama.rope.dimension_count": 16}
    assert read_summary(small(tmp_path, extra={**extra, "general.name": "x"})).config.d_head == 16


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "gemma2", random_arrays(sizes()), sizes())
    wanted = "its architecture is 'gemma2', which has Gemma's norms and GELU, soft caps of scores and logits"
    assert wanted in problem_of(tmp_path / "m.gguf")
    write_gguf(tmp_path / "n.gguf", "clip", random_arrays(sizes()), sizes())
    assert "its architecture is 'clip'; supported are llama" in problem_of(tmp_path / "n.gguf")


def test_a_fault_of_a_size_is_told_once(tmp_path: Path) -> None:
    problem = problem_of(small(tmp_path, extra={"llama.block_count": 2**31}))
    assert problem.endswith("llama.block_count is 2147483648; expected a whole number from 1 to 10000")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [0.0, float("inf"), float("nan")])
def test_factors_that_are_none_are_refused_without_noise(tmp_path: Path, factor: float) -> None:
    arrays = random_arrays(sizes()) | {"rope_freqs.weight": np.full(8, factor, np.float32)}
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays, sizes())
    assert "rope_freqs.weight is not what Llama 3's rule gives" in problem_of(tmp_path / "m.gguf")


def test_a_window_as_long_as_the_context_is_told(tmp_path: Path) -> None:
    (note,) = read_summary(small(tmp_path, extra={"llama.attention.sliding_window": 128})).notes
    assert note.startswith("its window of 128 tokens is not computed")


def test_missing_and_unknown_tensors_are_all_told(tmp_path: Path) -> None:
    arrays = random_arrays(sizes())
    arrays["blk.1.attn_q_norm.weight"] = arrays.pop("blk.1.attn_norm.weight")
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays, sizes())
    message = problem_of(tmp_path / "m.gguf")
    assert "blk.1.attn_norm.weight is missing; expected a tensor of shape [64]" in message
    assert "blk.1.attn_q_norm.weight [64] is a tensor the model" in message


def test_a_folder_with_one_file_is_that_model_with_two_one_is_named(tmp_path: Path) -> None:
    file = small(tmp_path)
    assert locate(tmp_path).folder == locate(file).folder == file
    assert sha256(tmp_path) == sha256(file)
    assert [found.path for found in find_checkpoints([tmp_path]).found] == [file]
    file.with_name("other.gguf").write_bytes(file.read_bytes())
    with pytest.raises(CheckpointError, match=r"other\.gguf \(give its path\), small"):
        locate(tmp_path)
    names = [found.name for found in find_checkpoints([tmp_path]).found]
    assert names == ["other.gguf", "small.gguf"]


@pytest.mark.parametrize("pre", ["smollm", "tekken"])
def test_written_as_a_folder_it_keeps_its_tokenizer(tmp_path: Path, pre: str) -> None:
    """Of a vocabulary that makes none, the one that was given."""
    given = tmp_path / "tokenizer.json"
    (tmp_path / "other").mkdir()
    given.write_bytes(gguf_tokenizer_file(small(tmp_path / "other"))[2])
    checkpoint = read_checkpoint(small(tmp_path, pre=pre), tokenizer=given if pre == "tekken" else None)
    assert checkpoint.tokenizer is not None
    name, file = checkpoint.tokenizer_name, tmp_path / str(checkpoint.tokenizer_path)
    options = {"tokenizer_name": name, "tokenizer_path": file, "dtype": None}
    write_native(tmp_path / "out", checkpoint.config, checkpoint.state_dict, **options)
    written = read_checkpoint(tmp_path / "out").tokenizer
    assert written is not None and (written.bos_id, written.eos_id) == (None, 1)
    assert written.encode("the 12<|end|>").ids == checkpoint.tokenizer.encode("the 12<|end|>").ids


def test_a_file_can_be_a_root_of_discovery(tmp_path: Path) -> None:
    found = find_checkpoints([small(tmp_path)])
    assert [(model.name, model.problem) for model in found.found] == [("small.gguf", None)]
    assert not found.skipped


def test_a_file_in_a_folder_of_models_has_its_own_name(tmp_path: Path) -> None:
    """That an adapter gives its base, and by which it is shown behind it."""
    file = small(tmp_path)
    base = mta_viz.load(file)
    write_inserted(tmp_path / "a.safetensors", base, mta_viz.insert_mta(base, [1]))
    before = [model.name for model in find_checkpoints([tmp_path]).found]
    assert before == ["small.gguf", "a.safetensors"]
    shutil.copy(file, tmp_path / "other.gguf")
    assert sorted(model.name for model in find_checkpoints([tmp_path]).found) == sorted(
        [*before, "other.gguf"]
    )

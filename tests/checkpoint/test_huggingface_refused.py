"""What a Hugging Face folder may not say: each refused by name, with what differs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_samples import LLAMA3, change, saved

from mta_viz.checkpoint.reading import find_checkpoints, read_summary
from mta_viz.errors import CheckpointError


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "llama")


def refused(llama: Path, tmp_path: Path, **fields: Any) -> tuple[str, ...]:
    """The problems of the model's folder with other settings."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((llama / name).read_bytes())
    with pytest.raises(CheckpointError) as caught:
        read_summary(change(tmp_path, **fields))
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GemmaForCausalLM", "it has norms that multiply by 1 + weight, scaled embeddings, GELU"),
        ("GPT2LMHeadModel", "it has LayerNorm in place of RMSNorm, learned positions"),
        ("Qwen3ForCausalLM", "it has norms of queries and keys"),
        ("MixtralForCausalLM", "it has experts chosen token by token"),
        ("Phi3ForCausalLM", "it has projections joined in one matrix"),
        ("Gemma3ForConditionalGeneration", "it has Gemma's norms and GELU, norms of queries and keys"),
        ("LlamaForSequenceClassification", "it computes something else or is not known here"),
    ],
)
def test_an_architecture_is_refused_by_name(llama: Path, tmp_path: Path, name: str, words: str) -> None:
    (problem,) = refused(llama, tmp_path, architectures=[name])
    assert name in problem and words in problem
    assert problem.endswith("supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM")
    (found,) = find_checkpoints([tmp_path]).found
    assert name in str(found.problem)


@pytest.mark.parametrize("named", [["LlamaForCausalLM"], {}, 1, None])
def test_an_architecture_that_is_no_name_is_refused(llama: Path, tmp_path: Path, named: object) -> None:
    (problem,) = refused(llama, tmp_path, architectures=[named])
    assert "is not supported: it computes something else or is not known here" in problem


@pytest.mark.parametrize("listed", [..., None, [], ["LlamaForCausalLM"] * 2, "LlamaForCausalLM"])
def test_settings_that_name_no_architecture_are_none(llama: Path, tmp_path: Path, listed: object) -> None:
    (problem,) = refused(llama, tmp_path, architectures=listed)
    assert "expected Hugging Face's object of settings with one name in `architectures`" in problem


QWEN2: dict[str, Any] = {"architectures": ["Qwen2ForCausalLM"]}
MISTRAL: dict[str, Any] = {"architectures": ["MistralForCausalLM"]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": ...}, "config.hidden_size is missing; expected a whole number from 1 to"),
        ({"num_attention_heads": "4"}, 'config.num_attention_heads is "4"; expected a whole number'),
        ({"num_key_value_heads": 3}, "config.num_key_value_heads is 3; expected a divisor of num_att"),
        ({"num_attention_heads": 5, "head_dim": None}, "config.num_attention_heads is 5; expected a div"),
        ({"head_dim": 7}, "config.head_dim is 7; expected an even number"),
        ({"hidden_act": "gelu"}, 'config.hidden_act is "gelu"; expected "silu"'),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, 'rope_type is "linear"; expected "def'),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope_type is "dynamic"; expected "default"'),
        ({"rope_scaling": {"rope_type": "yarn"}}, 'config.rope_scaling.rope_type is "yarn"'),
        ({"rope_scaling": LLAMA3 | {"mscale": 1}}, "config.rope_scaling.mscale (1) is not a field"),
        ({"rope_scaling": LLAMA3 | {"factor": ...}}, "config.rope_scaling.factor is missing"),
        ({"partial_rotary_factor": 0.5}, "config.partial_rotary_factor is 0.5; expected 1"),
        ({"rope_interleaved": True}, "config.rope_interleaved is true; expected false"),
        ({"attn_logit_softcapping": 50.0}, "config.attn_logit_softcapping (50.0) is not a field"),
        (
            {"quantization_config": {"bits": 4}},
            "config.quantization_config: its weights are quantised (null)",
        ),
        ({"quantization_config": {"quant_method": "awq"}}, 'its weights are quantised ("awq"), which is not'),
        ({"auto_map": {"AutoModel": "x.Y"}}, "config.auto_map"),
        (MISTRAL | {"sliding_window": 64}, "config.sliding_window is 64, shorter than max_position_embed"),
        (
            MISTRAL | {"sliding_window": 64, "use_sliding_window": False},
            "config.sliding_window is 64, shorter",
        ),
        (MISTRAL | {"max_position_embeddings": 8192}, "config.sliding_window is 4096, shorter than"),
        (MISTRAL | {"attention_bias": True}, "config.attention_bias is true; expected false"),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": 64}, "config.sliding_window is 64, shorter"),
        (QWEN2 | {"layer_types": ["linear_attention"]}, 'config.layer_types has "linear_attention"'),
        ({"num_hidden_layers": 3}, "every tensor of layer 2 is missing; config.num_hidden_layers is 3"),
        ({"tie_word_embeddings": True, "vocab_size": 61}, "lm_head.weight has shape [60, 24]; expected [61,"),
        ({"attention_bias": True}, "model.layers.0.self_attn.q_proj.bias is missing; expected a tensor"),
        (QWEN2, "model.layers.1.self_attn.v_proj.bias is missing; expected a tensor of shape [12]"),
    ],
    ids=str,
)
def test_a_setting_is_refused_by_name(llama: Path, tmp_path: Path, fields: dict, words: str) -> None:
    if isinstance(scaling := fields.get("rope_scaling"), dict):
        fields = fields | {"rope_scaling": {k: v for k, v in scaling.items() if v is not ...}}
    assert any(words in problem for problem in refused(llama, tmp_path, **fields))


def test_a_size_out_of_range_is_told_once(llama: Path, tmp_path: Path) -> None:
    said = [
        problem for problem in refused(llama, tmp_path, num_hidden_layers=10**9) if "num_hidden" in problem
    ]
    assert said == ["config.num_hidden_layers is 1000000000; expected a whole number from 1 to 10000"]


def test_all_faults_are_told_at_once(llama: Path, tmp_path: Path) -> None:
    fields = {"hidden_act": "gelu", "head_dim": 7, "logit_scale": 2, "sliding_window": 3}
    problems = refused(llama, tmp_path, **fields)
    assert all(any(name in problem for problem in problems) for name in fields)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (MISTRAL | {"sliding_window": 128}, True),
        (MISTRAL | {"sliding_window": None}, False),
        ({}, False),
        (MISTRAL, True),  # its class takes 4,096 for an absent one
    ],
)
def test_a_window_that_the_context_does_not_reach_is_told(
    llama: Path, tmp_path: Path, fields: dict, told: bool
) -> None:
    """`transformers` hides what lies beyond it from a prompt that is longer than the model was trained on."""
    (tmp_path / "model.safetensors").symlink_to(llama / "model.safetensors")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    notes = read_summary(change(tmp_path, **fields)).notes
    assert [note.partition(" tokens")[2] for note in notes] == [
        " is not computed: a prompt that is longer is attended to whole"
    ] * told


def test_fields_that_change_nothing_are_passed_over(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(llama / "model.safetensors")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    more = {"use_cache": False, "eos_token_id": [1, 2], "pretraining_tp": 2, "rope_interleaved": False}
    assert read_summary(change(tmp_path, **more)).config == read_summary(llama).config
    change(tmp_path, num_key_value_heads=None)
    with pytest.raises(CheckpointError, match=r"k_proj.weight has shape \[12, 24\]; expected \[24, 24\]"):
        read_summary(tmp_path)


def test_pickles_are_not_read(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"a pickle \(pytorch_model.bin\).*save the model again with"):
        read_summary(tmp_path)

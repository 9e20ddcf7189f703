"""Tiny GGUF files with random weights, written by the `gguf` library; their models in `transformers`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from tokenizers.pre_tokenizers import ByteLevel

SIZES = {"d_model": 64, "layers": 2, "heads": 4, "kv_heads": 2, "d_mlp": 96, "vocab": 300, "n_ctx": 128}
# gguf -> transformers, of a layer; queries and keys are turned besides
NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
BYTES = sorted(ByteLevel.alphabet())  # 256 symbols
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "1 2", "12 3", "Ù ħ", "e f", "d ef"]
Arrays = Mapping[str, np.ndarray]


def sizes(**changes: int) -> dict[str, int]:
    return {**SIZES, **changes}


def random_arrays(s: Mapping[str, int], seed: int = 0, *, tied: bool = True, biases: str = "") -> dict:
    """Values by GGUF name; `biases`: endings such as `q k v` of projections that have one."""
    rng = np.random.default_rng(seed)
    d, kv = s["d_model"], s["d_model"] // s["heads"] * s["kv_heads"]
    block = {
        "attn_norm": (d,), "ffn_norm": (d,), "attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d),
        "attn_output": (d, d), "ffn_gate": (s["d_mlp"], d), "ffn_up": (s["d_mlp"], d),
        "ffn_down": (d, s["d_mlp"]),
    }  # fmt: skip
    shapes = {"token_embd.weight": (s["vocab"], d), "output_norm.weight": (d,)}
    shapes |= {} if tied else {"output.weight": (s["vocab"], d)}
    for layer in range(s["layers"]):
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
        shapes |= {f"blk.{layer}.{name}.bias": block[name][:1] for name in biases.split()}
    values = {name: 0.3 * rng.standard_normal(shape) for name, shape in shapes.items()}
    return {n: (v + 1 if "norm" in n else v).astype(np.float32) for n, v in values.items()}


def packed(values: np.ndarray, kind: GGMLQuantizationType, seed: int = 0) -> np.ndarray:
    """Bytes of a type; of one that the library cannot write, random ones with small scales."""
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        rng = np.random.default_rng(seed)
        blocks = rng.integers(0, 256, (values.size // block, n_bytes), dtype=np.uint8)
        at = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q6_K": (208,), "Q3_K": (108,)}[kind.name]
        for place in at:
            blocks[:, place : place + 2] = np.float16([1e-3]).view(np.uint8)
        return blocks.reshape(*values.shape[:-1], -1)


def tokens_of(n: int) -> list[str]:
    """Two control tokens, all bytes, what the merges make, `zq`, which no merge makes, and fillers."""
    made = [merge.replace(" ", "") for merge in MERGES]
    known = ["<|start|>", "<|end|>", *BYTES, *made, "zq"]
    return known + [f"[PAD{i}]" for i in range(n - len(known))]


def write_gguf(
    path: Path,
    architecture: str,
    arrays: Arrays,
    s: Mapping[str, int],
    *,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    pre: str = "smollm",
    merges: Sequence[str] = MERGES,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Write the file; matrices in `kind`, the rest float32. The values that a reader should see, by name."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(s["layers"])
    writer.add_context_length(s["n_ctx"])
    writer.add_embedding_length(s["d_model"])
    writer.add_feed_forward_length(s["d_mlp"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["kv_heads"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    add_vocabulary(writer, s["vocab"], pre, merges)
    for key, value in (extra or {}).items():
        add = {
            str: writer.add_string,
            float: writer.add_float32,
            int: writer.add_uint32,
            bool: writer.add_bool,
        }
        writer.add_array(key, value) if isinstance(value, list) else add[type(value)](key, value)
    seen = {}
    for name, values in arrays.items():
        own = kind if values.ndim == 2 else GGMLQuantizationType.F32
        data = packed(values, own)
        writer.add_tensor(name, data, raw_dtype=own)
        seen[name] = gguf.quants.dequantize(data, own).reshape(values.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return seen


def add_vocabulary(writer: GGUFWriter, n: int, pre: str, merges: Sequence[str]) -> None:
    tokens = tokens_of(n)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (n - 2))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)


def half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows in pairs (2i, 2i + 1) of each head as `transformers` has them: (i, i + d/2)."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def transformers_logits(
    architecture: str, arrays: Arrays, s: Mapping[str, int], ids: list[int], **changes: Any
) -> torch.Tensor:
    """[position, vocab] of the same model in `transformers`, float32."""
    import transformers

    names = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "qwen2": ("Qwen2Config", "Qwen2ForCausalLM")}
    config_class, model_class = (getattr(transformers, name) for name in names[architecture])
    config = config_class(
        hidden_size=s["d_model"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"], intermediate_size=s["d_mlp"], vocab_size=s["vocab"],
        max_position_embeddings=s["n_ctx"], rms_norm_eps=1e-5, attn_implementation="eager",
        tie_word_embeddings="output.weight" not in arrays, **changes,
    )  # fmt: skip
    model = model_class(config).eval()
    state = {
        "model.embed_tokens.weight": arrays["token_embd.weight"],
        "model.norm.weight": arrays["output_norm.weight"],
    }
    state["lm_head.weight"] = arrays.get("output.weight", arrays["token_embd.weight"])
    for name, values in arrays.items():
        if name.startswith("blk."):
            _, layer, part, end = name.split(".")
            heads = {"attn_q": s["heads"], "attn_k": s["kv_heads"]}.get(part)
            turned = half_split(values, heads) if heads and architecture == "llama" else values
            state[f"model.layers.{layer}.{NAMES[part]}.{end}"] = turned
    loaded = model.load_state_dict(
        {name: torch.tensor(values) for name, values in state.items()}, strict=False
    )
    assert not loaded.unexpected_keys and not loaded.missing_keys, loaded
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]

"""Tiny random models of Hugging Face's classes, saved as their library saves them."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

SIZES: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 60, "max_position_embeddings": 128,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}


def library_model(kind: str = "Llama", seed: int = 0, **settings: Any) -> Any:
    """`kind`ForCausalLM with weights far enough from 0 that everything in it matters."""
    config = getattr(transformers, f"{kind}Config")(**SIZES | settings)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    generator = torch.Generator().manual_seed(seed)
    for name, values in model.named_parameters():
        noise = torch.randn(values.shape, generator=generator)
        values.data = 1 + 0.3 * noise if "norm" in name else 0.4 * noise
    return model.eval()


def saved(folder: Path, kind: str = "Llama", *, shard: str = "5GB", seed: int = 0, **settings: Any) -> Path:
    """A folder with such a model."""
    library_model(kind, seed, **settings).save_pretrained(folder, max_shard_size=shard)
    return folder


def change(folder: Path, **fields: Any) -> Path:
    """Other fields in config.json; `...` takes one out."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))
    return folder

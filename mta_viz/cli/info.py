"""`info PATH`: what a checkpoint is, from its params.json alone; no weights are read."""

from argparse import Namespace
from typing import Any

from mta_viz.checkpoint.reading import read_summary
from mta_viz.checkpoint.types import parameter_count
from mta_viz.cli.output import note
from mta_viz.config import ModelConfig
from mta_viz.model.stages import layer_stages

KERNELS = ("pre", "post", "head_pre", "head_post")


def run(arguments: Namespace) -> dict[str, Any]:
    """The checkpoint's configuration, parameter count and each layer's stages and kernels."""
    summary = read_summary(arguments.path, vocab_size=arguments.vocab_size)
    for text in summary.notes:
        note(text)
    config = summary.config
    return {
        "variant": config.variant,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "d_model": config.d_model,
        "d_head": config.d_head,
        "vocab_size": config.vocab_size,
        "parameters": parameter_count(config),
        "layers": [_layer(config, layer) for layer in range(config.n_layers)],
        "tokenizer": summary.tokenizer_name,
        "format": summary.format,
    }


def _layer(config: ModelConfig, layer: int) -> dict[str, Any]:
    kernels = config.kernels(layer)
    return {
        "stages": [stage.value.hook for stage in layer_stages(kernels)],
        "kernels": {name: getattr(kernels, name) for name in KERNELS},
    }

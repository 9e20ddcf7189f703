"""`info PATH`: what a checkpoint is, from its settings and the names of its tensors; no weights are read."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import positive
from mta_viz.cli.output import note
from mta_viz.model.stages import layer_stages

HELP = "what a checkpoint is: shapes, kernels, parameters"
KERNELS = ("pre", "post", "head_pre", "head_post")


def add_flags(parser: ArgumentParser) -> None:
    """PATH and `--vocab-size`."""
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="a checkpoint folder, a GGUF file, or a params.json"
    )
    parser.add_argument("--vocab-size", type=positive, metavar="N", help="when params.json leaves it open")


def run(arguments: Namespace) -> dict[str, Any]:
    """The checkpoint's configuration, parameter count and each layer's stages and kernels."""
    from mta_viz.checkpoint.reading import read_summary
    from mta_viz.checkpoint.types import parameter_count

    summary = read_summary(arguments.path, vocab_size=arguments.vocab_size)
    for text in summary.notes:
        note(text)
    config = summary.config
    fields = ("variant", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "vocab_size")
    return {
        **{name: getattr(config, name) for name in fields},
        "parameters": parameter_count(config),
        "layers": [
            {
                "stages": [stage.value.hook for stage in layer_stages(kernels)],
                "kernels": {name: getattr(kernels, name) for name in KERNELS},
            }
            for kernels in map(config.kernels, range(config.n_layers))
        ],
        "tokenizer": summary.tokenizer_name,
        "format": summary.format,
    }

"""`info PATH`: what a checkpoint is, from its settings and the names of its tensors.

No weights are read but those of `--base`.
"""

from argparse import ArgumentParser, Namespace
from math import prod
from pathlib import Path
from typing import Any

from mta_viz.cli.flags import add_base, base_for
from mta_viz.cli.output import note
from mta_viz.cli.values import positive
from mta_viz.config import PARAMETERS
from mta_viz.model.stages import layer_stages

HELP = "what a checkpoint is: shapes, kernels, parameters"


def add_flags(parser: ArgumentParser) -> None:
    about = "a checkpoint folder, a GGUF file, an adapter, a params.json, or a dump of kernels or attention"
    parser.add_argument("path", type=Path, metavar="PATH", help=about)
    add_base(parser)
    parser.add_argument("--vocab-size", type=positive, metavar="N", help="when params.json leaves it open")


def run(arguments: Namespace) -> dict[str, Any]:
    """The checkpoint's configuration, parameter count and each layer's stages and kernels."""
    from mta_viz.checkpoint.dumps import describe_attention
    from mta_viz.checkpoint.reading import read_summary
    from mta_viz.checkpoint.types import parameter_count

    if maps := describe_attention(arguments.path):
        return maps
    summary = read_summary(arguments.path, vocab_size=arguments.vocab_size)
    for text in summary.notes:
        note(text)
    config = summary.config
    if summary.format == "kernels" and summary.path.is_file():  # a dump: it tells nothing else
        layers, shape = config.mta.mta_layers, config.mta.pre_kernel
        return {"format": "kernel dump", "layers": layers, "n_heads": config.n_heads, "kernel": shape}
    fields = ("variant", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "vocab_size")
    return {
        **{name: getattr(config, name) for name in fields},
        "parameters": parameter_count(config),
        "layers": [
            {
                "stages": [stage.value.hook for stage in layer_stages(kernels)],
                "kernels": {name: getattr(kernels, name) for name in PARAMETERS},
            }
            for kernels in map(config.kernels, range(config.n_layers))
        ],
        "tokenizer": summary.tokenizer_name,
        "format": summary.format,
        **(_adapter(arguments) if summary.format == "adapter" else {}),
    }


def _adapter(arguments: Namespace) -> dict[str, Any]:
    """Of an adapter its base, what it has beside kernels and head mixing, and what its training says."""
    from mta_viz.checkpoint.adapter import open_adapter
    from mta_viz.checkpoint.layout import KERNELS
    from mta_viz.checkpoint.locate import adapter_file, locate
    from mta_viz.checkpoint.relatives import checked_base

    stored = open_adapter(adapter_file(locate(arguments.path)))
    base, given = stored.about.base, base_for(arguments.path, arguments)
    return {
        "base": {
            "name": base.name,
            "sha256": base.sha256,
            "path": base.path if given is None else str(checked_base(stored, given)),
        },
        "parameters_in_file": sum(prod(tensor.shape) for tensor in stored.weights.tensors.values()),
        "beside_kernels": [name for name in stored.entries if not name.endswith(KERNELS)],
        "recipe": stored.about.recipe,
        "numbers": stored.about.numbers,
    }

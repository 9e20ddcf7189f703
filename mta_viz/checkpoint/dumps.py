"""What the reference writes beside its checkpoints for pictures: dumps of kernels, and of attention maps.

A dump of kernels opens as a model without weights; of attention dumps only what they are is told. Both are
torch's files, recognised by their names and by what they hold.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mta_viz.checkpoint import door, native, types
from mta_viz.checkpoint.files import PARAMS, beside, read_params
from mta_viz.checkpoint.params import Parsed, parse_params
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import CheckpointError, ConfigError
from mta_viz.printed import printable

LIMITS = (
    "final weights alone, and zeros in layers without kernels or mixing",
    "one row fewer than tokens",
    "from the second batch on the file of tokens may be another prompt's",
    "of several packed prompts only the first is whole",
)
_NAME = re.compile(r".*kernel.*\.(?:pt|pth)")
_LAYER = re.compile(r"Layer ([1-9]\d{0,3})")  # the reference counts from 1
_ATTENTION = re.compile(r"attn_dump\.(\d{2,4})\.\d+")


def is_kernels(file: Path) -> bool:
    """Whether it is a dump of kernels, by its name and by what it holds."""
    return bool(_NAME.fullmatch(file.name)) and file.is_file() and bool(_kernels(file))


def _kernels(file: Path) -> dict[int, Tensor]:
    """Layer from 0 -> kernel [head, 1, c_q, c_k]; nothing of a file that holds anything else."""
    try:
        loaded = door.load_torch(file)
    except Exception:  # torch raises many kinds for a damaged file
        return {}
    named = loaded if isinstance(loaded, dict) else {}
    numbers = [_LAYER.fullmatch(key) if isinstance(key, str) else None for key in named]
    if not all(numbers) or not all(map(_is_kernel, named.values())):
        return {}
    return {
        int(number[1]) - 1: kernel for number, kernel in zip(numbers, named.values(), strict=True) if number
    }


def _is_kernel(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 4 and types.has_every_value(value)


def open_kernels(file: Path) -> types.StoredWeights:
    """The kernels of a dump by Lingua's keys, or those in a folder's kernels.safetensors."""
    if file.is_dir():
        return native.open_safetensors(file / native.KERNELS)
    tensors = {
        f"layers.{layer}.attention.mta_kernel": types.stored_in_memory(value)
        for layer, value in sorted(_kernels(file).items())
    }
    problems = () if tensors else (f"{printable(file.name)} is no dump of kernels",)
    return types.StoredWeights(tensors, problems, door.size(file))


def parse_kernels(file: Path) -> Parsed:
    """A configuration for a dump's kernels: of the params.json beside it, else the smallest that has them."""
    kernels = _kernels(file)
    shapes = {tuple(value.shape) for value in kernels.values()}
    if len(shapes) != 1:
        listed = ", ".join(str(list(shape)) for shape in sorted(shapes)[:3])
        return Parsed(None, (f"its kernels have the shapes {listed}; expected one [head, 1, query, key]",))
    ((n_heads, _, queries, keys),) = shapes
    mta = MTAOptions(pre_kernel=(queries, keys), mta_layers=tuple(sorted(kernels)))
    mta = replace(mta, pad_key="both" if keys % 2 else "left")
    sizes: dict[str, Any] = {"n_layers": max(kernels) + 1, "n_heads": n_heads, "n_kv_heads": n_heads}
    sizes |= {"d_model": 2 * n_heads, "d_head": 2, "d_mlp": 1, "vocab_size": 1, "n_ctx": 1}
    note = "a dump of kernels before the softmax alone"
    own = _beside(file)
    if own is not None and own.n_heads == n_heads and own.n_layers > max(kernels):
        mta = replace(mta, pad_key=own.mta.pad_key)
        return Parsed(replace(own, mta=mta), (), (note,))
    note += f'; with no {PARAMS} beside it, pad_key is taken as "{mta.pad_key}" and sizes are unknown'
    try:
        return Parsed(ModelConfig(**sizes, mta=mta), (), (note,))
    except ConfigError as error:
        return Parsed(None, error.problems)


def _beside(file: Path) -> ModelConfig | None:
    params, problems = read_params(beside(file) / PARAMS)
    parsed = None if problems else parse_params(params, vocab_size=1)
    return None if parsed is None or parsed.problems else parsed.config


def describe_attention(path: Path) -> dict[str, Any] | None:
    """What a folder of attention dumps holds, or one of its batches: maps by layer, and their limits.

    None for anything else. Raises CheckpointError for maps that cannot be read.
    """
    if not path.is_dir():
        return None
    numbered = sorted(entry for entry in path.iterdir() if entry.name.isdecimal() and entry.is_dir())
    entries = [entry for batch in (path, *numbered) for entry in sorted(batch.iterdir())]
    named = {entry: number for entry in entries if (number := _ATTENTION.fullmatch(entry.name))}
    files = list(named)
    if not files:
        return None
    try:
        first = door.load_torch(files[0])
        _, heads, queries, keys = first.shape
    except Exception as error:  # torch raises many kinds for a damaged file
        problem = "it is no attention map [1, head, query, key]; copy it again"
        raise CheckpointError([problem], printable(files[0])) from error
    return {
        "format": "attention dump",
        "batches": len({file.parent for file in files}),
        "layers": sorted({int(number[1]) for number in named.values()}),
        "n_heads": heads,
        "map": [queries, keys],
        "limits": list(LIMITS),
    }

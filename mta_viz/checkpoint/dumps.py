"""What the reference writes beside its checkpoints for pictures: dumps of kernels, and of attention maps.

A dump of kernels opens as a model without weights; attention dumps are read as maps, with limits. Both are
torch's files, recognised by their names and by what they hold.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mta_viz.checkpoint import door, native, types
from mta_viz.checkpoint.files import PARAMS, beside, read_params
from mta_viz.checkpoint.params import Parsed, parse_params
from mta_viz.config import ModelConfig, MTAOptions
from mta_viz.errors import CheckpointError, ConfigError
from mta_viz.printed import printable, size_text

LIMITS = (
    "final weights alone, and zeros in layers without kernels or mixing",
    "one row fewer than tokens",
    "from the second batch on the file of tokens may be another prompt's",
    "of several packed prompts only the first is whole",
)
_MOST = 4 * door.GIB
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
    if not all(numbers) or not all(map(_is_whole, named.values())):
        return {}
    return {
        int(number[1]) - 1: kernel for number, kernel in zip(numbers, named.values(), strict=True) if number
    }


def _is_whole(value: object) -> bool:
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


@dataclass(frozen=True)
class AttentionDump:
    """One batch: the final weights by layer, and the first prompt's tokens, one a row, as the file has them.

    No tokens where the file has fewer of them than the maps have rows.
    """

    maps: Mapping[int, Float[Tensor, "head query key"]]
    words: tuple[str, ...]


def is_attention(folder: Path) -> bool:
    """Whether it is a folder of attention dumps, or one of its batches."""
    return bool(_batches(folder))


def find_attention(roots: Iterable[Path]) -> tuple[Path, ...]:
    """The folders of dumps among the roots and what lies directly in them."""
    there = [folder for root in roots if root.is_dir() for folder in (root, *sorted(root.iterdir()))]
    return tuple(folder for folder in there if is_attention(folder))


def read_attention(folder: Path) -> AttentionDump:
    """The first batch of a folder of dumps, or that batch. Raises CheckpointError for what cannot be read."""
    batch, files = next(iter(_batches(folder).items()))
    mapped = {layer: _map(file)[0] for layer, file in sorted(files.items())}
    shapes = {tuple(value.shape) for value in mapped.values()}
    if len(shapes) > 1:
        listed = ", ".join(str(list(shape)) for shape in sorted(shapes)[:3])
        raise CheckpointError([f"its maps have the shapes {listed}; expected one"], printable(batch))
    if (n_bytes := 4 * sum(value.numel() for value in mapped.values())) > _MOST:
        sizes = f"{size_text(n_bytes)}; at most {size_text(_MOST)} are opened"
        raise CheckpointError([f"its maps take {sizes}: take some layers' files away"], printable(batch))
    maps = {layer: value.float().clone() for layer, value in mapped.items()}
    return AttentionDump(maps, _first_prompt(batch / "output_tokens", next(iter(shapes))[1]))


def _first_prompt(file: Path, count: int) -> tuple[str, ...]:
    try:
        first = door.load_torch(file)[0][:count]
    except Exception:  # it is not there, or damaged: the maps are shown without tokens
        return ()
    return tuple(first) if len(first) == count and all(isinstance(word, str) for word in first) else ()


def _batches(folder: Path) -> dict[Path, dict[int, Path]]:
    """Of each batch its files by layer, the first rank's."""
    if not folder.is_dir():
        return {}
    numbered = (entry for entry in folder.iterdir() if entry.name.isdecimal() and entry.is_dir())
    batches: dict[Path, dict[int, Path]] = {}
    for batch in (folder, *sorted(numbered, key=lambda entry: int(entry.name))):
        for file in sorted(batch.iterdir()):
            if number := _ATTENTION.fullmatch(file.name):
                batches.setdefault(batch, {}).setdefault(int(number[1]), file)
    return batches


def _map(file: Path) -> Float[Tensor, "one head query key"]:
    try:
        value = door.load_torch(file)
        if _is_whole(value) and len(value) == 1 and value.is_floating_point() and _is_causal(value):
            return value
    except Exception:  # torch raises many kinds for a damaged file
        pass
    raise CheckpointError(
        ["it is no causal attention map [1, head, query, key]; copy it again"], printable(file)
    )


def _is_causal(maps: Tensor) -> bool:
    return maps.shape[2] == maps.shape[3] and not bool(maps.triu(1).any())


def describe_attention(path: Path) -> dict[str, Any] | None:
    """What a folder of attention dumps holds, or one of its batches: maps by layer, and their limits.

    None for anything else. Raises CheckpointError for maps that cannot be read.
    """
    batches = _batches(path)
    if not batches:
        return None
    _, heads, queries, keys = _map(next(iter(next(iter(batches.values())).values()))).shape
    return {
        "format": "attention dump",
        "batches": len(batches),
        "layers": sorted({layer for files in batches.values() for layer in files}),
        "n_heads": heads,
        "map": [queries, keys],
        "limits": list(LIMITS),
    }

"""Tensors as a file names them, before any is read: shape, dtype, and how to get the values.

What the names mean is layout.py's business; how bytes are found is each format's.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod

import torch
from torch import Tensor

from mta_viz.printed import printable

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. `read()` returns the values in memory of their own.

    `read` raises CheckpointError when the bytes are damaged.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]

    @property
    def n_bytes(self) -> int:
        """Bytes of the values."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class StoredWeights:
    """All model tensors of a checkpoint by Lingua's key, and what is wrong with the file itself.

    `unreadable` maps the key of a tensor that is there but of no use to the reason. `n_bytes` is the
    size of the weights' files on disk (other contents included).
    """

    tensors: Mapping[str, StoredTensor]
    problems: tuple[str, ...] = ()
    n_bytes: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)


def printable_weights(weights: StoredWeights) -> StoredWeights:
    """The same with names fit for a message: a file may name its tensors anything."""
    return StoredWeights(
        {printable(key): tensor for key, tensor in weights.tensors.items()},
        tuple(printable(problem, 1000) for problem in weights.problems),
        weights.n_bytes,
        {printable(key): printable(problem, 1000) for key, problem in weights.unreadable.items()},
    )


def has_every_value(tensor: Tensor) -> bool:
    """Whether its storage holds a value for each cell: an expanded tensor is a small file and huge memory."""
    return tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()


def stored_in_memory(tensor: Tensor) -> StoredTensor:
    """A tensor that is already there (memory-mapped, say); `read` copies it."""
    return StoredTensor(tuple(tensor.shape), tensor.dtype, partial(_copy, tensor))


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def common_dtype(weights: StoredWeights) -> str | None:
    """The dtype of most values, e.g. `float16`; None without tensors."""
    counts: Counter[torch.dtype] = Counter()
    for tensor in weights.tensors.values():
        counts[tensor.dtype] += prod(tensor.shape)
    return dtype_name(counts.most_common(1)[0][0]) if counts else None


def dtype_notes(weights: StoredWeights) -> tuple[str, ...]:
    """A note when the tensors do not all have one dtype."""
    names = sorted({dtype_name(tensor.dtype) for tensor in weights.tensors.values()})
    if len(names) < 2:
        return ()
    return (f"the file mixes dtypes: {', '.join(names)}",)


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")

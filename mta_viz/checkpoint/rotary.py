"""Tables of rotary angles in a file: they must be those that the settings give, and are then not needed.

Knows the forms in which programs keep them: frequencies of pairs, complex turns, matrices, cosines, sines.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from mta_viz.checkpoint.gguf_settings import slowdowns
from mta_viz.checkpoint.types import StoredTensor
from mta_viz.config import ModelConfig
from mta_viz.errors import CheckpointError

_MOST_ROWS = 4096  # positions that are compared; of longer tables some, evenly spread


def rotary_problems(config: ModelConfig, tables: Mapping[str, StoredTensor], settings: str) -> list[str]:
    """One line for each table with other angles than `config` has, saying which; `settings` is their file."""
    turns = config.rope_theta ** (-np.arange(0, config.d_head, 2) / config.d_head)
    if config.rope_scaling:
        turns = turns / slowdowns(config.rope_scaling, config.d_head, config.rope_theta)
    problems: list[str] = []
    for name, stored in tables.items():
        try:
            differs = _difference(name.rpartition(".")[2], stored.read(), turns)
        except CheckpointError as error:
            problems += error.problems
            continue
        if differs:
            given = f"{name} holds other rotary angles than {settings} gives: {differs}"
            problems.append(f"{given}; correct rope_theta or the head width there")
    return problems


def _difference(kind: str, table: Tensor, turns: np.ndarray) -> str | None:
    """What differs between a table and what each pair turns a position; None where nothing does."""
    close = 1e-3 if table.dtype.itemsize > 2 else 2e-2
    pairs = len(turns)
    if table.ndim == 1:
        own = table.double().numpy()
        if own.shape != turns.shape:
            return f"{own.size} frequencies, of heads {2 * own.size} wide; its heads are {2 * pairs} wide"
        if np.allclose(own, turns, rtol=close, atol=0):
            return None
        pair = int(np.abs(own / turns - 1).argmax())
        return f"pair {pair} turns by {own[pair]:g} a position, expected {turns[pair]:g}{_theta(own, turns)}"
    found = _cosines_and_sines(kind, table, pairs)
    if found is None:
        return f"its shape is {list(table.shape)}, which is none of a table for heads {2 * pairs} wide"
    step = -(-found.shape[1] // _MOST_ROWS)
    angles = np.arange(0, found.shape[1], step)[:, None] * turns
    for name, own, wanted in zip(("cosine", "sine"), found[:, ::step], (np.cos, np.sin), strict=True):
        wrong = ~np.isclose(own, wanted(angles), rtol=0, atol=10 * close)
        if wrong.any() and not np.isnan(own).all():
            row, pair = (int(place) for place in np.argwhere(wrong)[0])
            values = f"{own[row, pair]:g}, expected {wanted(angles)[row, pair]:g}"
            return f"the {name} of pair {pair} at position {row * step:,} is {values}"
    return None


def _theta(own: np.ndarray, turns: np.ndarray) -> str:
    """Which theta the frequencies come from, where they come from one."""
    if len(own) < 2 or not 0 < own[1] < 1:
        return ""
    theta = own[1] ** -len(own)
    exact = np.allclose(own, theta ** (-np.arange(len(own)) / len(own)), rtol=1e-2)
    return f" (the table is of theta {theta:,.0f})" if exact else ""


def _cosines_and_sines(kind: str, table: Tensor, pairs: int) -> np.ndarray | None:
    """[2, position, pair], NaN for what the table does not hold; None for no shape of a table."""
    if table.is_complex():
        table = torch.view_as_real(table)
    values = table.double().numpy()
    shape = values.shape
    if shape[-2:] == (2, 2) and values.ndim > 3:  # [[cos, -sin], [sin, cos]]
        values, shape = values[..., 0], (*shape[:-2], 2)
    if shape[-2:] == (pairs, 2):
        return np.moveaxis(values.reshape(-1, pairs, 2), 2, 0)
    only = {"cos": 0, "sin": 1}.get(kind[:3])
    if only is None or shape[-1] not in (pairs, 2 * pairs):
        return None
    both = np.full((2, values.size // shape[-1], pairs), np.nan)
    both[only] = values.reshape(-1, shape[-1])[:, :pairs]  # Hugging Face writes each pair twice, in halves
    return both

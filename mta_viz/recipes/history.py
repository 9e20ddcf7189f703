"""The kernels over training, as a file beside the weights: `kernel_history.safetensors`.

Names, layouts and dtype are those of the checkpoint's own `model.safetensors` with the snapshot as
a first axis, so the last entry equals the shipped kernels bit for bit.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from mta_viz.checkpoint.layout import file_entries
from mta_viz.config import ModelConfig
from mta_viz.recipes.trainer import Snapshot


def write_history(path: Path, config: ModelConfig, history: Sequence[Snapshot], dtype: torch.dtype) -> None:
    """Write every kernel as [snapshot, *shape in the checkpoint file]; `steps` is in the metadata.

    `steps` is a JSON list of training steps done, strictly increasing. A model without kernels
    gets no file: there is nothing to write.
    """
    entries = file_entries(config)
    stacked = {
        entries[name].key: torch.stack(
            [entries[name].layout.write(snapshot.kernels[name]) for snapshot in history]
        ).to(dtype)
        for name in history[0].kernels
    }
    if stacked:
        steps = json.dumps([snapshot.step for snapshot in history])
        save_file(stacked, path, metadata={"steps": steps})

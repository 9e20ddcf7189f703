"""The weights a run starts from: seeded, the same on every device."""

import torch
from torch import nn

from mta_viz.config import ModelConfig
from mta_viz.model.transformer import HookedMTA


def initial_model(config: ModelConfig, seed: int, device: torch.device | str) -> HookedMTA:
    """A model with truncated-normal matrices of deviation 1/sqrt(input width) and identity kernels.

    Drawn on the CPU and moved, without touching torch's global generator. The embedding, which is
    also the unembedding of a tied model, has deviation 1/sqrt(d_model). Matrices are drawn in the
    parameters' order, kernels drawing nothing: a model and its plain twin start from equal ones.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        model = HookedMTA(config)
    for name, weight in model.named_parameters():
        if name.endswith(".weight") and weight.ndim == 2:
            std = weight.shape[1] ** -0.5
            nn.init.trunc_normal_(weight, 0.0, std, -3 * std, 3 * std, generator=generator)
    return model.to(device)

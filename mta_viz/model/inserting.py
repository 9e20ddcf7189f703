"""Multi-token attention put into a model that has none: kernels and head mixing at the identity.

Owns what may be inserted and with which values it begins. The new model shares the plain one's tensors;
which of its tensors are trained, and where it is kept, is others' business.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mta_viz.config import Gate, ModelConfig, MTAOptions, PadKey
from mta_viz.errors import ConfigError
from mta_viz.model.attention import identities
from mta_viz.model.transformer import HookedMTA

SUBJECT = "What to insert"
# sigmoid(6) is 0.9975, its slope 1 % of the steepest. From about 17 on float32 rounds the gate to 1 and its
# slope to 0, from where nothing is learned: an inserted gate begins near the identity, not at it.
OPEN_GATE = 6.0


def insert_mta(
    model: HookedMTA,
    layers: Sequence[int],
    *,
    kernel: tuple[int, int] | None = (6, 11),
    post: tuple[int, int] | None = None,
    pad_key: PadKey = "both",
    head_pre: bool = False,
    head_post: int | None = None,
    group_norm: bool = False,
    gate: Gate | None = None,
) -> HookedMTA:
    """A new model with kernels at the identity in `layers` (from 0); it shares every tensor of `model`.

    `kernel` and `post` are (c_q, c_k) before and after the softmax, `head_post` is the size of the groups
    whose heads are mixed after it (`n_heads`: all of them). Head mixing, group norm and gate come into every
    layer, whatever `layers` says. Kernels and mixing leave the logits as they are; the gate begins at
    sigmoid(6), just below 1, and the group norm, which has no identity, rescales every head's output.

    The new tensors have the model's dtype and device. As with `edited`, nothing of the model requires
    gradients; it has no `source`, since no file holds it. Raises ConfigError listing everything that `model`
    cannot take.

    >>> plain = mta_viz.load("assets/needle-transformer")
    >>> mta_viz.insert_mta(plain, [1, 3]).blocks[1].attn.kernel_pre.shape
    torch.Size([8, 6, 11])
    """
    own = model.config.mta
    options = replace(
        own,
        pre_kernel=kernel,
        post_kernel=post,
        pad_key=pad_key,
        mta_layers=tuple(sorted(set(layers))) if kernel or post else None,
        head_pre=head_pre,
        head_post_group=head_post,
        group_norm=group_norm or own.group_norm,
        gate=gate or own.gate,
    )
    problems = [*_model_problems(model, group_norm, gate), *_option_problems(model.config, options, layers)]
    config = _config(model.config, options, problems)
    there = model.state_dict()
    with torch.device("meta"):
        made = HookedMTA(config)
    made.load_state_dict({**_first_values(config, model.embed.weight), **there}, assign=True)
    made.tokenizer = model.tokenizer
    return made.requires_grad_(False).eval()


def kernels_of(config: ModelConfig) -> list[str]:
    """Which kernels and head mixing a model has, in words; empty for a plain model."""
    layers = [config.kernels(layer) for layer in range(config.n_layers)]
    parts = {
        "kernels before the softmax": any(kernels.pre for kernels in layers),
        "kernels after it": any(kernels.post for kernels in layers),
        "head mixing before the softmax": any(kernels.head_pre for kernels in layers),
        "head mixing after it": any(kernels.head_post for kernels in layers),
    }
    return [words for words, there in parts.items() if there]


def _model_problems(model: HookedMTA, group_norm: bool, gate: Gate | None) -> list[str]:
    problems = []
    if there := kernels_of(model.config):
        problems.append(f"the model has {', '.join(there)} already; expected a plain model")
    if group_norm and model.config.mta.group_norm:
        problems.append("the model has a group norm already, which stays; ask for none")
    if gate and model.config.mta.gate:
        problems.append("the model has a gate already, which stays; ask for none")
    if model.plan:
        problems.append("the model has interventions; insert into the model as it was read")
    if model.kernels_only:
        problems.append("the file holds kernels only; open a whole model")
    return problems


def _option_problems(config: ModelConfig, options: MTAOptions, layers: Sequence[int]) -> list[str]:
    problems, kernels = [], options.pre_kernel or options.post_kernel
    wrong = [layer for layer in layers if type(layer) is not int or not 0 <= layer < config.n_layers]
    if wrong:
        named = ", ".join(map(repr, wrong))
        problems.append(f"there is no layer {named}; the model has layers 0 to {config.n_layers - 1}")
    if kernels and not layers:
        problems.append("no layer is named for the kernels; name some, such as 2, 6, 10")
    added = options.group_norm != config.mta.group_norm or options.gate != config.mta.gate
    if not (kernels or options.head_pre or options.head_post_group or added):
        problems.append("no kernel, no head mixing, no group norm and no gate: nothing to insert")
    return problems


def _config(config: ModelConfig, options: MTAOptions, problems: list[str]) -> ModelConfig:
    """The model's with these options. Raises ConfigError with its problems after those already known."""
    if problems and options.mta_layers is not None:  # wrong layers are named already
        options = replace(options, mta_layers=())
    try:
        made = replace(config, mta=options)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems], SUBJECT) from None
    if problems:
        raise ConfigError(problems, SUBJECT)
    return made


def _first_values(config: ModelConfig, like: Tensor) -> dict[str, Tensor]:
    """What insertion can add to each layer, in the dtype and on the device of `like`."""
    values: dict[str, Tensor] = {}
    for layer in range(config.n_layers):
        of_layer = identities(config, layer)
        if config.mta.gate:
            rows, width = 1 if config.mta.gate == "1d" else config.d_head, config.d_head
            of_layer |= {"gate.weight": torch.zeros(rows, width), "gate.bias": torch.full((rows,), OPEN_GATE)}
        for name, tensor in of_layer.items():
            if tensor is not None:
                values[f"blocks.{layer}.attn.{name}"] = tensor.to(like)
    return values

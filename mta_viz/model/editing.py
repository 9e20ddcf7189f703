"""Other models that share every tensor of one they do not change: with interventions, or with MTA inserted.

Owns how an intervention changes weights (what it says is `model.interventions`), what may be inserted
into a plain model and with which values it begins. The original is never written to, so a forward that
fails half-way can leave nothing on it, and hooks, lock and tracing work on the new model as on any
other. Which inserted tensors are trained, and where they are kept, is others' business.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.config import LARGEST_KERNEL, Gate, ModelConfig, MTAOptions, PadKey, kernel_problems
from mta_viz.errors import ConfigError
from mta_viz.model import interventions
from mta_viz.model.attention import Attention, identities
from mta_viz.model.hooking import mark
from mta_viz.model.interventions import Intervention, PatchHead
from mta_viz.model.plans import check_plan
from mta_viz.model.transformer import HookedMTA

Weights = dict[str, Tensor]
Sources = Mapping[PatchHead, Float[Tensor, "position other"]]


def edited(model: HookedMTA, plan: Sequence[Intervention], sources: Sources | None = None) -> HookedMTA:
    """`model` with the interventions of `plan`, in their order, ready to run; for inference only.

    Only changed tensors take memory. With an empty plan its outputs are bit-equal. `config` is the
    original's, also where a norm or gate is bypassed: that layer then lacks the parameter and its
    hook point. `sources` has what each patch puts in place, see `analysis.patching`. Raises ConfigError
    listing all that the plan asks of the model in vain.
    """
    check_plan(plan, model.config)
    own: Weights = dict(model.state_dict())
    weights = dict(own)
    for intervention in plan:
        weights |= _changed(intervention, weights, model.config)
    with torch.device("meta"):
        made = HookedMTA(model.config)
    for intervention in model.plan:  # what earlier edits took out of `model` is not among the weights
        _take_out(intervention, made.blocks[intervention.layer].attn)
    made.load_state_dict(weights, assign=True)
    for block, new in zip(model.blocks, made.blocks, strict=True):
        new.attn.patches = block.attn.patches
    for intervention in plan:
        _take_out(intervention, made.blocks[intervention.layer].attn)
        if isinstance(intervention, PatchHead):
            _patch(intervention, made.blocks[intervention.layer].attn, sources or {})
    made.setup()  # hook points may be gone
    made.tokenizer, made.source, made.plan = model.tokenizer, model.source, (*model.plan, *plan)
    made.as_read = _as_read(model, made, {name for name in own if weights[name] is not own[name]})
    return made.requires_grad_(False).eval()


def _as_read(model: HookedMTA, made: HookedMTA, replaced: set[str]) -> dict[str, str]:
    """Marks of `model`'s source after the plan; of a tensor that was changed before, still the source's."""
    there = dict(made.named_parameters())
    sound = [name for name in replaced if mark(model.get_parameter(name)) == model.as_read.get(name)]
    after = {name: mark(there[name]) for name in sound if name in there}
    return {name: kept for name, kept in {**model.as_read, **after}.items() if name in there}


# A change of one head's kernel -> its new taps, from those of all heads and of the identity.
_NEW_TAPS: dict[type[Intervention], Callable[[Any, Tensor, Tensor], Tensor]] = {
    interventions.KernelToIdentity: lambda change, kernels, identity: identity,
    interventions.KernelToOwnTap: lambda change, kernels, identity: kernels[change.head].where(
        identity > 0, torch.zeros_like(identity)
    ),  # a broken tap times 0 is no 0
    interventions.KernelToZero: lambda change, kernels, identity: torch.zeros_like(identity),
    interventions.ReplaceKernel: lambda change, kernels, identity: kernels.new_tensor(change.taps),
    interventions.KernelFrom: lambda change, kernels, identity: kernels[change.source],
    interventions.MirrorKernel: lambda change, kernels, identity: kernels[change.head].flip(-1),
    interventions.ScaleTowardsIdentity: lambda change, kernels, identity: (
        kernels[change.head] * (1 - change.strength) + identity * change.strength
    ),
}


def _changed(intervention: Intervention, weights: Weights, config: ModelConfig) -> Weights:
    """New tensors, by name, for those the intervention changes; none for bypasses and patches."""
    place = f"blocks.{intervention.layer}.attn."
    match intervention:
        case interventions.OfKernel(head=head):
            name = f"{place}kernel_{intervention.where}"
            changed = weights[name].clone()
            identity = torch.zeros_like(changed[0])
            identity[-1, config.key_pad_left(changed.shape[2])] = 1
            changed[head] = _NEW_TAPS[type(intervention)](intervention, weights[name], identity)
        case interventions.MixingToIdentity(head=target) | interventions.MixingToOwnWeight(head=target):
            name = f"{place}{intervention.where}"
            changed = weights[name].clone(memory_format=torch.contiguous_format)
            rows = changed.view(-1, changed.shape[-1])  # one a target head
            identity = torch.eye(changed.shape[-1]).repeat(len(changed), 1).to(changed)
            if isinstance(intervention, interventions.MixingToOwnWeight):
                identity = rows.where(identity > 0, torch.zeros_like(rows))
            chosen = slice(None) if target is None else target
            rows[chosen] = identity[chosen]
        case interventions.AblateHead(head=head):  # the output projection's columns of the head
            name = f"{place}wo.weight"
            changed = weights[name].clone()
            changed.unflatten(1, (config.n_heads, config.d_head))[:, head] = 0
        case _:
            return {}
    return {name: changed}


def _take_out(intervention: Intervention, attention: Attention) -> None:
    """Bypasses: the layer goes on without the part and its hook point."""
    if isinstance(intervention, interventions.BypassGroupNorm) and attention.group_norm is not None:
        attention.group_norm = None
        del attention.hook_z_normed
    if isinstance(intervention, interventions.BypassGate) and attention.gate is not None:
        attention.gate = None
        del attention.hook_gate


def _patch(patch: PatchHead, attention: Attention, sources: Sources) -> None:
    """The layer puts the source's rows in place whenever it computes that head at that stage."""
    if patch not in sources:
        raise ConfigError(
            [f"{patch.text()}: the other prompt was not run; `analysis.patching.operated` runs it"],
            subject="The plan of interventions",
        )
    there = attention.patches.get(patch.hook, {})
    attention.patches = {**attention.patches, patch.hook: {**there, patch.head: sources[patch]}}


SUBJECT = "What to insert"
# sigmoid(6) is 0.9975, its slope 1 % of the steepest. From about 17 on float32 rounds the gate to 1 and its
# slope to 0, from where nothing is learned: an inserted gate begins near the identity, not at it.
FEW_LAYERS = 2
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
    made.load_state_dict({**_first_values(config, model), **there}, assign=True)
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
    if model.kernels_only and not there:
        problems.append("the file holds kernels only; open a whole model")
    return problems


def usual_layers(config: ModelConfig) -> list[int]:
    """Those that get kernels if none are named: every fourth from 2; of a shallow model its lower half."""
    layers = list(range(config.n_layers))
    usual = layers[2::4]
    return usual if len(usual) > FEW_LAYERS else layers[1 : config.n_layers // 2 + 1] or layers


def _option_problems(config: ModelConfig, options: MTAOptions, layers: Sequence[int]) -> list[str]:
    problems, kernels = [], options.pre_kernel or options.post_kernel
    wrong = [layer for layer in layers if type(layer) is not int or not 0 <= layer < config.n_layers]
    for name in ("pre_kernel", "post_kernel"):
        problems += kernel_problems(name, getattr(options, name), options.pad_key, LARGEST_KERNEL)
    if wrong:
        named = "is no layer" if len(wrong) == 1 else "are no layers"
        named = f"there {named} {', '.join(map(repr, wrong))}"
        problems.append(f"{named}; the model has layers 0 to {config.n_layers - 1}")
    if kernels and not layers:
        problems.append("no layer is named for the kernels; name some, such as 2, 6, 10")
    added = options.group_norm != config.mta.group_norm or options.gate != config.mta.gate
    if not (kernels or options.head_pre or options.head_post_group or added):
        problems.append("no kernel, no head mixing, no group norm and no gate: nothing to insert")
    return problems


def _config(config: ModelConfig, options: MTAOptions, problems: list[str]) -> ModelConfig:
    """The model's with these options. Raises ConfigError with its problems after those already known."""
    if problems:  # wrong layers and kernels are named already
        options = replace(options, pre_kernel=None, post_kernel=None, mta_layers=None)
    try:
        made = replace(config, mta=options)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems], SUBJECT) from None
    if problems:
        raise ConfigError(problems, SUBJECT)
    return made


def _first_values(config: ModelConfig, model: HookedMTA) -> dict[str, Tensor]:
    """What insertion can add to each layer, in the dtype and on the device of its weights in `model`."""
    values: dict[str, Tensor] = {}
    for layer in range(config.n_layers):
        of_layer = identities(config, layer)
        if config.mta.gate:
            rows, width = 1 if config.mta.gate == "1d" else config.d_head, config.d_head
            of_layer |= {"gate.weight": torch.zeros(rows, width), "gate.bias": torch.full((rows,), OPEN_GATE)}
        for name, tensor in of_layer.items():
            if tensor is not None:
                values[f"blocks.{layer}.attn.{name}"] = tensor.to(model.blocks[layer].attn.wq.weight)
    return values

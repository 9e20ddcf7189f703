"""A model with interventions: a module of its own that shares every tensor it does not change.

Owns how an intervention changes weights; what it says is `mta_viz.interventions`. The original is
never written to, so a forward that fails half-way can leave nothing on it, and hooks, lock and
tracing work on the new model as on any other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model import interventions
from mta_viz.model.attention import Attention
from mta_viz.model.intact import mark
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

"""A model with interventions: a module of its own that shares every tensor it does not change.

Owns how an intervention changes weights; what it says is `mta_viz.interventions`. The original is
never written to, so a forward that fails half-way can leave nothing on it, and hooks, lock and
tracing work on the new model as on any other.
"""

from collections.abc import Mapping, Sequence
from functools import singledispatch

import torch
from jaxtyping import Float
from torch import Tensor

from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.model import interventions
from mta_viz.model.attention import Attention
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
    weights: Weights = dict(model.state_dict())
    for intervention in plan:
        weights |= _changed(intervention, weights, model.config)
    made = _as_it_is(model, weights)
    for intervention in plan:
        _take_out(intervention, made.blocks[intervention.layer].attn)
        if isinstance(intervention, PatchHead):
            _patch(intervention, made.blocks[intervention.layer].attn, sources or {})
    made.setup()  # hook points may be gone
    made.tokenizer, made.source, made.plan = model.tokenizer, model.source, (*model.plan, *plan)
    return made.requires_grad_(False).eval()


def _as_it_is(model: HookedMTA, weights: Weights) -> HookedMTA:
    """A module of these weights that lacks what earlier edits took out of `model` and has its patches."""
    with torch.device("meta"):
        made = HookedMTA(model.config)
    for intervention in model.plan:
        _take_out(intervention, made.blocks[intervention.layer].attn)
    made.load_state_dict(weights, assign=True)
    for own, new in zip(model.blocks, made.blocks, strict=True):
        new.attn.patches = own.attn.patches
    return made


@singledispatch
def _changed(intervention: Intervention, weights: Weights, config: ModelConfig) -> Weights:
    """New tensors, by name, for those the intervention changes."""
    raise NotImplementedError(f"{intervention.kind} has no rule")


@_changed.register
def _identity(intervention: interventions.KernelToIdentity, weights: Weights, config: ModelConfig) -> Weights:
    name, kernels = _kernels(intervention, weights)
    return {name: _with_row(kernels, intervention.head, _identity_taps(kernels, config))}


@_changed.register
def _own_tap(intervention: interventions.KernelToOwnTap, weights: Weights, config: ModelConfig) -> Weights:
    name, kernels = _kernels(intervention, weights)
    is_own = _identity_taps(kernels, config) > 0  # not a product: a broken tap times 0 is no 0
    own = kernels[intervention.head].where(is_own, torch.zeros_like(kernels[0]))
    return {name: _with_row(kernels, intervention.head, own)}


@_changed.register
def _zero(intervention: interventions.KernelToZero, weights: Weights, config: ModelConfig) -> Weights:
    name, kernels = _kernels(intervention, weights)
    return {name: _with_row(kernels, intervention.head, torch.zeros_like(kernels[0]))}


@_changed.register
def _replace(intervention: interventions.ReplaceKernel, weights: Weights, config: ModelConfig) -> Weights:
    name, kernels = _kernels(intervention, weights)
    return {name: _with_row(kernels, intervention.head, kernels.new_tensor(intervention.taps))}


@_changed.register
def _other_head(intervention: interventions.KernelFrom, weights: Weights, config: ModelConfig) -> Weights:
    name, kernels = _kernels(intervention, weights)
    return {name: _with_row(kernels, intervention.head, kernels[intervention.source])}


@_changed.register
def _mirrored(intervention: interventions.MirrorKernel, weights: Weights, config: ModelConfig) -> Weights:
    name, kernels = _kernels(intervention, weights)
    return {name: _with_row(kernels, intervention.head, kernels[intervention.head].flip(-1))}


@_changed.register
def _scaled(
    intervention: interventions.ScaleTowardsIdentity, weights: Weights, config: ModelConfig
) -> Weights:
    name, kernels = _kernels(intervention, weights)
    own, target = kernels[intervention.head], _identity_taps(kernels, config)
    scaled = own * (1 - intervention.strength) + target * intervention.strength
    return {name: _with_row(kernels, intervention.head, scaled)}


@_changed.register(interventions.MixingToIdentity)
@_changed.register(interventions.MixingToOwnWeight)
def _unmixed(
    intervention: interventions.MixingToIdentity | interventions.MixingToOwnWeight,
    weights: Weights,
    config: ModelConfig,
) -> Weights:
    name = f"blocks.{intervention.layer}.attn.{intervention.where}"
    mixing = weights[name]
    unmixed = torch.eye(mixing.shape[-1], dtype=mixing.dtype, device=mixing.device).expand_as(mixing)
    if isinstance(intervention, interventions.MixingToOwnWeight):
        unmixed = mixing.where(unmixed > 0, torch.zeros_like(mixing))
    if intervention.head is None:
        return {name: unmixed.clone()}
    rows = mixing.flatten(0, 1)  # one row a target head
    changed = _with_row(rows, intervention.head, unmixed.flatten(0, 1)[intervention.head])
    return {name: changed.view_as(mixing)}


@_changed.register
def _ablated(intervention: interventions.AblateHead, weights: Weights, config: ModelConfig) -> Weights:
    """The output projection's columns of the head to 0."""
    name = f"blocks.{intervention.layer}.attn.wo.weight"
    wo = weights[name].clone()
    wo.unflatten(1, (config.n_heads, config.d_head))[:, intervention.head] = 0
    return {name: wo}


@_changed.register(interventions.BypassGroupNorm)
@_changed.register(interventions.BypassGate)
@_changed.register(PatchHead)
def _same(intervention: Intervention, weights: Weights, config: ModelConfig) -> Weights:
    return {}


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


def _kernels(
    intervention: interventions.OfKernel, weights: Weights
) -> tuple[str, Float[Tensor, "head c_q c_k"]]:
    name = f"blocks.{intervention.layer}.attn.kernel_{intervention.where}"
    return name, weights[name]


def _identity_taps(kernels: Float[Tensor, "head c_q c_k"], config: ModelConfig) -> Float[Tensor, "c_q c_k"]:
    taps = torch.zeros_like(kernels[0])
    taps[-1, config.key_pad_left(kernels.shape[2])] = 1
    return taps


def _with_row(rows: Float[Tensor, "row ..."], row: int, values: Tensor) -> Float[Tensor, "row ..."]:
    changed = rows.clone()
    changed[row] = values
    return changed

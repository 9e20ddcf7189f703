"""A model with any plan, patches included: what other prompts' runs have to give is run first.

`model.editing` makes the model; this owns which activations a patch takes.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from mta_viz.errors import PromptError
from mta_viz.model.editing import Sources, edited
from mta_viz.model.interventions import Intervention, PatchHead
from mta_viz.model.plans import check_plan
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import run_hooks, tokenize


def operated(
    model: HookedMTA, plan: Sequence[Intervention], n_tokens: int, sources: Sources | None = None
) -> HookedMTA:
    """`edited(model, plan)` for prompts of `n_tokens`; each prompt a patch names is run by `model` itself.

    `sources`: what `activations` gave for these patches, so that they need not be run again. Raises
    ConfigError for what the model lacks, PromptError where another prompt has another length.
    """
    check_plan(plan, model.config)
    return edited(model, plan, activations(model, plan, n_tokens) if sources is None else sources)


def activations(model: HookedMTA, plan: Sequence[Intervention], n_tokens: int) -> Sources:
    """What each patch of a plan puts in place; every prompt is run once. Raises as `operated`."""
    patches = [one for one in plan if isinstance(one, PatchHead)]
    sources: dict[PatchHead, Tensor] = {}
    for prompt in dict.fromkeys(patch.prompt for patch in patches):
        sources |= _taken(model, [patch for patch in patches if patch.prompt == prompt], n_tokens)
    return sources


def _taken(
    model: HookedMTA, patches: Sequence[PatchHead], n_tokens: int
) -> dict[PatchHead, Float[Tensor, "position other"]]:
    """What one other prompt's run holds where these patches look."""
    tokens = tokenize(model, patches[0].prompt)
    if len(tokens) != n_tokens:
        raise PromptError(
            f"the prompt to patch from has {len(tokens)} tokens, this one {n_tokens}. Position takes the "
            "place of position: give a prompt of equally many tokens"
        )
    names = {patch: f"blocks.{patch.layer}.attn.{patch.hook}" for patch in patches}
    hooks = run_hooks(model, tokens, sorted(set(names.values())))
    found = {}
    for patch, name in names.items():
        whole = hooks[name]  # weighted values have their heads second, maps first
        own = whole[:, patch.head] if patch.stage == "z" else whole[patch.head]
        found[patch] = own.to(model.device, model.dtype)
    return found

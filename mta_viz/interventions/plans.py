"""Plans: interventions in the order in which they act, checked, and written as JSON.

Each intervention meets what the earlier ones left. Owns no kind of intervention.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from mta_viz.config import ModelConfig
from mta_viz.errors import ConfigError
from mta_viz.interventions import kinds
from mta_viz.interventions.kinds import Intervention
from mta_viz.interventions.patches import PatchHead

Plan = tuple[Intervention, ...]
KINDS: dict[str, type[Intervention]] = {
    kind.kind: kind
    for kind in (
        kinds.KernelToIdentity,
        kinds.KernelToZero,
        kinds.ReplaceKernel,
        kinds.KernelFrom,
        kinds.MirrorKernel,
        kinds.ScaleTowardsIdentity,
        kinds.MixingToIdentity,
        kinds.AblateHead,
        kinds.BypassGroupNorm,
        kinds.BypassGate,
        PatchHead,
    )
}


def check_plan(plan: Sequence[Intervention], config: ModelConfig) -> None:
    """Raises ConfigError listing everything in the plan that the model does not have."""
    problems = [f"{one.text()}: {problem}" for one in plan for problem in one.problems(config)]
    if problems:
        raise ConfigError(problems, subject="The plan of interventions")


def everything_to_identity(config: ModelConfig) -> Plan:
    """All key-query kernels and all head mixing to the identity; empty for a plain Transformer."""
    plan: list[Intervention] = []
    for layer in range(config.n_layers):
        kernels, heads = config.kernels(layer), range(config.n_heads)
        if kernels.pre:
            plan += [kinds.KernelToIdentity(layer, head, "pre") for head in heads]
        if kernels.head_pre:
            plan.append(kinds.MixingToIdentity(layer, "head_pre"))
        if kernels.post:
            plan += [kinds.KernelToIdentity(layer, head, "post") for head in heads]
        if kernels.head_post:
            plan.append(kinds.MixingToIdentity(layer, "head_post"))
    return tuple(plan)


def plan_as_data(plan: Sequence[Intervention]) -> list[dict[str, Any]]:
    """As JSON-ready dicts: `kind` and the fields that are set."""
    return [
        {"kind": one.kind} | {name: value for name, value in asdict(one).items() if value is not None}
        for one in plan
    ]


def plan_from_data(data: object) -> Plan:
    """The plan of `plan_as_data`. Raises ConfigError listing what is no intervention."""
    if not isinstance(data, list):
        raise ConfigError(["it is no list of interventions"], subject="The plan of interventions")
    plan, problems = [], []
    for number, entry in enumerate(data, start=1):
        try:
            plan.append(_from_entry(entry))
        except ConfigError as error:
            problems += [f"number {number}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems, subject="The plan of interventions")
    return tuple(plan)


def plan_as_text(plan: Sequence[Intervention]) -> str:
    """One line of JSON without spaces, for an address or a command line."""
    return json.dumps(plan_as_data(plan), separators=(",", ":"), allow_nan=False)


def plan_from_text(text: str) -> Plan:
    """The plan of `plan_as_text`. Raises ConfigError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(["it is no JSON"], subject="The plan of interventions") from error
    return plan_from_data(data)


def _from_entry(entry: object) -> Intervention:
    kind = KINDS.get(str(entry.get("kind"))) if isinstance(entry, dict) else None
    if kind is None or not isinstance(entry, dict):
        raise ConfigError([f"expected an object whose kind is one of {', '.join(KINDS)}"])
    values: dict[str, Any] = {name: _hashable(value) for name, value in entry.items() if name != "kind"}
    known = {field.name for field in fields(kind)}
    problems = [f"{kind.kind} has no field {name!r}" for name in values if name not in known]
    missing = known - set(values) - set(kind.optional)
    problems += [f"{kind.kind} lacks {name!r}" for name in sorted(missing)]
    problems = problems or kind.value_problems(values)
    if problems:
        raise ConfigError(problems)
    return kind(**values)


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value

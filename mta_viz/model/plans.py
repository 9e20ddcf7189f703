"""Plans: interventions in the order in which they act, checked, and written as JSON.

A plan in a page's address: `i.2.1.pre~S.3.0.post.0.5`, a word an intervention, joined by `~`.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator

from mta_viz.checkpoint.door import has_few_values
from mta_viz.checkpoint.validate import STRICT, value_problems
from mta_viz.config import KernelPlace, MixingPlace, ModelConfig
from mta_viz.errors import ConfigError, first_problems
from mta_viz.model import interventions
from mta_viz.model.interventions import Intervention, Taps

Plan = tuple[Intervention, ...]
SUBJECT = "The plan of interventions"
MOST = 10_000  # interventions in a file; a model has some hundred kernels
# The letter of each kind in an address.
_LETTERS: dict[str, type[Intervention]] = {
    "i": interventions.KernelToIdentity,
    "o": interventions.KernelToOwnTap,
    "z": interventions.KernelToZero,
    "t": interventions.ReplaceKernel,
    "f": interventions.KernelFrom,
    "m": interventions.MirrorKernel,
    "s": interventions.ScaleTowardsIdentity,
    "x": interventions.MixingToIdentity,
    "w": interventions.MixingToOwnWeight,
    "h": interventions.AblateHead,
    "n": interventions.BypassGroupNorm,
    "g": interventions.BypassGate,
    "p": interventions.PatchHead,
}
_WORDS = {kind: letter for letter, kind in _LETTERS.items()}
KINDS = {kind.kind: kind for kind in _WORDS}


def check_plan(plan: Sequence[Intervention], config: ModelConfig) -> None:
    """Raises ConfigError listing everything in the plan that the model does not have."""
    problems = [f"{change.text()}: {problem}" for change in plan for problem in change.problems(config)]
    if problems:
        raise ConfigError(problems, subject=SUBJECT)


Edit = Literal["identity", "own-tap", "zero"]
OF_KERNEL: dict[Edit, type[interventions.OfKernel]] = {
    "identity": interventions.KernelToIdentity,
    "own-tap": interventions.KernelToOwnTap,
    "zero": interventions.KernelToZero,
}
OfMixing = interventions.MixingToIdentity | interventions.MixingToOwnWeight
OF_MIXING: dict[Edit, type[OfMixing]] = {
    "identity": interventions.MixingToIdentity,
    "own-tap": interventions.MixingToOwnWeight,
}
PLACES: tuple[tuple[KernelPlace, MixingPlace], ...] = (("pre", "head_pre"), ("post", "head_post"))


def every_kernel(config: ModelConfig, edit: Edit = "identity") -> Plan:
    """All key-query kernels and all head mixing without their shape; empty for a plain Transformer.

    `identity`: every map passes unchanged, nothing of MTA is left but norms and gates. `own-tap`: gain and
    sign stay, of head mixing each head's own weight. `zero`: key-query kernels only, since head mixing of
    zeros is a layer without attention.
    """
    plan: list[Intervention] = []
    for layer, (kernel, mixing) in product(range(config.n_layers), PLACES):
        if getattr(config.kernels(layer), kernel):
            plan += [OF_KERNEL[edit](layer, head, kernel) for head in range(config.n_heads)]
        if getattr(config.kernels(layer), mixing) and edit in OF_MIXING:
            plan.append(OF_MIXING[edit](layer, mixing))
    return tuple(plan)


def plan_as_data(plan: Sequence[Intervention]) -> list[dict[str, Any]]:
    """As JSON-ready dicts: `kind` and the fields that are set."""
    return [
        {"kind": change.kind} | {name: value for name, value in asdict(change).items() if value is not None}
        for change in plan
    ]


def plan_from_data(data: object) -> Plan:
    """The plan of `plan_as_data`. Raises ConfigError listing what is no intervention."""
    if not isinstance(data, list):
        raise ConfigError(["it is no list of interventions"], subject=SUBJECT)
    if len(data) > MOST:
        raise ConfigError([f"it has {len(data):,} interventions; at most {MOST:,} are read"], subject=SUBJECT)
    plan, problems = [], []
    for number, entry in enumerate(data, start=1):
        try:
            kind = KINDS.get(str(entry.get("kind"))) if isinstance(entry, dict) else None
            if kind is None:
                raise ConfigError([f"expected an object whose kind is one of {', '.join(KINDS)}"])
            values = {name: _hashable(value) for name, value in entry.items() if name != "kind"}
            plan.append(_made(kind, values))
        except ConfigError as error:
            problems += [f"number {number}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(first_problems(problems, "problems"), subject=SUBJECT)
    return tuple(plan)


PlanData = Annotated[Plan, PlainValidator(plan_from_data)]  # a plan as a field of a file


def plan_from_text(text: str) -> Plan:
    """The plan of `plan_as_data`, as JSON. Raises ConfigError."""
    if not has_few_values(text, STRICT):
        raise ConfigError(["it has more values than any plan"], subject=SUBJECT)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(["it is no JSON"], subject=SUBJECT) from error
    return plan_from_data(data)


def _made(kind: type[Intervention], values: dict[str, Any]) -> Intervention:
    if problems := value_problems(kind, values):
        raise ConfigError([f"{kind.kind}: {problem}" for problem in problems])
    return kind(**values)


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


MAX_CHARACTERS = 1500


@dataclass(frozen=True)
class Listed:
    """An intervention in the list of a page, switched on or off."""

    intervention: Intervention
    on: bool = True


def active(listed: Sequence[Listed]) -> Plan:
    """The plan of those that are switched on."""
    return tuple(item.intervention for item in listed if item.on)


def to_address(listed: Sequence[Listed]) -> str:
    """The list as one word of letters that need no escaping in an address."""
    return "~".join(map(_word, listed))


def from_address(text: str) -> tuple[Listed, ...]:
    """The list of `to_address`. Raises ConfigError saying which word is none."""
    subject = "The plan in the address"
    if len(text) > MAX_CHARACTERS:
        raise ConfigError([f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,}"], subject)
    listed, problems = [], []
    for word in filter(None, text.split("~")):
        try:
            listed.append(_listed(word))
        except ValueError as error:
            reason = error.problems[0] if isinstance(error, ConfigError) else str(error)
            problems.append(f"{word[:40]!r} is no intervention ({reason})")
    if problems:
        raise ConfigError(problems, subject)
    return tuple(listed)


def _word(listed: Listed) -> str:
    letter = _WORDS[type(listed.intervention)]
    values = vars(listed.intervention).items()  # in the order of the fields
    parts = [_WRITE.get(name, str)(value) for name, value in values if value is not None]
    return ".".join([letter if listed.on else letter.upper(), *parts])


def _listed(word: str) -> Listed:
    letter, _, rest = word.partition(".")
    kind = _LETTERS.get(letter.lower())
    if kind is None:
        raise ValueError(f"kinds are {', '.join(_LETTERS)}")
    names = [field.name for field in fields(kind)]
    parts = rest.split(".", len(names) - 1)  # the last may hold a point
    values = {name: _READ.get(name, _index)(part) for name, part in zip(names, parts, strict=False)}
    return Listed(_made(kind, values), letter.islower())


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise ValueError(f"{text[:20]!r} is no whole number")
    return int(text)


def _write_taps(taps: Taps) -> str:
    values = np.array(taps, "<f4")
    return f"{values.shape[1]}.{_write_bytes(values.tobytes())}"


def _read_taps(text: str) -> Taps:
    columns, _, coded = text.partition(".")
    values = np.frombuffer(_read_bytes(coded), "<f4").reshape(-1, _index(columns))
    return tuple(map(tuple, values.tolist()))


def _write_prompt(prompt: str | tuple[int, ...]) -> str:
    if isinstance(prompt, tuple):
        return "i" + "-".join(map(str, prompt))
    return "t" + _write_bytes(prompt.encode())


def _read_prompt(text: str) -> str | tuple[int, ...]:
    if text[:1] == "i":
        return tuple(map(_index, text[1:].split("-")))
    return _read_bytes(text[1:]).decode()


def _write_bytes(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


_WRITE: dict[str, Callable[[Any], str]] = {"strength": repr, "taps": _write_taps, "prompt": _write_prompt}
_READ: dict[str, Callable[[str], Any]] = {
    "where": str,
    "stage": str,
    "strength": float,
    "taps": _read_taps,
    "prompt": _read_prompt,
}

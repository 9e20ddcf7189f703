"""A plan in a page's address: `i.2.1.pre~S.3.0.post.0.5`, a word an intervention, joined by `~`.

The first letter is the kind, a capital where the intervention is switched off; then its fields in their
order, an absent last one left out. Taps are float32 in base64, a prompt is `t` and its text in base64 or
`i1-2-3`. JSON (`plans.py`) is for files; this is for what a person copies.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mta_viz.errors import ConfigError
from mta_viz.interventions import kinds
from mta_viz.interventions.kinds import Intervention, Taps
from mta_viz.interventions.patches import PatchHead
from mta_viz.interventions.plans import Plan

MAX_CHARACTERS = 1500
_LETTERS: dict[str, type[Intervention]] = {
    "i": kinds.KernelToIdentity,
    "z": kinds.KernelToZero,
    "t": kinds.ReplaceKernel,
    "f": kinds.KernelFrom,
    "m": kinds.MirrorKernel,
    "s": kinds.ScaleTowardsIdentity,
    "x": kinds.MixingToIdentity,
    "h": kinds.AblateHead,
    "n": kinds.BypassGroupNorm,
    "g": kinds.BypassGate,
    "p": PatchHead,
}
_WORDS = {kind: letter for letter, kind in _LETTERS.items()}


@dataclass(frozen=True)
class Listed:
    """An intervention in the list of a page, switched on or off."""

    intervention: Intervention
    on: bool = True


def active(listed: Sequence[Listed]) -> Plan:
    """The plan of those that are switched on."""
    return tuple(one.intervention for one in listed if one.on)


def to_address(listed: Sequence[Listed]) -> str:
    """The list as one word of letters that need no escaping in an address."""
    return "~".join(map(_word, listed))


def from_address(text: str) -> tuple[Listed, ...]:
    """The list of `to_address`. Raises ConfigError saying which word is none."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            [f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,}"],
            subject="The plan in the address",
        )
    found, problems = [], []
    for word in filter(None, text.split("~")):
        try:
            found.append(_listed(word))
        except (ValueError, ConfigError) as error:
            problems.append(f"{word[:40]!r} is no intervention ({_short(error)})")
    if problems:
        raise ConfigError(problems, subject="The plan in the address")
    return tuple(found)


def _word(listed: Listed) -> str:
    one = listed.intervention
    letter = _WORDS[type(one)]
    values = [(field.name, getattr(one, field.name)) for field in fields(one)]
    parts = [_WRITE.get(name, str)(value) for name, value in values if value is not None]
    return ".".join([letter if listed.on else letter.upper(), *parts])


def _listed(word: str) -> Listed:
    letter, _, rest = word.partition(".")
    kind = _LETTERS.get(letter.lower())
    if kind is None:
        raise ValueError(f"kinds are {', '.join(_LETTERS)}")
    names = [field.name for field in fields(kind)]
    parts = rest.split(".", len(names) - 1)  # the last may hold a point
    values: dict[str, Any] = {
        name: _READ.get(name, _index)(part) for name, part in zip(names, parts, strict=False)
    }
    missing = [name for name in names if name not in values and name not in kind.optional]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    problems = kind.value_problems(values)
    if problems:
        raise ConfigError(problems)
    return Listed(kind(**values), letter.islower())


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


def _short(error: Exception) -> str:
    return error.problems[0] if isinstance(error, ConfigError) else str(error)


_WRITE: dict[str, Callable[[Any], str]] = {"strength": repr, "taps": _write_taps, "prompt": _write_prompt}
_READ: dict[str, Callable[[str], Any]] = {
    "where": str,
    "stage": str,
    "strength": float,
    "taps": _read_taps,
    "prompt": _read_prompt,
}

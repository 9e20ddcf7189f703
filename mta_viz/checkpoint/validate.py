"""The one check of the project's own files: a JSON or TOML object against a dataclass, all problems at once.

The dataclass's annotations are the format: types are strict (true is no number, 1.0 no whole number), ranges
stand in `Annotated`. Owns the sentences, `field is VALUE; expected ...`; files are opened by `door`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict, TypeVar, cast, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from mta_viz.errors import ConfigError, first_problems
from mta_viz.printed import short_repr

T = TypeVar("T")


def _finite(value: float) -> float:
    if math.isinf(value):
        raise ValueError("expected a finite number")
    return value


# A measured number, written as null where it is not finite: JSON has no NaN.
Measured = Annotated[
    float, BeforeValidator(lambda value: math.nan if value is None else value), AfterValidator(_finite)
]


def from_text(
    kind: type[T],
    text: str | bytes,
    subject: str,
    *,
    file_format: str | None = None,
    unknown: Literal["ignore", "forbid"] = "ignore",
) -> T:
    """The dataclass that a JSON text describes. `file_format`: what its field `format` must say.

    Raises ConfigError listing every field that is missing, of another kind or out of range, and with
    `unknown="forbid"` each that `kind` has not. The text may come from anywhere; nothing of it is run.
    """
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError as error:  # it tells the place in the text, nothing of what stands there
        raise ConfigError([f"it is no JSON ({error})"], subject) from None
    if file_format is not None and (not isinstance(data, dict) or data.get("format") != file_format):
        named = short_repr(data.get("format")) if isinstance(data, dict) else "none"
        raise ConfigError([f'its format is {named}; this version reads "{file_format}"'], subject)
    try:
        return _adapter(cast(Any, kind)).validate_json(text, strict=True, extra=unknown)
    except ValidationError as error:
        raise ConfigError(_problems(error, kind), subject) from None


def from_data(kind: type[T], data: Mapping[str, Any], subject: str) -> T:
    """The same of what a TOML file holds; a field that `kind` has not is a problem."""
    return from_text(kind, json.dumps(data, default=str), subject, unknown="forbid")


def value_problems(kind: type, values: Mapping[str, Any]) -> list[str]:
    """What is wrong with values for the fields of a dataclass: missing, unknown, of another kind."""
    try:
        _fields_adapter(kind).validate_python(dict(values))
    except ValidationError as error:
        return _problems(error, kind)
    return []


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _fields_adapter(kind: type) -> TypeAdapter[Any]:
    """Of the fields alone: a dataclass that checks itself when it is made would check itself for ever."""
    hints = get_type_hints(kind, include_extras=True)
    made = {
        field.name: Required[hints[field.name]]
        if field.default is MISSING
        else NotRequired[hints[field.name]]
        for field in fields(kind)
    }
    table = TypedDict(kind.__name__, made)  # type: ignore[misc]
    table.__pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(table)


def _problems(error: ValidationError, kind: type) -> list[str]:
    problems = [text for each in error.errors(include_url=False) for text in _sentences(each, kind)]
    return first_problems(list(dict.fromkeys(problems)), "problems")


def _sentences(error: ErrorDetails, kind: type) -> Sequence[str]:
    name, came = _place(error["loc"]), short_repr(error["input"])
    match error["type"]:
        case "missing":
            return [f"{name!r} is missing"]
        case "unexpected_keyword_argument" | "extra_forbidden":
            known = ", ".join(field.name for field in fields(kind))
            return [f"unknown field {name!r}; known are {known}"]
        case "value_error":
            own = error["ctx"]["error"]
            lead = f"{name}: " if name else ""
            return [lead + text for text in getattr(own, "problems", [str(own)])]
    expected = error["msg"].removeprefix("Input should be ").replace("a valid integer", "a whole number")
    return [f"{name or 'it'} is {came}; expected {expected[:1].lower()}{expected[1:]}"]


def _place(location: Sequence[int | str]) -> str:
    """`models[0].samples[2].depth`; the kinds a union tries are left out."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location if not _is_kind(part)]
    return cast(str, "".join(parts)).removeprefix(".")


def _is_kind(part: int | str) -> bool:
    return isinstance(part, str) and (part in ("str", "int", "float", "bool", "none") or "[" in part)

"""The one check of the project's own files: a JSON or TOML object against a dataclass, all problems at once.

The dataclass's annotations are the format: types are strict (true is no number, 1.0 no whole number), ranges
stand in `Annotated`. Owns the sentences, `field is VALUE; expected ...`; files are opened by `door`.
"""

import json
import math
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from io import BytesIO
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails, SchemaValidator, from_json

from mta_viz.checkpoint.door import has_few_values
from mta_viz.errors import MOST_LISTED, ConfigError, first_problems
from mta_viz.printed import printable, short_repr

T = TypeVar("T")


def _finite(value: float) -> float:
    if math.isinf(value):
        raise ValueError("is infinite; expected a finite number")
    return value


# A measured number, written as null where it is not finite: JSON has no NaN.
Measured = Annotated[
    float, BeforeValidator(lambda value: math.nan if value is None else value), AfterValidator(_finite)
]


_adapter: Any = cache(TypeAdapter)
_TOO_MANY = "it has more values than any file read here; give another"
# Shares of the values a text may have: of one where each is told that is wrong, and where unknown names are.
TOLD, STRICT = 0.01, 0.2
MOST_FIELDS = 1000  # of an object with more values than `TOLD`


@cache
def _failing_fast(kind: Any) -> SchemaValidator:
    """The check of a kind that ends a list at its first fault."""
    return SchemaValidator(_ending_early(_adapter(kind).core_schema))


def _ending_early(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_ending_early, schema))
    if not isinstance(schema, dict):
        return schema
    early = {"fail_fast": True} if schema.get("type") in ("list", "tuple", "set", "frozenset") else {}
    return {name: _ending_early(part) for name, part in schema.items()} | early


def from_text(
    kind: type[T],
    text: str | bytes,
    subject: str,
    *,
    file_format: str,
    older: Sequence[str] = (),
    remedy: str = "",
) -> T:
    """The dataclass of a JSON text whose field `format` says `file_format`, or one of the `older`.

    Raises ConfigError listing every field that is missing, of another kind or out of range, with `remedy`
    after them. Fields that `kind` has not are passed over. The text may come from anywhere; nothing is run.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    content = content.removeprefix(BOM_UTF8)
    if not has_few_values(content):
        raise ConfigError([_TOO_MANY], subject, remedy)
    try:
        named = _format_of(content)
    except ValueError as error:  # it tells the place in the text, nothing of what stands there
        raise ConfigError([f"it is no JSON ({error})"], subject, remedy) from None
    if named not in (file_format, *older):
        problem = f"its format is {short_repr(named)}; this version reads {file_format!r}"
        raise ConfigError([problem], subject, remedy)
    return _checked(kind, content, subject, remedy, extra="ignore")


def _format_of(content: bytes) -> Any:
    data = from_json(content, allow_inf_nan=False)
    return data.get("format") if isinstance(data, dict) else None


def from_data(kind: type[T], data: Mapping[str, Any], subject: str, *, others: bool = False) -> T:
    """The same of values that a file or a command line gave.

    A field that `kind` has not is a problem; with `others` it is passed over.
    """
    try:
        text = json.dumps(data, default=str).encode()
    except ValueError:  # Python writes no number of thousands of digits
        raise ConfigError(["it holds a number of thousands of digits"], subject) from None
    return _checked(kind, text, subject, "", extra="ignore" if others else "forbid")


def from_lines(kind: type[T], content: bytes, subject: str, remedy: str = "") -> tuple[T, ...]:
    """The dataclasses of a JSON text a line; empty lines are passed over, a field that `kind` has not is not.

    Raises ConfigError with the first problems, each with its line, and how much of the text was not looked at
    for them.
    """
    values: list[T] = []
    problems: list[str] = []
    lines = BytesIO(content.removeprefix(BOM_UTF8))
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                values.append(_of_line(kind, line))
        except ConfigError as error:
            problems += [f"line {number}: {text}" for text in error.problems]
        if len(problems) >= MOST_LISTED and (rest := sum(1 for _ in lines)):
            problems.append(f"the {rest:,} lines after it were not looked at")
    if problems or not values:
        raise ConfigError(problems or ["it has no line"], subject, remedy)
    return tuple(values)


def _of_line(kind: Any, line: bytes) -> Any:
    if not has_few_values(line, STRICT):
        raise ConfigError([_TOO_MANY])
    return _checked(kind, line, "", "", extra="forbid")


def _checked(kind: Any, text: bytes, subject: str, remedy: str, *, extra: Literal["ignore", "forbid"]) -> Any:
    large = not has_few_values(text, TOLD)
    if large and (problems := _problems_at_once(kind, text)):
        raise ConfigError(problems, subject, remedy)
    check = _failing_fast(kind) if large else _adapter(kind)
    try:
        return check.validate_json(text, strict=True, extra=extra)
    except ValidationError as error:
        more = ["of each list only the first fault is told"] * large
        raise ConfigError([*_problems(error, kind), *more], subject, remedy) from None


def _problems_at_once(kind: Any, text: bytes) -> list[str]:
    """Why a large text is not checked: pydantic keeps a copy of the whole for each field it lacks."""
    try:
        data = from_json(text)
    except ValueError:
        return []
    if _widest(data) > MOST_FIELDS:
        return [_TOO_MANY]
    needed = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]
    return [f"{name!r} is missing" for name in needed if isinstance(data, dict) and name not in data]


def _widest(data: Any) -> int:
    """The most names that an object in a JSON value has."""
    if isinstance(data, dict):
        return max(len(data), *map(_widest, data.values()), 0)
    return max(map(_widest, data), default=0) if isinstance(data, list) else 0


def value_problems(kind: type, values: Mapping[str, Any]) -> list[str]:
    """What is wrong with values for the fields of a dataclass: missing, unknown, of another kind."""
    try:
        _fields_model(kind).model_validate(dict(values))
    except ValidationError as error:
        return _problems(error, kind)
    return []


@cache
def _fields_model(kind: Any) -> Any:
    """Of the fields alone: a dataclass that checks itself when it is made would check itself for ever."""
    hints = get_type_hints(kind, include_extras=True)
    made: Any = {
        field.name: (hints[field.name], ... if field.default is MISSING else field.default)
        for field in fields(kind)
    }
    return create_model(kind.__name__, __config__=ConfigDict(strict=True, extra="forbid"), **made)


def _problems(error: ValidationError, kind: type) -> list[str]:
    found = dict.fromkeys(text for each in error.errors(include_url=False) for text in _sentences(each, kind))
    return first_problems(list(found), "problems")


def _sentences(error: ErrorDetails, kind: type) -> Sequence[str]:
    name, came = printable(_place(error["loc"])), short_repr(error["input"])
    match error["type"]:
        case "json_invalid":  # the input is the whole text
            return [error["msg"].replace("Invalid JSON", "it is no JSON")]
        case "missing":
            return [f"{name!r} is missing"]
        case "unexpected_keyword_argument" | "extra_forbidden":
            known = ", ".join(field.name for field in fields(kind))
            return [f"unknown field {name!r}; known are {known}"]
        case "value_error":
            own = error["ctx"]["error"]
            if not isinstance(own, ConfigError):  # what a validator says of its field
                return [f"{name or 'it'} {own}"]
            return [f"{name}: {problem}" if name else problem for problem in own.problems]
    expected = error["msg"].removeprefix("Input should be ")
    for pydantic, ours in _WORDS.items():
        expected = expected.replace(pydantic, ours)
    return [f"{name or 'it'} is {came}; expected {expected[:1].lower()}{expected[1:]}"]


_WORDS = {
    "a valid integer": "a whole number",
    "a valid string": "a text",
    "a valid array": "a list",
    "String should have": "a text of",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}


def _place(location: Sequence[int | str]) -> str:
    """`models[0].samples[2].depth`; the kinds a union tries are left out."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part not in ("str", "int", "float") and "[" not in part and "-" not in part:
            place += f".{part}"
    return place.removeprefix(".")

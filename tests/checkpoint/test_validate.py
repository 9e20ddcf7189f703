"""A file's object against a dataclass: every problem at once, its field, what came, what was expected."""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from mta_viz.checkpoint.validate import Measured, from_data, from_text, value_problems
from mta_viz.errors import ConfigError


@dataclass(frozen=True)
class Row:
    name: str
    count: Annotated[int, Field(ge=0, le=9)]
    mean: Measured = 0.5


@dataclass(frozen=True)
class Sheet:
    kind: Literal["a", "b"]
    rows: tuple[Row, ...]
    on: bool = True

    def __post_init__(self) -> None:
        if len(self.rows) > 2:
            raise ConfigError(["too many rows", "and too long"])


GOOD: dict[str, Any] = {"format": "sheet 1", "kind": "a", "rows": [{"name": "é", "count": 1, "mean": None}]}


def read(data: Any) -> Sheet:
    text = data if isinstance(data, str | bytes) else json.dumps(data)
    return from_text(Sheet, text, "f", file_format="sheet 1", remedy="Write it again.")


def problems(data: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError, match=r"(?s)^f cannot be used.*\nWrite it again\.$") as caught:
        read(data)
    return caught.value.problems


def test_a_good_file_gives_the_value_and_null_is_a_number_that_was_not_finite():
    found = read(GOOD)
    assert (found.kind, found.on, found.rows[0].name) == ("a", True, "é")
    assert math.isnan(found.rows[0].mean)
    assert read(b"\xef\xbb\xbf" + json.dumps(GOOD | {"more": 1}).encode()).kind == "a"


def test_every_problem_is_told_at_once():
    rows = [{"name": 3, "count": 10}, {"count": True, "mean": "x"}, {"name": "c", "count": 1.0}]
    assert problems(GOOD | {"kind": "c", "rows": rows, "on": 1}) == (
        "kind is 'c'; expected 'a' or 'b'",
        "rows[0].name is 3; expected a text",
        "rows[0].count is 10; expected at most 9",
        "'rows[1].name' is missing",
        "rows[1].count is True; expected a whole number",
        "rows[1].mean is 'x'; expected a valid number",
        "rows[2].count is 1.0; expected a whole number",
        "on is 1; expected a valid boolean",
    )


def test_what_the_value_says_of_itself_is_among_the_problems():
    rows = [{"name": "a", "count": 1}] * 3
    assert problems(GOOD | {"rows": rows}) == ("too many rows", "and too long")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        ('{"format": NaN}', "it is no JSON"),
        ('{"format": "\\ud800"}', "it is no JSON"),
        ("\ud800", "it is no JSON"),
        ("9" * 6000, "it is no JSON"),
        ("[]", "its format is None"),
        ('{"format": "sheet 2"}', "its format is 'sheet 2'; this version reads 'sheet 1'"),
        ('{"format": ["' + "x" * 10**6 + '"]}', "its format is ['xxx"),
    ],
)
def test_another_text_is_refused_in_one_short_line(text: str | bytes, words: str):
    (problem,) = problems(text)
    assert problem.startswith(words) and len(problem) < 200


def test_a_message_is_short_whatever_a_file_holds():
    found = problems(GOOD | {"rows": [{"name": "é" * 500, "count": "\x1b]0;" * 100}] * 1000})
    assert len(found) == 21 and found[-1] == "and 980 more problems"
    assert "\x1b" not in str(found) and sum(map(len, found)) < 5000


def test_a_recipe_says_which_fields_there_are():
    with pytest.raises(ConfigError) as caught:
        from_data(Row, {"nam": "a", "count": 10**5000}, "The file")
    assert "thousands of digits" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        from_data(Row, {"nam": "a", "count": math.nan}, "The file")
    assert caught.value.problems == (
        "'name' is missing",
        "count is nan; expected a whole number",
        "unknown field 'nam'; known are name, count, mean",
    )


def test_values_are_checked_without_making_one():
    assert value_problems(Row, {"name": "a", "count": 1}) == []
    assert value_problems(Row, {"name": "a", "count": -1, "mean": math.inf, "x": 0}) == [
        "count is -1; expected at least 0",
        "mean is infinite; expected a finite number",
        "unknown field 'x'; known are name, count, mean",
    ]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "rows", "name", "count"]), inner)
), max_leaves=8))  # fmt: skip
def test_nothing_else_is_ever_raised(value: Any):
    for data in (value, GOOD | {"rows": value}, GOOD | {"rows": [value]}):
        try:
            read(json.dumps(data))
        except ConfigError as error:
            assert error.problems

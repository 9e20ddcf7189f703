"""The query box's language against plain Python, and what it says of a query it cannot read."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mta_viz.analysis.kernels.query import QueryError, parse, select_rows
from mta_viz.analysis.kernels.table import COLUMNS

OPS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
       "!=": operator.ne}  # fmt: skip


def row(**values):
    return {**dict.fromkeys(COLUMNS), "faint": False, "shape": "none of these", "where": "pre", **values}


ROWS = [
    row(layer=3, head=0, where="post", diagonal=0.6, shape="diagonal", survives=True),
    row(layer=2, head=1, where="post", diagonal=0.9, shape="near identity"),
    row(layer=3, head=2, where="pre", diagonal=0.9, shape="edge-first"),
    row(layer=4, head=3, where="head_pre", shape="contrast", faint=True),
]
SEVERAL = [
    row(head=0, shape="edge-first", names="edge-first +0.91; priming +0.67"),
    row(head=1, shape="diagonal at -2", names="diagonal at -2 +1.00"),
    row(head=2, shape="negative diagonal at +1", names="negative diagonal at +1 -0.70; key shift +0.55"),
    row(head=3, shape="edge", names="edge +0.91"),
    row(head=4, shape="none of these"),
]


def heads(query):
    return [found["head"] for found in select_rows(ROWS, query)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [0, 1, 2, 3]),
        ("diagonal > 0.5 and layer >= 3 and post", [0]),
        ("diagonal > 0.5, layer >= 3, pre", [2]),
        ("pre or post, layer < 3", [1, 2]),  # and binds tighter
        ("(pre or post), layer < 3", [1]),
        ("not post", [2, 3]),
        ("diagonal != 0.9", [0]),  # the fourth has no such score
        ("not diagonal = 0.9", [0, 3]),
        ("shape = diagonal", [0]),
        ("'near identity' or contrast", [1, 3]),
        ("shape = edge-first or shape = 'Edge First'", [2]),
        ("faint", [3]),
        ("survives", [0]),
        ("head-pre", [3]),
        ("where != post and layer = 3.0", [2]),
        ("anti-diagonal > -1e9", []),
    ],
)
def test_a_query_returns_exactly_its_rows(query, expected):
    assert heads(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("shape = priming", [0]),
        ("priming", [0]),
        ("shape = edge", [0, 3]),
        ("edge and not priming", [3]),
        ("shape = edge-last", []),
        ("shape = diagonal", [1]),
        ("shape = 'diagonal at -2'", [1]),
        ("'diagonal at +1'", []),
        ("'negative diagonal'", [2]),
        ("'key shift'", [2]),
        ("shape != edge", [1, 2, 4]),
        ("'none of these'", [4]),
        ("names = 'edge +0.91'", [3]),
    ],
)
def test_a_shape_is_that_of_any_name_and_of_its_kind(query, expected):
    assert [found["head"] for found in select_rows(SEVERAL, query)] == expected


@pytest.mark.parametrize(
    ("query", "place", "words"),
    [
        ("diagonl > 0.5", 1, "Near it: diagonal"),
        ("layer >= three", 10, "a number to compare layer with"),
        ("layer", 1, "a comparison after it, such as layer > 0.5"),
        ("pre and", 8, "the end came, expected a column"),
        ("(pre", 5, 'expected ")"'),
        ("pre post", 5, '"post" came, expected "and", "or"'),
        ("layer > 1; import os", 10, '";" came'),
        ("shape > diagonal", 7, "shape is a text"),
        ("shape = near identity", 14, '"identity" came'),
        ("faint = 1", 7, 'write "faint" or "not faint"'),
        ("(" * 60, 51, "at most 50"),
    ],
)
def test_an_error_says_where_what_and_what_instead(query, place, words):
    with pytest.raises(QueryError, match=f"at character {place}:") as error:
        parse(query)
    assert words in str(error.value)


numbers = st.floats(-2, 2).map(lambda value: round(value, 2))
atoms = st.one_of(
    st.tuples(st.sampled_from(["diagonal", "first_of_run", "layer"]), st.sampled_from(sorted(OPS)), numbers),
    st.sampled_from(["pre", "post", "faint"]),
)
trees = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    ),
)
rows = st.builds(
    row,
    layer=st.integers(0, 3),
    where=st.sampled_from(["pre", "post"]),
    faint=st.booleans(),
    diagonal=st.none() | numbers,
    first_of_run=st.none() | numbers,
)


def written(tree):
    if isinstance(tree, str):
        return tree
    if tree[0] == "not":
        return f"not ({written(tree[1])})"
    if tree[0] in ("and", "or"):
        return f"({written(tree[1])}) {tree[0]} ({written(tree[2])})"
    return f"{tree[0].replace('_', '-')} {tree[1]} {tree[2]}"


def holds(tree, one):
    if isinstance(tree, str):
        return one["faint"] if tree == "faint" else one["where"] == tree
    if tree[0] == "not":
        return not holds(tree[1], one)
    if tree[0] == "and":
        return holds(tree[1], one) and holds(tree[2], one)
    if tree[0] == "or":
        return holds(tree[1], one) or holds(tree[2], one)
    return one[tree[0]] is not None and OPS[tree[1]](one[tree[0]], tree[2])


@given(trees, st.lists(rows, max_size=8))
def test_any_query_agrees_with_plain_python(tree, some):
    assert select_rows(some, written(tree)) == tuple(one for one in some if holds(tree, one))


@given(st.text(alphabet="prelay><=!()'\",.0 -and√", max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        parse(text)(row())
    except QueryError as error:
        assert "at character" in str(error)


def test_columns_answer_to_the_names_they_had():
    rows = [row(layer=at, first_of_run=value) for at, value in enumerate((0.2, 0.9, None))]
    assert select_rows(rows, "edge_first > 0.5") == select_rows(rows, "first_of_run > 0.5") == (rows[1],)
    assert select_rows(rows, "", "edge_first") == (rows[1], rows[0], rows[2])

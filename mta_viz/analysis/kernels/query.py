"""A query of the kernel table: `diagonal > 0.5 and layer >= 3 and post` as a test of its rows.

Read letter by letter, nothing is ever executed. Layers and heads count from 0, as in addresses, files and on
the command line.

    query      = and-part { "or" and-part }
    and-part   = part { ("and" | ",") part }
    part       = "not" part | "(" query ")" | column op value | place | "faint" | "survives" | shape
    op         = > | < | >= | <= | = | == | !=

A column without a value satisfies no comparison. A name with a space is written in quotes. A shape is that of
every name that fires, not of the first alone, and of every name of its kind: edge of edge-first, diagonal of
"diagonal at -2".
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING
from mta_viz.analysis.kernels.measures import NAMES, OPPOSED
from mta_viz.analysis.kernels.naming import UNNAMED, family, names_of
from mta_viz.analysis.kernels.table import COLUMNS, HEAD_SCORES, KEY_QUERY_SCORES, OLDER, Row
from mta_viz.errors import MtaVizError

Test = Callable[[Mapping[str, Any]], bool]

TEXTS = ("where", "shape", "verdict", "evidence", "names")
FLAGS = ("faint", "survives")
PLACES = (*KEY_QUERY, *MIXING)
NO_SORT = "layer and head"
SORTS = (NO_SORT, "score", *KEY_QUERY_SCORES, *HEAD_SCORES)
SHAPES = (
    *(*NAMES, *OPPOSED.values(), "negative diagonal", "negative induction", "negative anti-diagonal"),
    *("edge", "edge-first", "edge-last", "both edges", "KV shift", "key shift", "single tap"),
    *("contrast", "averaging", "swap", "permutation"),
    *UNNAMED,
)
_OPS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_WORDS = ("and", "or", "not")
_MAX_DEPTH = 50
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w.]))"""
    r"""|(?P<op>>=|<=|==|!=|[><=])|(?P<mark>[(),])|(?P<text>"[^"]*"|'[^']*')|(?P<word>[a-z_][\w-]*)""",
    re.IGNORECASE | re.ASCII,
)


class QueryError(MtaVizError):
    """A query that cannot be read; says where, what came and what was expected."""


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


def select_rows(
    rows: Sequence[Row], query: str, sort: str = NO_SORT, places: Collection[str] = PLACES
) -> tuple[Row, ...]:
    """Exactly the rows of these places that satisfy the query, the largest of the column `sort` first.

    All of them for an empty query; rows without a value in that column come last. Raises QueryError.
    """
    test = parse(query)
    chosen = [row for row in rows if test(row) and row["where"] in places]
    sort = OLDER.get(sort, sort)
    if sort not in SORTS:
        raise QueryError(f"The kernels cannot be sorted by {sort!r}; there are {', '.join(SORTS)}.")
    if sort != NO_SORT:
        chosen.sort(key=lambda row: (row[sort] is None, -float(row[sort] or 0)))
    return tuple(chosen)


def parse(query: str) -> Test:
    """The query as a test of one row of `kernel_table`. Raises QueryError."""
    reader = _Reader(_tokens(query))
    if reader.now.kind == "end":
        return lambda row: True
    test = reader.either()
    if reader.now.kind != "end":
        raise reader.error('"and", "or", a comma or the end')
    return test


def _tokens(query: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(query):
        match = _TOKEN.match(query, at)
        if match is None:
            raise _unexpected(at, query[at], "a column, a place, a shape, a number or a comparison")
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "", len(query))]


def _unexpected(at: int, came: str, expected: str) -> QueryError:
    what = f'"{came}"' if came else "the end"
    return QueryError(f"The query cannot be read at character {at + 1}: {what} came, expected {expected}.")


class _Reader:
    """Goes through the tokens once; each method reads one part of the grammar."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens, self._index, self._depth = tokens, 0, 0

    @property
    def now(self) -> _Token:
        """The token to be read next."""
        return self._tokens[self._index]

    def error(self, expected: str) -> QueryError:
        """What to raise when the next token is not `expected`."""
        return _unexpected(self.now.place, self.now.text, expected)

    def either(self) -> Test:
        """Parts joined by `or`."""
        tests = [self._all()]
        while self._takes("or"):
            tests.append(self._all())
        return lambda row: any(test(row) for test in tests)

    def _all(self) -> Test:
        tests = [self._part()]
        while self._takes("and", ","):
            tests.append(self._part())
        return lambda row: all(test(row) for test in tests)

    def _part(self) -> Test:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(f'at most {_MAX_DEPTH} "not" and parentheses inside each other')
        test = self._single()
        self._depth -= 1
        return test

    def _single(self) -> Test:
        if self._takes("not"):
            inner = self._part()
            return lambda row: not inner(row)
        if self._takes("("):
            inside = self.either()
            if not self._takes(")"):
                raise self.error('")"')
            return inside
        if self.now.kind not in ("word", "text") or self.now.text.lower() in _WORDS:
            raise self.error("a column, a place (pre, post, head_pre, head_post) or a shape")
        name = self._next()
        return self._comparison(name) if self.now.kind == "op" else _named(name)

    def _comparison(self, name: _Token) -> Test:
        column = OLDER.get(_plain(name.text), _plain(name.text))
        if column in FLAGS:
            raise self.error(f'no comparison: write "{column}" or "not {column}"')
        if name.kind == "text" or column not in COLUMNS:
            raise _no_column(name)
        symbol = self._next()
        compare, is_text = _OPS[symbol.text], column in TEXTS
        if is_text and symbol.text not in ("=", "==", "!="):
            raise _unexpected(symbol.place, symbol.text, f"= or != : {column} is a text")
        if is_text and self.now.kind not in ("word", "text"):
            raise self.error(f'a name to compare {column} with, in quotes if it has a space: "near identity"')
        if is_text:
            text = _folded(column, _unquoted(self._next()))
            if column == "shape":
                return lambda row: (text in _shapes(row)) == (symbol.text != "!=")
            return lambda row: row[column] is not None and compare(_folded(column, row[column]), text)
        if self.now.kind != "number":
            raise self.error(f"a number to compare {column} with")
        value = float(self._next().text)
        return lambda row: row[column] is not None and compare(row[column], value)

    def _next(self) -> _Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _takes(self, *texts: str) -> bool:
        """Whether the next token is one of these words or marks; it is read then."""
        taken = self.now.kind in ("word", "mark") and self.now.text.lower() in texts
        self._index += taken
        return taken


def _named(token: _Token) -> Test:
    """A word that stands alone: a place, a flag or a shape."""
    word = _plain(token.text)
    if token.kind == "word" and word in PLACES:
        return lambda row: row["where"] == word
    if token.kind == "word" and word in FLAGS:
        return lambda row: bool(row[word])
    shape = _folded("shape", _unquoted(token))
    if family(shape) in {_folded("shape", known) for known in SHAPES}:
        return lambda row: shape in _shapes(row)
    if token.kind == "word" and word in COLUMNS:
        raise _unexpected(token.place, token.text, f"a comparison after it, such as {word} > 0.5")
    raise _no_column(token)


def _shapes(row: Mapping[str, Any]) -> set[str]:
    """All names of a row and their kinds, as `_folded` writes them."""
    return {_folded("shape", kind) for name in names_of(row) for kind in (name, family(name))}


def _no_column(token: _Token) -> QueryError:
    known = [name.replace("_", "-") for name in COLUMNS] + [*COLUMNS, *PLACES, *FLAGS, *SHAPES]
    near = list(dict.fromkeys(map(_plain, get_close_matches(_unquoted(token).lower(), known, 5, 0.6))))
    hint = f" Near it: {', '.join(near[:3])}." if near else " The table's headings are the columns."
    return QueryError(f"{_unexpected(token.place, _unquoted(token), 'a column, a place or a shape')}{hint}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _unquoted(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "text" else token.text


def _folded(column: str, text: str) -> str:
    """Names alike whether written with hyphens, underscores or spaces; sentences as they are."""
    return text.casefold() if column == "verdict" else re.sub(r"[-_ ]+", " ", text.strip()).casefold()

"""The columns of the kernel table: every score and name with its definition, and a query of them.

Definitions are read off the functions that compute the values, so a page of them cannot say something else
than the code. Owns their order and grouping, and the shipped rates at which names and probes err, as measured
by `benchmarks.shape_rates`.

The query box of the kernel atlas: `diagonal > 0.5 and layer >= 3 and post` as a test of table rows. Read
letter by letter, nothing is ever executed. Layers and heads count from 0, as in addresses, files and on the
command line.

    query      = and-part { "or" and-part }
    and-part   = part { ("and" | ",") part }
    part       = "not" part | "(" query ")" | column op value | place | "faint" | "survives" | shape
    op         = > | < | >= | <= | = | == | !=

A column without a value satisfies no comparison. A name with a space is written in quotes. A shape is that of
every name that fires, not of the first alone, and of every name of its kind: edge of edge-first, diagonal of
"diagonal at -2".
"""

import inspect
import json
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from mta_viz.analysis.kernels import edges, envelope, measures, mixing, naming, probes, table
from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, NEAR_IDENTITY
from mta_viz.analysis.kernels.measures import NAMES, OPPOSED
from mta_viz.analysis.kernels.naming import UNNAMED, family, names_of
from mta_viz.analysis.kernels.table import COLUMNS, HEAD_SCORES, KEY_QUERY_SCORES, OLDER, Row
from mta_viz.errors import MtaVizError

FILE = "measured_rates.json"


@dataclass(frozen=True)
class MeasuredRate:
    """`hits` of `n` kernels of one kind and size, e.g. those with any name.

    `of_which`: how often each name was given, where several were.
    """

    kernels: str
    size: str
    n: int
    hits: int
    of_which: Mapping[str, int]

    @property
    def share(self) -> float:
        """hits / n."""
        return self.hits / self.n


@dataclass(frozen=True)
class MeasuredRates:
    """`false_names`: kernels of noise, hits have a name. `power`: planted shapes, hits have the right one,
    `of_which` counts the wrong ones. `probes`: kernels of noise, hits pass the probe of a claim."""

    false_names: tuple[MeasuredRate, ...]
    power: tuple[MeasuredRate, ...]
    probes: tuple[MeasuredRate, ...]

    def text(self) -> str:
        """The file's contents: a line a rate."""
        lines = {
            name: ",\n".join(f"  {json.dumps(asdict(row))}" for row in rows)
            for name, rows in vars(self).items()
        }
        return "{\n" + ",\n".join(f'"{name}": [\n{rates}\n]' for name, rates in lines.items()) + "\n}\n"


@cache
def measured_rates() -> MeasuredRates:
    """The shipped rates."""
    stored = json.loads((files(__package__) / FILE).read_text(encoding="utf-8"))
    rates = {name: tuple(MeasuredRate(**row) for row in rows) for name, rows in stored.items()}
    return MeasuredRates(**rates)


Documented = Callable[..., Any]

NOTATION = (
    "k[n, d] is the tap that reads the query n before (the lag, 0 = now) and the key d after (negative = "
    "earlier). The own tap is k[0, 0]; r is k with the own tap set to 0; ||.|| is the root of the summed "
    "squares; s is the sign of the own tap, +1 where |own tap| < 0.1 ||k||."
)
CHANCE = (
    "A template's name needs all of: a size that Gaussian kernels reach in 1 of "
    f"{1 / (1 - naming.SIZE_QUANTILE):.0f}, p <= {measures.LARGEST_P:g} when the kernel's own taps change "
    "places, and coherence; an edge, that 1 of 200 Gaussian kernels has one as clear. Trained taps are "
    "neither Gaussian nor exchangeable: most energy lies near the own tap, and neighbours are alike. So how "
    "many names a model has is set beside how many surrogates with its own envelope get. Edges and single "
    "taps cannot be tested by permutation: their evidence is the probe, and that comparison."
)
TESTED = (
    f"Benjamini-Hochberg over all key-query kernels of the model keeps the kernel both by p, of its taps in "
    f"other places, at {envelope.FALSE_SHARE * 100:g} %, and by envelope_p, of surrogates, at "
    f"{envelope.ENVELOPE_FALSE_SHARE * 100:g} %. That holds against kernels like the surrogates: "
    "signs at random, energies as the envelope says, neighbours correlated, "
    "otherwise independent."
)
ORDER = (
    "Not finite and all zero come before all. Else every rule that fires gives a name, in the column names, "
    "the one that holds most of the energy off the own tap first: that is the shape. Without a name a "
    "kernel is near identity or none of these."
)
MIXING_WORDS = "W[target, source] of a group of n heads; a row of W is what one target head takes."
MEANINGS: dict[str, str] = {
    "key shift": "A dominant tap that reads the query itself (n = 0) and another key.",
    "KV shift": "The key shift by -1 with the own tap's sign: each key also counts for the next.",
    "single tap": "A dominant tap that reads an earlier query.",
    naming.IDENTITY: f"No name, and under {NEAR_IDENTITY * 100:g} % of the energy is off the own tap.",
    "faint": f"A name that holds less than {naming.FAINT * 100:g} % of the kernel's energy.",
    naming.NONE: "None of the rules gives a name. That is an answer.",
    naming.ALL_ZERO: "Every tap is 0: the head's map is erased here.",
    naming.NOT_FINITE: "Taps that are NaN or infinite: nothing can be measured.",
}
_RULES: dict[str, Documented] = {
    "template (diagonal, induction, ...)": naming.template_names,
    "edge-first, edge-last, both edges, edge": naming.edge_name,
    "dominant tap": naming.dominant_name,
}
_EDGES: dict[str, Documented] = {
    "denoised": measures.denoised,
    "first_of_run, last_of_run": measures.edge_indices,
    "EX": measures.run_edges,
    "edge": edges.best_edges,
    "dominant_share": measures.dominant_tap,
}
_HEADS: dict[str, Documented] = {
    **{"scaled_identity": mixing.scaled_identity, "mean_diagonal": mixing.mean_diagonal},
    **{"off_diagonal_ratio": mixing.off_diagonal_ratio, "permutation": mixing.permutation_match},
    **{"subtracted_fraction": mixing.subtracted_fraction, "contrast": mixing.contrast},
    **{"common_mode": mixing.common_mode, "energy_off_identity": mixing.energy_off_own},
    **{"angle": mixing.pair_angle, "name of a row": mixing.row_name},
}
_CHANCE: dict[str, Documented] = {
    **{"size": naming.size_threshold, "p": naming.permutation_p, "coherent": measures.coherent},
    **{"dominant": naming.dominant_threshold, "envelope": envelope.Envelope},
    "envelope_p": envelope.envelope_p,
    **{"template_rate, edge_rate": envelope.named_share, "number of names": table.ShapeCounts},
    "probe": probes.run_probe,
}


@dataclass(frozen=True)
class Section:
    """A group of definitions: `entries` are (name as in the table's columns, definition)."""

    title: str
    intro: str
    entries: tuple[tuple[str, str], ...]


def sections() -> Iterator[Section]:
    """All definitions, in the order in which a name comes about."""
    yield Section("Measures of a key-query kernel", NOTATION, _from_docs(measures.MEASURES))
    yield Section("Templates", _doc(measures.template_scores), _templates())
    yield Section("Edges and single taps", "Shapes that hang on one or two taps.", _from_docs(_EDGES))
    yield Section("Could it be chance?", CHANCE, (*_from_docs(_CHANCE), ("survives", TESTED)))
    yield Section("What a kernel is called", ORDER, (*_from_docs(_RULES), *MEANINGS.items()))
    yield Section("Rows of a head-mixing matrix", MIXING_WORDS, _from_docs(_HEADS))


def documented(title: str, intro: str, functions: dict[str, Documented]) -> Section:
    """A section whose entries are the docstrings of what computes them."""
    return Section(title, intro, _from_docs(functions))


def _from_docs(functions: dict[str, Documented]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _doc(function)) for name, function in functions.items())


def _templates() -> tuple[tuple[str, str], ...]:
    """The list in the library's docstring, a line a template, and which kernels have no room for one."""
    lines = (inspect.getdoc(measures.library) or "").splitlines()
    drawn = (line.removeprefix("- ") for line in lines if line.startswith("- "))
    named = (re.split(r" (?=\()|: ", line, maxsplit=1) for line in drawn)  # before its offsets, else its text
    return (*((name, text) for name, text in named), ("too small for a shape", _doc(measures.cannot_show)))


def _doc(documented: Any) -> str:
    """A docstring with its lines joined and its names of code unmarked; paragraphs stay apart."""
    paragraphs = (inspect.getdoc(documented) or "").replace("`", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


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

"""Every score and name of the kernel table with its definition.

Definitions are read off the functions that compute the values, so a page of them cannot say something else
than the code. Owns their order and grouping, and the shipped rates at which names and probes err, as measured
by `benchmarks.shape_rates`.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mta_viz.analysis.kernels import edges, envelope, measures, mixing, naming, probes, table
from mta_viz.analysis.kernels.kernels import NEAR_IDENTITY

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

"""What the gallery says in words: the verdict line, what sizes cannot show, the marks, the query's help."""

from collections.abc import Sequence

import streamlit as st

from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.shapes.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE, UNNAMED
from mta_viz.analysis.shapes.table import KEY_QUERY, Row, ShapeCounts
from mta_viz.analysis.shapes.templates import cannot_show, size_words
from mta_viz.ui import state

MARKS = (
    "Under each tile: D diagonal · I induction · A anti-diagonal · P priming or inhibition · F, L edge "
    "first, last · S key shift · T single tap · B blur or sharpening · = near identity · none "
    "of these as ·; small: faint. In head mixing: C contrast · M averaging · X swap or permutation."
)
EXAMPLES = (
    "diagonal > 0.5 and layer >= 3 and pre",
    "shape = edge-first or shape = edge-last",
    "energy_off_identity > 0.5, not 'none of these'",
    "survives",
    "head_post and contrast > 0.9",
)
SYNTAX = (
    "Compare a column of the table with a number (> < >= <= = !=), or name a place (pre, post, head_pre, "
    "head_post), a shape, faint or survives. Join with and, or, not, parentheses; a comma is and. A name "
    "with a space stands in quotes. Layers and heads count from 0 here, as in links and files. A kernel "
    "without a value in a column satisfies no comparison with it."
)


def verdict_line(counts: ShapeCounts) -> str:
    """How many kernels have a name, and how many names chance alone would give."""
    shapes = counts.shapes
    faint = sum(number for name, number in shapes.items() if name.startswith("faint "))
    plain = {name: number for name, number in shapes.items() if not name.startswith("faint ")}
    named = sum(number for name, number in plain.items() if name not in UNNAMED)
    parts = [
        f"{plain.get(IDENTITY, 0) + faint} near identity"
        + (f" ({faint} with a faint name)" if faint else ""),
        f"{named} with a named shape",
        f"{plain.get(NONE, 0)} changed without a name",
        *(f"{plain[name]} {name}" for name in (ALL_ZERO, NOT_FINITE) if name in plain),
    ]
    return f"{counts.kernels} kernels: {', '.join(parts)}. {_chance(counts)}"


def _chance(counts: ShapeCounts) -> str:
    told = (
        f"Names from templates (diagonal, priming, blur ...): {counts.templates}, expected by chance: "
        f"at most {counts.expected_templates:.2g}"
    )
    edge = f"edge-like, largest tap on the previous key with the opposite sign: {counts.edge_like}"
    return f"{told}; {edge}, expected by chance: {counts.expected_edge_like:.2g}."


def limits_line(rows: Sequence[Row]) -> str:
    """What kernels of these sizes have no room for; empty when they can show everything."""
    sizes = {(row["c_q"], row["c_k"], row["first_key"]) for row in rows if row["where"] in KEY_QUERY}
    told = []
    for c_q, c_k, first in sorted(sizes):
        offsets = Offsets(tuple(range(1 - c_q, 1)), tuple(range(first, first + c_k)))
        missing = cannot_show(offsets)
        if missing:
            told.append(
                f"A {size_words(c_q, c_k)} kernel cannot show: {', '.join(missing)}; see its dominant tap."
            )
    return " ".join(told)


def draw_help() -> None:
    """The query's syntax, with examples that are put in the box by a click."""
    with st.popover("Query help", icon=":material/help:"):
        st.text(SYNTAX)
        for example in EXAMPLES:
            st.button(
                f"`{example}`", key=f"query.{example}", on_click=state.put, args=("kernel_query", example),
                width="stretch",
            )  # fmt: skip

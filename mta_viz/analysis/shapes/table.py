"""The kernel atlas as a table: one row per kernel of a model, from a state dict; no model is built.

Owns the columns and the counts over a model. A row of a head-mixing matrix is a kernel of its own.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from mta_viz.analysis.kernels import MixPlace, Offsets, Place, layer_kernels
from mta_viz.analysis.shapes.heads import HeadShape, name_head_rows
from mta_viz.analysis.shapes.measures import MEASURES
from mta_viz.analysis.shapes.naming import KernelShape, name_kernels
from mta_viz.analysis.shapes.significance import at_least, benjamini_hochberg
from mta_viz.analysis.shapes.templates import LARGEST_P, NAMES
from mta_viz.config import ModelConfig

if TYPE_CHECKING:
    import pandas

LEVEL = 0.05
KEY_QUERY: tuple[Place, ...] = ("pre", "post")
MIXING: tuple[MixPlace, ...] = ("head_pre", "head_post")
FIRST_COLUMNS = ("layer", "head", "where", "shape", "faint", "verdict", "evidence", "score", "p", "survives")
KEY_QUERY_SCORES = (
    *MEASURES,
    *(name.replace("-", "_") for name in NAMES),
    "edge_first",
    "edge_last",
    "dominant_share",
    "dominant_query",
    "dominant_key",
    "dominant_sign",
)
HEAD_SCORES = (
    "group",
    "source",
    "scaled_identity",
    "permutation",
    "mean_diagonal",
    "off_diagonal_ratio",
    "own_weight",
    "contrast",
    "subtracted_fraction",
    "common_mode",
    "angle",
)
COLUMNS = (*FIRST_COLUMNS, "c_q", "c_k", "first_key", *KEY_QUERY_SCORES, *HEAD_SCORES)

WHOLE = (
    *("layer", "head", "group", "source"),
    *("c_q", "c_k", "first_key", "dominant_query", "dominant_key", "dominant_sign"),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class ShapeCounts:
    """Names over all key-query kernels of a model, beside what chance would give.

    `templates`: kernels with a template's name, `survive` those left when at most 5 % may be false
    (Benjamini-Hochberg), `expected_templates` the names that random taps would get at most.
    `edge_like`: kernels whose largest tap besides the own one is the previous key's with the opposite
    sign; `expected_edge_like` and `edge_p` (at least so many) if that tap's place and sign were random.
    """

    kernels: int
    shapes: dict[str, int]
    templates: int
    survive: int
    expected_templates: float
    edge_like: int
    expected_edge_like: float
    edge_p: float


def kernel_table(state_dict: Mapping[str, Tensor], config: ModelConfig) -> tuple[Row, ...]:
    """One row per kernel, `COLUMNS` in order; None where a column means nothing for it.

    `where` is pre or post (key-query kernels) or head_pre or head_post (rows of a head-mixing matrix, `head`
    is the target and `source` the head it is contrasted with). `state_dict` has the names of
    `parameter_shapes(config)`. `survives`: among all template tests of the model, at most 5 % false.
    """
    rows = [row for layer in range(config.n_layers) for row in _layer_rows(state_dict, config, layer)]
    tested = [index for index, row in enumerate(rows) if row["p"] is not None]
    kept = benjamini_hochberg(np.array([rows[index]["p"] for index in tested], float), LEVEL)
    survivors = {index for index, keep in zip(tested, kept, strict=True) if keep}
    return tuple(
        {**row, "survives": index in survivors} if row["evidence"] == "template" else row
        for index, row in enumerate(rows)
    )


def kernel_frame(rows: Sequence[Row]) -> "pandas.DataFrame":
    """The rows as a DataFrame with `COLUMNS`; what is a whole number stays one beside missing values."""
    import pandas

    frame = pandas.DataFrame(list(rows), columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(WHOLE, "Int64"))


def shape_counts(rows: Sequence[Row]) -> ShapeCounts:
    """Counts over the key-query kernels among the rows of `kernel_table`."""
    kernels = [row for row in rows if row["where"] in KEY_QUERY]
    named = [row for row in kernels if row["evidence"] == "template"]
    chances = [1 / (2 * (row["c_q"] * row["c_k"] - 1)) for row in kernels if _can_show_edge(row)]
    edge_like = sum(_is_edge_like(row) for row in kernels)
    return ShapeCounts(
        kernels=len(kernels),
        shapes=dict(Counter(_label(row) for row in kernels).most_common()),
        templates=len(named),
        survive=sum(bool(row["survives"]) for row in named),
        expected_templates=LARGEST_P * sum(row["p"] is not None for row in kernels),
        edge_like=edge_like,
        expected_edge_like=float(sum(chances)),
        edge_p=at_least(edge_like, chances),
    )


def _label(row: Row) -> str:
    return f"faint {row['shape']}" if row["faint"] else row["shape"]


def _can_show_edge(row: Row) -> bool:
    """Whether there is a previous key's tap, and a largest tap besides the own one."""
    return row["first_key"] < 0 and bool(row["dominant_share"])


def _is_edge_like(row: Row) -> bool:
    """The largest other tap is the previous key's, opposite in sign to the own tap."""
    place = row["dominant_query"], row["dominant_key"]
    return _can_show_edge(row) and place == (0, -1) and row["dominant_sign"] < 0


def _layer_rows(state_dict: Mapping[str, Tensor], config: ModelConfig, layer: int) -> Iterator[Row]:
    found = layer_kernels(state_dict, config, layer)
    for where in KEY_QUERY:
        taps, offsets = found.taps(where), found.offsets(where)
        if taps is not None and offsets is not None:
            for head, shape in enumerate(name_kernels(taps.double().numpy(), offsets)):
                yield _key_query_row(shape, offsets, layer, head, where)
    for place in MIXING:
        mixing = found.mixing(place)
        for group, matrix in enumerate([] if mixing is None else mixing.double().numpy()):
            for row in name_head_rows(matrix):
                yield _head_row(row, layer, group, len(matrix), place)


def _key_query_row(shape: KernelShape, offsets: Offsets, layer: int, head: int, where: Place) -> Row:
    return _row(
        layer=layer,
        head=head,
        where=where,
        shape=shape.shape,
        faint=shape.faint,
        verdict=shape.verdict,
        evidence=shape.evidence,
        score=shape.score,
        p=shape.p,
        c_q=len(offsets.query),
        c_k=len(offsets.key),
        first_key=offsets.key[0],
        **{name.replace("-", "_"): value for name, value in shape.scores.items()},
    )


def _head_row(shape: HeadShape, layer: int, group: int, size: int, where: MixPlace) -> Row:
    """Heads are counted over the layer here, over the group in `shape`."""
    source = group * size + shape.source if shape.source >= 0 else None
    return _row(
        layer=layer,
        head=group * size + shape.target,
        where=where,
        shape=shape.shape,
        faint=False,
        verdict=shape.verdict.format(source=source),
        evidence="",
        group=group,
        source=source,
        **shape.scores,
    )


def _row(**values: Any) -> Row:
    """All columns, None where there is no value: neither NaN nor infinity leaves here."""
    row: Row = dict.fromkeys(COLUMNS)
    row.update(values)
    known = {name: _known(value) for name, value in row.items()}
    return {
        name: value if value is None or name not in WHOLE else int(value) for name, value in known.items()
    }


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value

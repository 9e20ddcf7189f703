"""All kernels of a model as a table, one row a kernel, from a state dict; and one kernel among the others.

Owns the columns and the counts over a model, and a layer's scores over training. A row of a head-mixing
matrix is a kernel of its own.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.kernels.kernels import (
    KEY_QUERY,
    MIXING,
    KernelId,
    MixPlace,
    Offsets,
    Place,
    kernel_offsets,
    layer_kernels,
)
from mta_viz.analysis.kernels.measures import (
    FFT_SIZE,
    LARGEST_P,
    MEASURES,
    NAMES,
    denoised,
    dominant_tap,
    edge_indices,
    library,
    template_scores,
    without_own_tap,
)
from mta_viz.analysis.kernels.mixing import HeadShape, name_head_rows
from mta_viz.analysis.kernels.naming import (
    SEED,
    KernelShape,
    all_scores,
    at_least,
    benjamini_hochberg,
    name_kernels,
)
from mta_viz.analysis.kernels.probes import probe_values
from mta_viz.checkpoint.history import KernelHistory
from mta_viz.config import ModelConfig
from mta_viz.model.transformer import HookedMTA
from mta_viz.tables import Table

if TYPE_CHECKING:
    import pandas

LEVEL = 0.05
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


def kernel_of(row: Row) -> KernelId:
    """Which kernel a row is about."""
    return KernelId(row["layer"], row["head"], row["where"])


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


def as_table(rows: Sequence[Row]) -> Table:
    """The rows with `COLUMNS`."""
    return Table(COLUMNS, tuple(tuple(row[name] for name in COLUMNS) for row in rows), exact=True)


def kernel_frame(rows: Sequence[Row]) -> "pandas.DataFrame":
    """The same as a DataFrame; what is a whole number stays one beside missing values."""
    return as_table(rows).frame().astype(dict.fromkeys(WHOLE, "Int64"))


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
    kernels = layer_kernels(state_dict, config, layer)
    for where in KEY_QUERY:
        taps, offsets = kernels.taps(where), kernels.offsets(where)
        if taps is not None and offsets is not None:
            for head, shape in enumerate(name_kernels(taps.double().numpy(), offsets)):
                yield _key_query_row(shape, offsets, layer, head, where)
    for place in MIXING:
        mixing = kernels.mixing(place)
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


CHANCE_QUANTILE, CHANCE_KERNELS, CHANCE_TAPS = 0.99, 10_000, 1_000_000


@dataclass(frozen=True)
class KernelStack:
    """All key-query kernels of a model that have the same taps: `taps[i]` belongs to `ids[i]`."""

    ids: tuple[KernelId, ...]
    offsets: Offsets
    taps: Float[Array, "kernel c_q c_k"]

    def usable(self) -> Array:
        """Kernels that are finite and not all 0."""
        return np.isfinite(self.taps).all((-2, -1)) & (self.taps != 0).any((-2, -1))


def kernel_stacks(state_dict: Mapping[str, Tensor], config: ModelConfig) -> tuple[KernelStack, ...]:
    """The key-query kernels of a model, one stack a size. `state_dict` as in `layer_kernels`."""
    by_offsets: dict[Offsets, tuple[list[KernelId], list[Array]]] = {}
    for layer in range(config.n_layers):
        kernels = layer_kernels(state_dict, config, layer)
        for where in KEY_QUERY:
            taps, offsets = kernels.taps(where), kernels.offsets(where)
            if taps is not None and offsets is not None:
                ids, stack = by_offsets.setdefault(offsets, ([], []))
                ids += [KernelId(layer, head, where) for head in range(len(taps))]
                stack.append(taps.double().numpy())
    return tuple(
        KernelStack(tuple(ids), offsets, np.concatenate(stack))
        for offsets, (ids, stack) in by_offsets.items()
    )


def nearest_kernels(stack: KernelStack, of: KernelId, count: int = 4) -> tuple[tuple[KernelId, float], ...]:
    """The kernels of largest cosine <r, r'> / (||r|| ||r'||), own taps left out, the most alike first.

    Whole kernels near the identity would all be alike. Kernels without other taps have no cosine.
    """
    usable = stack.usable()
    rest = without_own_tap(np.where(usable[:, None, None], stack.taps, 0.0), stack.offsets)
    flat = rest.reshape(len(rest), -1)
    length = np.linalg.norm(flat, axis=-1)
    unit = flat / np.where(length > 0, length, 1)[:, None]
    own = stack.ids.index(of)
    cosine = unit @ unit[own]
    order = [int(i) for i in np.argsort(-cosine, kind="stable") if i != own and length[i] > 0]
    return tuple((stack.ids[i], float(cosine[i])) for i in order[:count]) if length[own] > 0 else ()


def probe_percentile(stack: KernelStack, of: KernelId, probe: str) -> float:
    """Share of the stack's other kernels whose probe value is below this one's, 0..1; ties count half.

    NaN for a broken kernel, or one that has no others.
    """
    usable = stack.usable()
    own = stack.ids.index(of)
    if not usable[own] or usable.sum() < 2:
        return np.nan
    values = probe_values(stack.taps[usable], stack.offsets, probe)
    place = int(usable[:own].sum())
    others = np.delete(values, place)
    return float((others < values[place]).mean() + 0.5 * (others == values[place]).mean())


def frequency_response(
    kernel: Float[Array, "c_q c_k"],
) -> tuple[Float[Array, " frequency"], Float[Array, "query_frequency key_frequency"]]:
    """Frequencies in cycles per token, -0.5..0.5, and |FFT(k)| over queries and keys, zero-padded to 64 x 64.

    1 everywhere for the identity. A kernel larger than 64 is padded to its own length.
    """
    size = max(FFT_SIZE, *kernel.shape)
    response = np.abs(np.fft.fftshift(np.fft.fft2(kernel, (size, size))))
    return np.fft.fftshift(np.fft.fftfreq(size)), response


@lru_cache(maxsize=64)
def chance_marks(offsets: Offsets) -> Mapping[str, float]:
    """What 99 of 100 Gaussian kernels of this size stay below, in size, for every shape score by name."""
    shape = len(offsets.query), len(offsets.key)
    count = min(CHANCE_KERNELS, max(CHANCE_TAPS // (shape[0] * shape[1]), 200))
    kernels = np.random.default_rng(SEED).standard_normal((count, *shape))
    values: dict[str, list[Array]] = {}
    for template, scores in zip(library(offsets), np.abs(template_scores(kernels, offsets)).T, strict=True):
        values.setdefault(template.name.replace("-", "_"), []).append(scores)
    edges = edge_indices(denoised(kernels, offsets), offsets)
    values["edge_first"], values["edge_last"] = [edges[0]], [edges[1]]
    values["dominant_share"] = [dominant_tap(kernels, offsets)[0]]
    return {
        name: float(np.quantile(np.max(scores, axis=0), CHANCE_QUANTILE)) for name, scores in values.items()
    }


FROM_START = "distance_from_start"


@dataclass(frozen=True)
class KernelCurves:
    """Scores over training: `values` by name [head, snapshot], NaN where a score means nothing.

    So are all scores of a kernel with NaN or infinite taps.

    The names are those of the kernel table, and `distance_from_start`: ||k - k of the first snapshot||,
    the distance that tells learning apart where kernels do not start as identity (paper, "Kernel
    initialization").
    """

    steps: tuple[int, ...]
    values: dict[str, Float[np.ndarray, "head snapshot"]]

    def table(self) -> Table:
        """A row a head and snapshot, a column for each score."""
        rows = (
            (head, step, *(float(scores[head, at]) for scores in self.values.values()))
            for head in range(len(self.values[FROM_START]))
            for at, step in enumerate(self.steps)
        )
        return Table.of(("head", "step", *self.values), rows)


def kernel_curves(
    history: KernelHistory, config: ModelConfig, layer: int, where: Place
) -> KernelCurves | None:
    """The curves of a layer's key-query kernels; None where it has none at that place."""
    stored = history.kernels.get(f"blocks.{layer}.attn.kernel_{where}")
    if stored is None:
        return None
    taps = stored.double().numpy()
    snapshots, heads, c_q, c_k = taps.shape
    flat = taps.reshape(-1, c_q, c_k)
    finite = np.isfinite(flat).all((-2, -1))
    by_name = all_scores(np.where(finite[:, None, None], flat, 0.0), kernel_offsets(config, c_q, c_k))
    values = {
        name: np.where(finite, scores, np.nan).reshape(snapshots, heads).T for name, scores in by_name.items()
    }
    values[FROM_START] = np.sqrt(np.square(taps - taps[:1]).sum((-2, -1))).T
    return KernelCurves(history.steps, values)


def kernels(model: HookedMTA) -> "pandas.DataFrame":
    """One row per kernel with its shape, scores and significance: see `kernel_table` for the columns.

    Scores are shares from -1 to 1, p-values from 0 to 1. A model without kernels gives no rows.

    >>> len(mta_viz.kernels(model))
    8
    """
    return kernel_frame(kernel_table(model.state_dict(), model.config))

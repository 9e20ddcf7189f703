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

from mta_viz.analysis.kernels import measures, naming
from mta_viz.analysis.kernels.envelope import Judged, envelope_of, judge_kernels, named_share
from mta_viz.analysis.kernels.kernels import (
    KEY_QUERY,
    KernelId,
    KernelStack,
    Offsets,
    kernel_offsets,
    kernel_stacks,
    layer_kernels,
)
from mta_viz.analysis.kernels.mixing import HeadShape, name_head_rows
from mta_viz.analysis.kernels.naming import KernelShape
from mta_viz.analysis.kernels.probes import probe_values
from mta_viz.checkpoint.history import KernelHistory
from mta_viz.config import KernelPlace, ModelConfig
from mta_viz.tables import Table

if TYPE_CHECKING:
    import pandas

FIRST_COLUMNS = ("layer", "head", "where", "shape", "faint", "verdict", "evidence", "score", "p", "survives")
KEY_QUERY_SCORES = (
    *measures.MEASURES,
    *(name.replace("-", "_") for name in measures.NAMES),
    *("first_of_run", "last_of_run", "dominant_share", "dominant_query", "dominant_key", "dominant_sign"),
)
HEAD_SCORES = (
    *("group", "source", "scaled_identity", "permutation", "mean_diagonal", "off_diagonal_ratio"),
    *("own_weight", "contrast", "subtracted_fraction", "common_mode", "angle"),
)
LAST_COLUMNS = ("names", "envelope_p", "template_rate", "edge_rate")
COLUMNS = (*FIRST_COLUMNS, "c_q", "c_k", "first_key", *KEY_QUERY_SCORES, *HEAD_SCORES, *LAST_COLUMNS)

WHOLE = (
    *("layer", "head", "group", "source", "c_q", "c_k", "first_key"),
    *("dominant_query", "dominant_key", "dominant_sign"),
)
OLDER = {"edge_first": "first_of_run", "edge_last": "last_of_run"}  # in queries and figures of older versions
MEASURED_WHOLE = ("match_query", "match_key", "match_cells", "match_prompts")  # of columns added by a run
Row = dict[str, Any]


def kernel_of(row: Row) -> KernelId:
    """Which kernel a row is about."""
    return KernelId(row["layer"], row["head"], row["where"])


@dataclass(frozen=True)
class ShapeCounts:
    """Names over all key-query kernels of a model, beside what kernels without shapes would get.

    `templates`: kernels with a template's name; `survive`: those left by both tests (`kernel_table`);
    `expected_templates`: the most such names expected of exchangeable taps. `envelope_templates`: how many
    surrogates with the model's own envelope get (mean, 95 % range, and the p of at least so many as found);
    `edges` and `envelope_edges`: the same of edges.
    """

    kernels: int
    shapes: dict[str, int]
    templates: int
    survive: int
    expected_templates: float
    envelope_templates: "NamesByChance"
    edges: int
    envelope_edges: "NamesByChance"


@dataclass(frozen=True)
class NamesByChance:
    """How many kernels of a model get a name if each gets it with its own chance: mean, 95 % range, p."""

    mean: float
    low: int
    high: int
    p: float

    @classmethod
    def of(cls, chances: Sequence[float], named: int) -> "NamesByChance":
        """`p`: of at least `named`."""
        below = np.cumsum(naming.number_of(chances))
        low, high = (int(np.searchsorted(below, level)) for level in (0.025, 0.975 - 1e-12))
        return cls(float(sum(chances)), low, high, naming.at_least(named, chances))


def kernel_table(state_dict: Mapping[str, Tensor], config: ModelConfig) -> tuple[Row, ...]:
    """One row per kernel, `COLUMNS` in order; None where a column means nothing for it.

    `where` is pre or post (key-query kernels) or head_pre or head_post (rows of a head-mixing matrix, `head`
    is the target and `source` the head it is contrasted with). `state_dict` has the names of
    `parameter_shapes(config)`. `names`: every rule that fires, with its score. `survives`, of kernels that a
    template names: Benjamini-Hochberg over the model's kernels keeps both `p` (rearranged taps, at 5 %) and
    `envelope_p` (surrogates with the model's own envelope, at 2.5 %). `template_rate`, `edge_rate`: how often
    those surrogates get a template's, an edge's name.
    """
    stacks = kernel_stacks(state_dict, config, by_place=True)
    judged = judge_kernels(stacks)
    rates = {kernel: rate for stack in stacks for kernel, rate in _rates(stack)}
    layers = (_layer_rows(state_dict, config, layer, judged, rates) for layer in range(config.n_layers))
    return tuple(row for rows in layers for row in rows)


def _rates(stack: KernelStack) -> Iterator[tuple[KernelId, dict[str, float]]]:
    """How often surrogates of these kernels get a template's name, and an edge's."""
    envelope = envelope_of(stack.taps[stack.usable()], stack.offsets)
    template, edge = (0.0, 0.0) if envelope is None else named_share(envelope)
    yield from ((kernel, {"template_rate": template, "edge_rate": edge}) for kernel in stack.ids)


def as_table(rows: Sequence[Row]) -> Table:
    """The rows with `COLUMNS`, and after them what else was measured of every row."""
    columns = tuple(rows[0]) if rows else COLUMNS
    return Table(columns, tuple(tuple(row[name] for name in columns) for row in rows), exact=True)


def kernel_frame(rows: Sequence[Row]) -> "pandas.DataFrame":
    """The same as a DataFrame; what is a whole number stays one beside missing values."""
    frame = as_table(rows).frame()
    return frame.astype({name: "Int64" for name in (*WHOLE, *MEASURED_WHOLE) if name in frame})


def shape_counts(rows: Sequence[Row]) -> ShapeCounts:
    """Counts over the key-query kernels among the rows of `kernel_table`."""
    kernels = [row for row in rows if row["where"] in KEY_QUERY]
    named = [row for row in kernels if row["survives"] is not None]
    edges = sum(naming.has_name(row, "edge") for row in kernels)
    by_template, by_edge = ([row[name] for row in kernels] for name in ("template_rate", "edge_rate"))
    return ShapeCounts(
        kernels=len(kernels),
        shapes=dict(Counter("faint " * row["faint"] + row["shape"] for row in kernels).most_common()),
        templates=len(named),
        survive=sum(bool(row["survives"]) for row in named),
        expected_templates=measures.LARGEST_P * sum(row["p"] is not None for row in kernels),
        envelope_templates=NamesByChance.of(by_template, len(named)),
        edges=edges,
        envelope_edges=NamesByChance.of(by_edge, edges),
    )


def _layer_rows(
    state_dict: Mapping[str, Tensor],
    config: ModelConfig,
    layer: int,
    judged: Mapping[KernelId, Judged],
    rates: Mapping[KernelId, dict[str, float]],
) -> Iterator[Row]:
    kernels = layer_kernels(state_dict, config, layer)
    for where, taps, offsets in kernels.key_query():
        size = {"c_q": len(offsets.query), "c_k": len(offsets.key), "first_key": offsets.key[0]}
        for head in range(len(taps)):
            kernel = KernelId(layer, head, where)
            of_model = {"envelope_p": judged[kernel].envelope_p, "survives": judged[kernel].survives}
            here, shape = {"layer": layer, "head": head, "where": where}, judged[kernel].shape
            yield _row(shape, names=shape.names, **here, **size, **of_model, **rates[kernel])
    for place, group, matrix in kernels.groups():
        first = group * len(matrix)  # heads are counted over the layer here, over the group in a shape
        for row in name_head_rows(matrix.double().numpy()):
            source = first + row.source if row.source >= 0 else None
            facts = {"faint": False, "evidence": "", "group": group, "source": source}
            verdict = row.verdict.format(source=source)
            yield _row(row, layer=layer, head=first + row.target, where=place, verdict=verdict, **facts)


def _row(shape: KernelShape | HeadShape, **values: Any) -> Row:
    """All columns, None where there is no value: neither NaN nor infinity leaves here."""
    scores = {name.replace("-", "_"): score for name, score in shape.scores.items()}
    known = {
        name: value
        for name, value in (vars(shape) | scores | values).items()
        if not isinstance(value, float) or math.isfinite(value)
    }
    row: Row = {name: known.get(name) for name in COLUMNS}
    return row | {name: int(row[name]) for name in WHOLE if row[name] is not None}


CHANCE_QUANTILE, CHANCE_KERNELS, CHANCE_TAPS = 0.99, 10_000, 1_000_000


def nearest_kernels(stack: KernelStack, of: KernelId) -> tuple[tuple[KernelId, float], ...]:
    """The four kernels of largest cosine <r, r'> / (||r|| ||r'||), own taps left out, the most alike first.

    Whole kernels near the identity would all be alike. Kernels without other taps have no cosine.
    """
    usable = stack.usable()
    rest = measures.without_own_tap(np.where(usable[:, None, None], stack.taps, 0.0), stack.offsets)
    flat = rest.reshape(len(rest), -1)
    length = np.linalg.norm(flat, axis=-1)
    unit = flat / np.where(length > 0, length, 1)[:, None]
    own = stack.ids.index(of)
    cosine = unit @ unit[own]
    order = [int(i) for i in np.argsort(-cosine, kind="stable") if i != own and length[i] > 0]
    return tuple((stack.ids[i], float(cosine[i])) for i in order[:4]) if length[own] > 0 else ()


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
    size = max(measures.FFT_SIZE, *kernel.shape)
    response = np.abs(np.fft.fftshift(np.fft.fft2(kernel, (size, size))))
    return np.fft.fftshift(np.fft.fftfreq(size)), response


@lru_cache(maxsize=64)
def chance_marks(offsets: Offsets) -> Mapping[str, float]:
    """What 99 of 100 Gaussian kernels of this size stay below, in size, for every shape score by name."""
    shape = len(offsets.query), len(offsets.key)
    count = min(CHANCE_KERNELS, max(CHANCE_TAPS // (shape[0] * shape[1]), 200))
    kernels = np.random.default_rng(naming.SEED).standard_normal((count, *shape))
    scores = naming.shape_scores(kernels, offsets)
    drawn = {template.name for template in measures.library(offsets)}
    shown = {name: np.abs(scores[name]) for name in measures.NAMES if name in drawn}
    shown |= {name: scores[name] for name in ("first_of_run", "last_of_run", "dominant_share")}
    quantiles = {name: np.quantile(of_kernels, CHANCE_QUANTILE) for name, of_kernels in shown.items()}
    return {name.replace("-", "_"): float(quantile) for name, quantile in quantiles.items()}


FROM_START = "distance_from_start"


@dataclass(frozen=True)
class KernelCurves:
    """Scores over training: `values` by name [head, snapshot], NaN where a score or a tap means nothing.

    The names are those of the kernel table, and `distance_from_start`: ||k - k of the first snapshot||,
    which tells learning apart where kernels do not start as identity (paper, "Kernel initialization").
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
    history: KernelHistory, config: ModelConfig, layer: int, where: KernelPlace
) -> KernelCurves | None:
    """The curves of a layer's key-query kernels; None where it has none at that place."""
    stored = history.kernels.get(f"blocks.{layer}.attn.kernel_{where}")
    if stored is None:
        return None
    taps = stored.double().numpy()
    snapshots, heads, c_q, c_k = taps.shape
    flat = taps.reshape(-1, c_q, c_k)
    finite = np.isfinite(flat).all((-2, -1))
    by_name = naming.all_scores(np.where(finite[:, None, None], flat, 0.0), kernel_offsets(config, c_q, c_k))
    values = {
        name: np.where(finite, scores, np.nan).reshape(snapshots, heads).T for name, scores in by_name.items()
    }
    values[FROM_START] = np.sqrt(np.square(taps - taps[:1]).sum((-2, -1))).T
    return KernelCurves(history.steps, values)

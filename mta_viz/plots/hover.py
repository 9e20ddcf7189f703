"""Hover texts of attention maps: both tokens with positions, the value, and what it means.

Tokens come through the data axes' `labelalias` (number -> 'position "token"'), 30 bytes a token
instead of a string a cell; those axes carry no tick labels, so every position shows its token.
Numbers come from one float32 array a map. Whole figures of the needle model measured as JSON: 256 x
256 cells with the stage before and click targets 1.7 MB; 512 x 512, hover on the cells themselves,
1.9 MB; pooled to 256 a side with peaks and means 2.0 MB.
"""

import numpy as np
from jaxtyping import Float

from mta_viz.analysis.maps import AttentionMap
from mta_viz.analysis.pooling import Pooled
from mta_viz.plots import theme
from mta_viz.plots.cells import centers
from mta_viz.tokenizers.base import Tokens

WHERE = "query %{y}<br>key %{x}"
BLOCKS = "queries %{y}<br>keys %{x}"
MASKED = "masked: key %{x} is after query %{y}"


def aliases(tokens: Tokens, start: int, count: int, block: int) -> dict[str, str]:
    """Axis number -> words for every row or column; blocks are named by their ends."""
    if block == 1:
        return {str(p): theme.hover_label(p, tokens.pieces[p]) for p in range(start, start + count)}
    return {
        f"{center:.1f}": _block_label(tokens, start + index * block, block)
        for index, center in enumerate(centers(start, count, block))
    }


def number_format(block: int) -> str:
    """How the axis must print its numbers for `aliases` to match."""
    return "d" if block == 1 else ".1f"


def _block_label(tokens: Tokens, first: int, block: int) -> str:
    last = min(first + block, len(tokens)) - 1
    ends = f"{theme.escape(tokens.pieces[first])} … {theme.escape(tokens.pieces[last])}"
    return f"{first}-{last} {ends}"


def value_line(attention: AttentionMap, source: str = "z") -> str:
    """What the value is, and its four digits; `source` is the template's field."""
    info, sign = attention.stage.value, "" if attention.distribution else "+"
    value = f"%{{{source}:{sign}.4g}}"
    if attention.block > 1:
        return f"largest |x| {value}"
    return f"{info.long}: {value} (score)" if info.unit == "score" else f"{info.long}: weight {value}"


def cell_text(
    attention: AttentionMap, before: AttentionMap | None
) -> tuple[str, Float[np.ndarray, "row column field"]]:
    """Template and numbers of every cell for the hover of an exact or a pooled map."""
    if attention.pooled is not None:
        return pooled_text(attention, attention.pooled, value_line(attention, "customdata[0]"))
    lines = [BLOCKS if attention.block > 1 else WHERE, value_line(attention, "customdata[0]")]
    fields = [attention.values.numpy()]
    if before is not None:
        lines.append(
            f"before: %{{customdata[{len(fields)}]:+.4g}} · change %{{customdata[{len(fields) + 1}]:+.4g}}"
        )
        fields += [before.values.numpy(), (attention.values - before.values).numpy()]
    if attention.row_sums is not None and attention.block == 1:
        _add_row_facts(attention, lines, fields)
    return "<br>".join(lines), np.stack(fields, -1).astype(np.float32)


def pooled_text(
    attention: AttentionMap, pooled: Pooled, line: str, *, boxes: bool = True
) -> tuple[str, Float[np.ndarray, "row column field"]]:
    """Template and numbers of every block; `line` says what its value, field 0, is.

    `boxes`: a box drawn on the map leads to exact cells.
    """
    peak = "at (%{customdata[1]:d}, %{customdata[2]:d}) · mean %{customdata[3]:+.4g}"
    template = f"{BLOCKS}<br>{line} {peak}" + "<br>draw a box to see exact cells" * boxes
    fields = [
        pooled.values,
        pooled.peak_query + attention.query_start,
        pooled.peak_key + attention.key_start,
        pooled.means,
    ]
    return template, np.stack([field.numpy() for field in fields], -1).astype(np.float32)


def one_value(attention: AttentionMap, line: str) -> tuple[str, Float[np.ndarray, "row column field"]]:
    """Template and numbers of a map whose hover says its value alone; `line` says what field 0 is."""
    if attention.pooled is not None:
        return pooled_text(attention, attention.pooled, line, boxes=False)
    return f"{WHERE}<br>{line}", attention.values.numpy()[..., None].astype(np.float32)


def _add_row_facts(attention: AttentionMap, lines: list[str], fields: list[np.ndarray]) -> None:
    """Share of the row and its sum for weights; rank in the row where values compare as they are."""
    masked = attention.masked.numpy()
    if attention.stage.value.unit == "weight":
        _add_shares(attention, np.where(masked, 0.0, attention.values.numpy()), lines, fields)
        if not attention.distribution:
            return
    values = np.where(masked, -np.inf, attention.values.numpy())
    ranks = (-values).argsort(1, kind="stable").argsort(1, kind="stable") + 1
    lines.append(f"row rank %{{customdata[{len(fields)}]:d}} of %{{customdata[{len(fields) + 1}]:d}}")
    fields += [ranks, (attention.queries.numpy()[:, None] + 1) * np.ones_like(ranks)]


def _add_shares(
    attention: AttentionMap, cells: np.ndarray, lines: list[str], fields: list[np.ndarray]
) -> None:
    total = np.abs(cells).sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):  # a row with an infinite weight has no shares
        share = np.divide(np.abs(cells), total, out=np.zeros_like(cells), where=total > 0)
    if attention.distribution:
        lines.append(f"%{{customdata[{len(fields)}]:.1%}} of this row")
        fields.append(share)
        return
    sums = f"row sums to %{{customdata[{len(fields) + 1}]:.3f}}"
    lines.append(f"%{{customdata[{len(fields)}]:.1%}} of |row|, {sums}")
    fields += [share, cells.sum(1, keepdims=True) * np.ones_like(cells)]

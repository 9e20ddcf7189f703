"""A difference map: what a convolution or head mixing changed. Drawn as attention maps are.

Owns its colours, of another hue family than values have, and its words.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from mta_viz.analysis.differences import DifferenceMap
from mta_viz.analysis.maps import AttentionMap
from mta_viz.analysis.spans import Span
from mta_viz.model.stages import Stage
from mta_viz.plots import attention, hover, theme
from mta_viz.tokenizers.base import Tokens

STEPS = {
    Stage.KQ: "the key-query conv",
    Stage.MIX: "head mixing",
    Stage.SOFTMAX_KQ: "the 2nd key-query conv",
    Stage.PATTERN: "the last head mixing",
}


def difference_map(
    difference: DifferenceMap,
    tokens: Tokens,
    *,
    limit: float,
    numbering_from: int = 0,
    size: tuple[int, int] = (460, 460),
    before: AttentionMap | None = None,
    selected: attention.Cell | None = None,
    part: attention.Part | None = None,
    spans: Sequence[Span] = (),
    short: bool = False,
) -> go.Figure:
    """After minus before, brown lowered and green raised; arguments as in `attention_map`.

    `short`: the title names the two stages alone, for small maps.

    `before`: the same cells before the step, for the hover. `limit`: from `shared_limit` of
    differences alone, which are smaller than the values.
    """
    return attention.attention_map(
        difference,
        tokens,
        limit=limit,
        numbering_from=numbering_from,
        size=size,
        before=before,
        selected=selected,
        part=part,
        spans=spans,
        look=SHORT if short else LOOK,
    )


def difference_caption(difference: DifferenceMap, limit: float) -> str:
    """The sentence under the map."""
    unit = difference.stage.value.unit.capitalize()
    words = f"{unit} after minus before {_step(difference)}, same head."
    return f"{words} Brown: lowered, green: raised. Limits ±{theme.limit_text(limit)}."


def _step(drawn: AttentionMap) -> str:
    """What lies between the two: a step of the layer, or an edit of the model."""
    return "the edit" if _is_edit(drawn) else STEPS[drawn.stage]


def _is_edit(drawn: AttentionMap) -> bool:
    return isinstance(drawn, DifferenceMap) and drawn.before is drawn.stage


def _title(drawn: AttentionMap, numbering_from: int) -> str:
    what = "edited − original" if _is_edit(drawn) else f"after minus before {STEPS[drawn.stage]}"
    words = f"{what} ({drawn.stage.value.unit})"
    return f"{attention.where_title(drawn, numbering_from)} · {words}{attention.blocks_title(drawn)}"


def _short_title(drawn: AttentionMap, numbering_from: int) -> str:
    if _is_edit(drawn) or not isinstance(drawn, DifferenceMap):
        return _title(drawn, numbering_from)
    words = f"{drawn.stage.value.short} − {drawn.before.value.short} ({drawn.stage.value.unit})"
    return f"{attention.where_title(drawn, numbering_from)} · {words}{attention.blocks_title(drawn)}"


def _value_line(drawn: AttentionMap, field: str) -> str:
    change = f"%{{{field}:+.4g}} ({drawn.stage.value.unit})"
    return f"largest change {change}" if drawn.block > 1 else f"change by {_step(drawn)}: {change}"


def _cell_text(
    drawn: AttentionMap, before: AttentionMap | None
) -> tuple[str, Float[np.ndarray, "row column field"]]:
    line = _value_line(drawn, "customdata[0]")
    if drawn.pooled is not None:
        return hover.pooled_text(drawn, drawn.pooled, line)
    lines, fields = [hover.WHERE, line], [drawn.values.numpy()]
    if before is not None:
        lines.append("before: %{customdata[1]:+.4g} · after: %{customdata[2]:+.4g}")
        fields += [before.values.numpy(), (before.values + drawn.values).numpy()]
    return "<br>".join(lines), np.stack(fields, -1).astype(np.float32)


LOOK = attention.Look(_title, _value_line, _cell_text, theme.DIFFERENCE_SCALE)
SHORT = replace(LOOK, title=_short_title)

"""From what a visitor chose (or did not) to a layer, head, stage, query and key that exist."""

from dataclasses import dataclass

from mta_viz.analysis.interesting import largest_key, most_changed_head
from mta_viz.config import ModelConfig
from mta_viz.model.stages import Stage, layer_stages
from mta_viz.tracing import Trace
from mta_viz.ui import state
from mta_viz.ui.state import View


@dataclass(frozen=True)
class Selected:
    """A selection that exists in this model and prompt. Counts from 0; `why` names a default head."""

    layer: int
    head: int
    stage: Stage
    query: int
    key: int
    why: str = ""


def resolve(view: View, trace: Trace) -> Selected:
    """The view with everything unchosen or impossible replaced by its default.

    Head: the one changed most by the key-query convolution. Stage: after that convolution where
    the layer has one, else the final weights. Query: the last token. Key: the largest cell.
    """
    config = trace.model.config
    layer, head, why = _head(view, trace)
    stage = stage_or_default(view.stage, config, layer)
    query = view.query if view.query is not None and view.query < len(trace.tokens) else len(trace.tokens) - 1
    key = view.key if view.key is not None and view.key < len(trace.tokens) else None
    if key is None:
        key = largest_key(trace, layer, head, stage, query)
    return Selected(layer, head, stage, query, key, why)


def _head(view: View, trace: Trace) -> tuple[int, int, str]:
    config = trace.model.config
    if view.layer is None or view.layer >= config.n_layers:
        found = most_changed_head(trace)
        layer, head = found or (0, 0)
        why = "largest change by the key-query conv at the last query" if found else ""
    else:
        layer, head, why = view.layer, 0, ""
    if view.head is not None and view.head < config.n_heads:
        return layer, view.head, "" if view.head != head else why
    return layer, head, why


def stage_or_default(key: str | None, config: ModelConfig, layer: int) -> Stage:
    """The stage with this URL word if the layer has it, else `kq`, else the pattern."""
    present = layer_stages(config.kernels(layer))
    chosen = next((stage for stage in present if stage.value.key == key), None)
    return chosen or (Stage.KQ if Stage.KQ in present else Stage.PATTERN)


def go_to(**changes: object) -> None:
    """Select parts of the view from elsewhere than the map; the exact part follows the cell."""
    now = state.select(**changes)
    part, cell = state.get("crop"), (now.query, now.key)
    if part is not None and (None in cell or not part.holds(*cell)):
        state.put("crop", None)

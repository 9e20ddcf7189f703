"""A trace's map as a figure in one call, for a notebook."""

import plotly.graph_objects as go

from mta_viz.analysis.attention.maps import exact_map, head_map, shared_limit
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import attention_map
from mta_viz.run.tracing import Trace

WHOLE_UP_TO = 256  # tokens: a longer prompt is drawn in blocks, of each its largest value
EVERYTHING = slice(None)


def draw_map(
    trace: Trace,
    layer: int,
    stage: Stage,
    head: int,
    *,
    queries: slice = EVERYTHING,
    keys: slice = EVERYTHING,
    size: int = 560,
) -> go.Figure:
    """One head's map at one stage with its tokens, `size` pixels wide and high; a crop of it is exact.

    A whole map beyond 256 tokens is drawn in blocks. Colours end where `shared_limit` says, in the stage's
    unit; masked cells are hatched. Raises PromptError for a layer, stage or head that is not there.

    >>> figure = mta_viz.draw_map(trace, 3, mta_viz.Stage.PATTERN, head=1)
    >>> figure.layout.width
    560
    """
    whole = queries == keys == EVERYTHING and len(trace.tokens) > WHOLE_UP_TO
    if whole:
        attention = head_map(trace, layer, stage, head, WHOLE_UP_TO)
    else:
        attention = exact_map(trace, layer, stage, head, queries, keys)
    picture = attention_map(attention, trace.tokens, limit=shared_limit([attention]), size=(size, size))
    return go.Figure(picture)  # which checks what a notebook changes of it

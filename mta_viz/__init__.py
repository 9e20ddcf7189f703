"""Look inside Multi-Token Attention: the notebook API, loaded on first use.

Importing the package costs milliseconds; torch comes with the first call.

    import mta_viz
    model = mta_viz.load("path/to/checkpoint")
    trace = mta_viz.capture(model, "some prompt")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# ruff: noqa: F401  # the names of `_NAMES`, which type checkers do not read
if TYPE_CHECKING:
    from mta_viz.analysis.attention.cells import lens_over_layers, top_cells, top_tokens
    from mta_viz.analysis.attention.decomposition import decompose
    from mta_viz.analysis.attention.heads import head_scores, ranking
    from mta_viz.analysis.attention.taps import operator, tap_gains
    from mta_viz.analysis.cause.attributed_prompt import attribute, attribute_heads
    from mta_viz.analysis.cause.direct_effect import direct_effect, responsibilities
    from mta_viz.analysis.cause.kernel_effect import kernel_paths
    from mta_viz.analysis.cause.removed_cells import whole_effects
    from mta_viz.analysis.cause.shapley import shapley_values
    from mta_viz.analysis.cause.story import story
    from mta_viz.analysis.cause.sweeps import ablate
    from mta_viz.analysis.compare.comparing import compare
    from mta_viz.analysis.kernels.recurrence import recurrence
    from mta_viz.analysis.labs.task_samples import kernels
    from mta_viz.exporting.saved import export
    from mta_viz.figures import figure
    from mta_viz.model.editing import insert_mta
    from mta_viz.model.stages import Stage
    from mta_viz.plots.attention.maps import draw_map
    from mta_viz.run.files import open_trace, save_trace
    from mta_viz.run.tracing import capture, load

from mta_viz.version import VERSION as __version__

_NAMES = {
    "analysis.attention.cells": "lens_over_layers top_cells top_tokens",
    "analysis.attention.decomposition": "decompose",
    "analysis.attention.heads": "head_scores ranking",
    "analysis.attention.taps": "operator tap_gains",
    "analysis.cause.attributed_prompt": "attribute attribute_heads",
    "analysis.cause.direct_effect": "direct_effect responsibilities",
    "analysis.cause.kernel_effect": "kernel_paths",
    "analysis.cause.removed_cells": "whole_effects",
    "analysis.cause.shapley": "shapley_values",
    "analysis.cause.story": "story",
    "analysis.cause.sweeps": "ablate",
    "analysis.compare.comparing": "compare",
    "analysis.kernels.recurrence": "recurrence",
    "analysis.labs.task_samples": "kernels",
    "exporting.saved": "export",
    "figures": "figure",
    "model.editing": "insert_mta",
    "model.stages": "Stage",
    "plots.attention.maps": "draw_map",
    "run.files": "open_trace save_trace",
    "run.tracing": "capture load",
}
_HOME = {name: f"mta_viz.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import the module a public name lives in and keep the name."""
    if name not in _HOME:
        raise AttributeError(f"module 'mta_viz' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, those not loaded yet included."""
    return sorted(set(globals()) | set(__all__))

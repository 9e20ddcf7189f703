"""Look inside Multi-Token Attention: the notebook API, loaded on first use.

Importing the package costs milliseconds; torch comes with the first call.

    import mta_viz
    model = mta_viz.load("path/to/checkpoint")
    trace = mta_viz.capture(model, "some prompt")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mta_viz.analysis.ablation import ablate
    from mta_viz.analysis.attributed_prompt import attribute
    from mta_viz.analysis.comparing import compare
    from mta_viz.analysis.decomposition import decompose
    from mta_viz.analysis.shapes.notebook import kernels
    from mta_viz.exporting.notebook import export
    from mta_viz.tracing import capture, load

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "ablate",
    "attribute",
    "capture",
    "compare",
    "decompose",
    "export",
    "kernels",
    "load",
]

_HOME = {
    "ablate": "mta_viz.analysis.ablation",
    "attribute": "mta_viz.analysis.attributed_prompt",
    "capture": "mta_viz.tracing",
    "compare": "mta_viz.analysis.comparing",
    "decompose": "mta_viz.analysis.decomposition",
    "export": "mta_viz.exporting.notebook",
    "kernels": "mta_viz.analysis.shapes.notebook",
    "load": "mta_viz.tracing",
}


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

"""TransformerLens's hook points and root module, without what its packages load when they start.

Its packages import datasets, transformers and pytest, 1.6 s of processor time, of which hooks need nothing.
Here they start when something of them is asked for: `import transformer_lens` elsewhere finds everything, and
the same classes.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

PACKAGES = (
    "transformer_lens",
    "transformer_lens.utilities",
    "transformer_lens.conversion_utils",
    "transformer_lens.conversion_utils.conversion_steps",
)
# what the root module takes from the package `utilities`, and the file of it that has it
NEEDED = {"Slice": "slice", "SliceInput": "slice", "remove_batch_dim": "tensors", "warn_if_mps": "devices"}


def _start_on_demand(name: str) -> None:
    """Put a package where its modules can be imported, and run its own start at the first miss."""
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package, loader = module_from_spec(spec), spec.loader

    def start(attribute: str) -> Any:
        del package.__dict__["__getattr__"]
        loader.exec_module(package)
        return getattr(package, attribute)

    package.__dict__["__getattr__"] = start
    sys.modules[name] = package
    parent, _, own_name = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own_name, package)


if "transformer_lens" not in sys.modules:
    for package in PACKAGES:
        _start_on_demand(package)
    utilities = sys.modules["transformer_lens.utilities"]
    for attribute, file in NEEDED.items():
        setattr(utilities, attribute, getattr(import_module(f"{utilities.__name__}.{file}"), attribute))

from transformer_lens.hook_points import HookPoint  # noqa: E402
from transformer_lens.HookedRootModule import HookedRootModule  # noqa: E402

sys.modules["transformer_lens"].__dict__["HookedRootModule"] = HookedRootModule  # there too: not its module


def listened(*points: HookPoint) -> bool:
    """Whether anybody listens to one of these hook points."""
    return any(  # torch's own, which no function of it tells: tests/test_undocumented.py
        point._forward_hooks or point._forward_pre_hooks or point._backward_hooks for point in points
    )


__all__ = ["HookPoint", "HookedRootModule", "listened"]

"""TransformerLens's hook points and root module, and whether a model is intact: no hooks, weights as read.

Its packages import datasets, transformers and pytest, 1.6 s of processor time, of which hooks need nothing.
Here they start when something of them is asked for: `import transformer_lens` elsewhere finds everything, and
the same classes. Owns how a change of a model is noticed; what follows from one is said by whoever asks
(`run.trace`, `run.files`).
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module

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

from transformer_lens.ActivationCache import ActivationCache  # noqa: E402
from transformer_lens.hook_points import HookPoint  # noqa: E402
from transformer_lens.HookedRootModule import HookedRootModule  # noqa: E402

for part in (ActivationCache, HookedRootModule):  # there too: not their modules
    sys.modules["transformer_lens"].__dict__[part.__name__] = part


def listened(*points: Module) -> bool:
    """Whether anybody listens to one of these hook points."""
    return any(  # torch's own, which no function of it tells: tests/test_undocumented.py
        point._forward_hooks or point._forward_pre_hooks or point._backward_hooks for point in points
    )


SAMPLE = 1024  # values of a tensor that are looked at; of more, every so-manieth, and some of every row
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def hooked(model: HookedRootModule) -> tuple[str, ...]:
    """Names of the modules whose values hooks see in a forward pass, permanent hooks and torch's own too."""
    own = ("the model itself",) if _may_change(model) else ()
    return (*own, *(name for name, module in model.mod_dict.items() if _may_change(module)))


def _may_change(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)  # as `hooking.listened` does


@dataclass(frozen=True)
class Weights:
    """Weights as they were once: a mark of each parameter's values, and how often torch had written to it.

    A change of single values in a large tensor may leave its mark as it is; writes count it, unless it was
    made through `.data`. Writes are of one model in one process: copies and pickles go by the marks alone.
    """

    marks: Mapping[str, str]
    writes: Mapping[str, int]
    of: int | None  # the module's `id`, None in a copy

    def changed(self, model: nn.Module, *parts: str) -> tuple[str, ...]:
        """Names of the parameters that are others now, in the model's modules called `parts`."""
        now = [weights_of(model.get_submodule(part), f"{part}.") for part in parts]
        marks = {name: mark for weights in now for name, mark in weights.marks.items()}
        writes = {name: count for weights in now for name, count in weights.writes.items()}
        of_parts = tuple(f"{part}." for part in parts)
        names = dict.fromkeys([*marks, *(name for name in self.marks if name.startswith(of_parts))])
        return tuple(
            name
            for name in names
            if marks.get(name) != self.marks.get(name)
            or writes.get(name) != self.writes.get(name, writes.get(name))
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"marks": self.marks, "writes": {}, "of": None}


def weights_of(module: nn.Module, prefix: str = "") -> Weights:
    """The weights as they are, named from `prefix` on."""
    named = {f"{prefix}{name}": parameter for name, parameter in module.named_parameters()}
    writes = {name: 0 if weight.is_inference() else weight._version for name, weight in named.items()}
    return Weights({name: mark(weight) for name, weight in named.items()}, writes, id(module))


def mark(tensor: Tensor) -> str:
    """Equal for equal values, dtypes and shapes, wherever they lie; of a tensor without values empty."""
    if tensor.is_meta:
        return ""
    width = tensor.shape[-1] if tensor.ndim else 1
    step = max(1, min(tensor.numel() // SAMPLE, width - 1))
    while gcd(step, width) > 1:  # so that each column has its turn
        step -= 1
    bits = tensor.detach().view(_BITS[tensor.itemsize])  # numpy knows no bfloat16
    sample = bits.reshape(-1)[::step].cpu().numpy().tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.blake2b(sample, digest_size=16).hexdigest()}"


def some_of(names: Sequence[str]) -> str:
    """`a and 2 more`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


__all__ = ["ActivationCache", "HookPoint", "HookedRootModule"]

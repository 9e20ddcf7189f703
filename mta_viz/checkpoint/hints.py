"""What the tensors of a file say about the configuration, by majority over layers.

Used where a field of params.json is at fault: reading goes on with these values, so that the
remaining tensors can still be checked, and the message can say what would fit.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mta_viz.checkpoint.layout import EMBEDDING, Shape
from mta_viz.checkpoint.stored import StoredTensor

_LAYER_KEY = re.compile(r"layers\.(\d{1,6})\.(.+)")


def shape_hints(stored: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Field of params.json (or `d_mlp`) -> value the tensors call for, where they call for one."""
    shapes, n_layers = _by_kind(stored)
    embedding = stored.get(EMBEDDING)
    norms = [*shapes.get("attention_norm.weight", []), *shapes.get("ffn_norm.weight", [])]
    widths = [shape[0] for shape in norms if shape] + (
        [embedding.shape[-1]] if embedding and embedding.shape else []
    )
    found: dict[str, Any] = {
        "dim": _usual(widths),
        "n_layers": n_layers or None,
        "vocab_size": embedding.shape[0] if embedding and embedding.shape else None,
        "d_mlp": _usual(shape[0] for shape in shapes.get("feed_forward.w1.weight", []) if shape),
        **_head_hints(shapes),
        **_kernel_hints(shapes),
        **(_flag_hints(shapes, stored) if stored else {}),
    }
    return {field: value for field, value in found.items() if value is not None and _is_usable(value)}


def _is_usable(value: Any) -> bool:
    """A size of 0 (an empty tensor) describes no model, and would be divided by."""
    return type(value) is not int or value >= 1


def _by_kind(stored: Mapping[str, StoredTensor]) -> tuple[dict[str, list[Shape]], int]:
    """Shapes by key without its layer, and the number of layers named."""
    shapes: dict[str, list[Shape]] = {}
    layers: set[int] = set()
    for key, tensor in stored.items():
        if match := _LAYER_KEY.fullmatch(key):
            layers.add(int(match[1]))
            shapes.setdefault(match[2], []).append(tensor.shape)
    return shapes, len(layers)


def _head_hints(shapes: Mapping[str, list[Shape]]) -> dict[str, int | None]:
    """Head counts show in kernels, mixing and head-wide vectors; a plain model shows none."""
    rows = {
        name: _usual(s[0] for s in shapes.get(f"attention.{name}.weight", []) if s) for name in ("wq", "wk")
    }
    counts = [
        *(
            s[0]
            for name in ("mta_kernel", "mta_kernel_after_sm")
            for s in shapes.get(f"attention.{name}", [])
            if s
        ),
        *(s[0] for name in ("wpsm", "wposm") for s in shapes.get(f"attention.{name}.weight", []) if s),
        *(s[0] * s[1] for s in shapes.get("attention.head_kernel", []) if len(s) == 3),
    ]
    d_head = _usual(
        s[-1] for name in ("subln", "gate") for s in shapes.get(f"attention.{name}.weight", []) if s
    )
    n_heads = _usual(counts)
    if n_heads and not d_head and rows["wq"]:
        d_head = rows["wq"] // n_heads
    if d_head and not n_heads and rows["wq"]:
        n_heads = rows["wq"] // d_head
    n_kv_heads = rows["wk"] // d_head if rows["wk"] and d_head else None
    return {"n_heads": n_heads, "head_dim": d_head, "n_kv_heads": n_kv_heads}


def _kernel_hints(shapes: Mapping[str, list[Shape]]) -> dict[str, int | None]:
    hints: dict[str, int | None] = {}
    for prefix, name in (("", "mta_kernel"), ("after_sm_", "mta_kernel_after_sm")):
        kernels = [shape for shape in shapes.get(f"attention.{name}", []) if len(shape) == 4]
        hints[f"{prefix}query_kernel_size"] = _usual(shape[2] for shape in kernels)
        hints[f"{prefix}key_kernel_size"] = _usual(shape[3] for shape in kernels)
    groups = [shape for shape in shapes.get("attention.head_kernel", []) if len(shape) == 3]
    hints["head_kernel_size"] = _usual(shape[1] for shape in groups)
    return hints


def _flag_hints(shapes: Mapping[str, list[Shape]], stored: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Options that show by the presence of their tensors."""
    mixers = ("wpsm.weight", "wposm.weight", "head_kernel")
    kernels = [key for key in stored if key.endswith((".mta_kernel", ".mta_kernel_after_sm"))]
    layers = {int(match[1]) for key in kernels if (match := _LAYER_KEY.fullmatch(key))}
    gate = _usual(shape[0] for shape in shapes.get("attention.gate.weight", []) if shape)
    return {
        "use_mta": bool(kernels) or any(f"attention.{name}" in shapes for name in mixers),
        "mta_layers": tuple(sorted(layers)) if layers else None,
        "pre_sm_linear_head": "attention.wpsm.weight" in shapes,
        "post_sm_linear_head": "attention.wposm.weight" in shapes,
        "group_norm": "attention.subln.weight" in shapes,
        "add_gating": gate is not None,
        "gate_1d": None if gate is None else gate == 1,
        "weight_tying": "output.weight" not in stored,
    }


def _usual(values: Iterable[int]) -> int | None:
    counted = Counter(value for value in values if value >= 1).most_common(1)
    return counted[0][0] if counted else None

"""Labels of layers and heads, counted from 0 or from 1 as the visitor chose. Labels only:
the URL, files and the command line always count from 0.
"""

from collections.abc import Sequence


def layer_label(layer: int, numbering: int) -> str:
    """`L2`."""
    return f"L{layer + numbering}"


def head_label(head: int, numbering: int) -> str:
    """`H1`."""
    return f"H{head + numbering}"


def head_name(layer: int, head: int, numbering: int) -> str:
    """`L2 H1`."""
    return f"{layer_label(layer, numbering)} {head_label(head, numbering)}"


def layer_list(layers: Sequence[int], numbering: int) -> str:
    """`1, 3, 5`."""
    return ", ".join(str(layer + numbering) for layer in layers)

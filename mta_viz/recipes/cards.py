"""Model cards: what was trained, how, on what, and how well. Owns the files, not the numbers."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

CURVE_POINTS = 200


def hardware_name(device: torch.device) -> str:
    """The accelerator's product name, or the CPU's architecture and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads used)"


def loss_curve(losses: Sequence[float], points: int = CURVE_POINTS) -> list[tuple[int, float]]:
    """At most `points` pairs (steps done, mean loss of the steps since the pair before)."""
    width = -(-len(losses) // points) or 1
    chunks = ((start, losses[start : start + width]) for start in range(0, len(losses), width))
    return [(start + len(chunk), sum(chunk) / len(chunk)) for start, chunk in chunks]


def write_card(folder: Path, card: dict[str, Any], title: str, summary: str) -> None:
    """Write `card.json` and a readable `README.md` of it: the curve's ends only, and `cells` left out."""
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    facts = {name: value for name, value in card.items() if name != "loss_curve"}
    lines = [f"# {title}", "", summary, "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    if curve := card["loss_curve"]:
        (first_step, first), (last_step, last) = curve[0], curve[-1]
        lines += [
            "",
            f"Loss: {first:.3f} after {first_step} steps, {last:.4f} after {last_step} (card.json).",
        ]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items() if name != "cells")
    if isinstance(value, list | tuple):
        return " ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)

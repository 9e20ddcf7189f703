"""What every recipe does around its run: refuse a bad folder, and say how far it is.

Model cards: what was trained, how, on what, and how well. Owns the files, not the numbers.
The kernels over training, as a file beside the weights: `kernel_history.safetensors`.
"""

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from mta_viz.checkpoint.layout import file_entries
from mta_viz.checkpoint.lingua import write_lingua
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.training.trainer import Snapshot, TrainingError, TrainingProgress


def check_seconds(max_seconds: float | None) -> None:
    """Raises `TrainingError` unless the limit is None or a number above 0."""
    if max_seconds is not None and not max_seconds > 0:
        raise TrainingError(f"max_seconds is {max_seconds}; expected a number of seconds above 0.")


def prepare_folder(out: Path, resume: bool) -> None:
    """Make the folder of a new run. Raises `MtaVizError` when something is there already."""
    if resume:
        return
    if out.is_symlink() and not out.exists():
        raise MtaVizError(f"{out} is a link to something that is not there; choose another folder.")
    if _is_taken(out):
        raise MtaVizError(f"{out} exists; choose another folder, or resume the run that began there.")
    out.mkdir(parents=True, exist_ok=True)


def check_export(lingua: Path | None, out: Path, resume: bool) -> None:
    """Raises `MtaVizError` unless the export's folder is None or, but for a resumed run's, a new one."""
    if lingua is None:
        return
    if lingua.resolve() == out.resolve():
        raise MtaVizError(f"{lingua} is the run's own folder; choose another one for the Lingua export.")
    if not resume and _is_taken(lingua):
        raise MtaVizError(f"{lingua} exists; choose another folder for the Lingua export.")


def export_lingua(lingua: Path | None, out: Path) -> None:
    """Write the checkpoint in `out` as Lingua's consolidated folder, its dtype kept."""
    if lingua is not None:
        write_lingua(lingua, read_checkpoint(out), overwrite=True)  # what a stopped run left


def _is_taken(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def print_progress(progress: TrainingProgress) -> None:
    """Steps, loss and time left, on stderr."""
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    done = f"step {progress.steps_done} of {progress.steps}  loss {progress.loss:.4f}"
    print(f"{done}  {minutes}:{seconds:02d} left", file=sys.stderr, flush=True)


def print_evaluation(share: float) -> None:
    """The share of the evaluation that is done, on one line of stderr."""
    print(f"evaluating {share:4.0%}", end="\n" if share >= 1 else "\r", file=sys.stderr, flush=True)


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


def write_history(path: Path, config: ModelConfig, history: Sequence[Snapshot], dtype: torch.dtype) -> None:
    """Write every kernel as [snapshot, *shape in the checkpoint file]; `steps` is in the metadata.

    `steps` is a JSON list of training steps done, strictly increasing. A model without kernels
    gets no file: there is nothing to write.
    """
    entries = file_entries(config)
    stacked = {
        entries[name].key: torch.stack(
            [entries[name].layout.write(snapshot.kernels[name]) for snapshot in history]
        ).to(dtype)
        for name in history[0].kernels
    }
    if stacked:
        steps = json.dumps([snapshot.step for snapshot in history])
        save_file(stacked, path, metadata={"steps": steps})

"""Whether one model descends from another, so that equal indices mean the same head.

Recorded: both are steps of one run, or `params.json` of one names the other's folder as the checkpoint it
started from (`checkpoint.init_ckpt_path`, as Lingua writes it). Else read off the embeddings.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from mta_viz.checkpoint.files import PARAMS, STEPS
from mta_viz.model.transformer import HookedMTA

CLOSE = 0.9  # cosine of the embeddings above which one model is taken to come from the other
ROWS = 4096  # of the embeddings, at a time
_STEP_NAME = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Kinship:
    """`related`: heads of equal index may be compared. `cosine` of the embeddings, where it decided."""

    related: bool
    why: str
    cosine: float | None = None


def kinship(a: HookedMTA, b: HookedMTA) -> Kinship:
    """How the two models are related. Models with other numbers of layers or heads never are."""
    if (a.config.n_layers, a.config.n_heads) != (b.config.n_layers, b.config.n_heads):
        return Kinship(False, "the models have other numbers of layers or heads")
    recorded = _recorded(a, b)
    if recorded:
        return Kinship(True, recorded)
    cosine = embedding_cosine(a, b)
    if cosine is None:
        return Kinship(False, "nothing says that one was trained from the other")
    if cosine > CLOSE:
        return Kinship(True, f"the cosine of their embeddings is {cosine:.3f}, above {CLOSE}", cosine)
    return Kinship(False, f"the models were trained apart (cosine of embeddings {cosine:.2f})", cosine)


def embedding_cosine(a: HookedMTA, b: HookedMTA) -> float | None:
    """Cosine of both embedding matrices as vectors; None where their shapes differ."""
    weights = [model.embed.weight.detach() for model in (a, b)]
    if weights[0].shape != weights[1].shape:
        return None
    sums = torch.zeros(3, dtype=torch.float64)
    # In parts: of a large model's tables whole copies in float64 take gigabytes.
    for parts in zip(*(one.split(ROWS) for one in weights), strict=True):
        left, right = (part.cpu().double() for part in parts)
        sums += torch.stack([(left * right).sum(), left.square().sum(), right.square().sum()])
    product, *squares = sums.tolist()
    return product / max((squares[0] * squares[1]) ** 0.5, 1e-30)


def _recorded(a: HookedMTA, b: HookedMTA) -> str:
    if a is b or _shares_weights(a, b):
        return "both sides are one model"
    if a.source is None or b.source is None:
        return ""
    path_a, path_b = a.source.path, b.source.path
    first, second = _step_folder(path_a), _step_folder(path_b)
    if first.parent == second.parent and all(map(_is_step, (first, second))):
        return "both are steps of one training run"
    if _names(path_b, path_a):
        return "B's params.json names A as the checkpoint it started from"
    return "A's params.json names B as the checkpoint it started from" if _names(path_a, path_b) else ""


def _shares_weights(a: HookedMTA, b: HookedMTA) -> bool:
    """An edited model shares the tensors it does not change, the embedding among them."""
    return a.embed.weight.data_ptr() == b.embed.weight.data_ptr()


def _step_folder(path: Path) -> Path:
    path = path.resolve()
    return path.parent if path.name == "consolidated" else path


def _is_step(folder: Path) -> bool:
    """As training writes them; folders named 0 and 1 elsewhere may be anything."""
    return folder.parent.name == STEPS and _STEP_NAME.fullmatch(folder.name) is not None


def _names(child: Path, parent: Path) -> bool:
    """Whether the child's params.json names the parent's folder, or one that holds it."""
    try:
        params = json.loads((child / PARAMS).read_text("utf-8"))
        named = params["checkpoint"]["init_ckpt_path"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    if not isinstance(named, str) or not named.strip():
        return False
    try:
        wanted, place = (child / named).resolve(), parent.resolve()
    except (OSError, ValueError):
        return False
    return place == wanted or (place.parent == wanted and place.name == "consolidated")

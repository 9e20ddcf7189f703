"""Whether one model descends from another, so that equal indices mean the same head.

Recorded: both are steps of one run, or `params.json` of one names the other's folder as the checkpoint it
started from (`checkpoint.init_ckpt_path`, as Lingua writes it). Else read off the embeddings.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from mta_viz.checkpoint.files import PARAMS
from mta_viz.model.transformer import HookedMTA

CLOSE = 0.9  # cosine of the embeddings above which one model is taken to come from the other
_STEP_NAME = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Kinship:
    """`related`: heads of equal index may be compared. `cosine` of the embeddings, None for other shapes."""

    related: bool
    why: str
    cosine: float | None = None


def kinship(a: HookedMTA, b: HookedMTA) -> Kinship:
    """How the two models are related. Models with other numbers of layers or heads never are."""
    if (a.config.n_layers, a.config.n_heads) != (b.config.n_layers, b.config.n_heads):
        return Kinship(False, "the models have other numbers of layers or heads")
    recorded = _recorded(a, b)
    cosine = embedding_cosine(a, b)
    if recorded:
        return Kinship(True, recorded, cosine)
    if cosine is None:
        return Kinship(False, "nothing says that one was trained from the other")
    if cosine > CLOSE:
        return Kinship(True, f"the cosine of their embeddings is {cosine:.3f}, above {CLOSE}", cosine)
    return Kinship(False, f"the models were trained apart (cosine of embeddings {cosine:.2f})", cosine)


def embedding_cosine(a: HookedMTA, b: HookedMTA) -> float | None:
    """Cosine of both embedding matrices as vectors; None where their shapes differ."""
    left, right = (model.embed.weight.detach().float().cpu().flatten() for model in (a, b))
    if a.embed.weight.shape != b.embed.weight.shape:
        return None
    return float(torch.nn.functional.cosine_similarity(left.double(), right.double(), dim=0))


def _recorded(a: HookedMTA, b: HookedMTA) -> str:
    if a is b or _shares_weights(a, b):
        return "both sides are one model"
    if a.source is None or b.source is None:
        return ""
    paths = {"A": a.source.path, "B": b.source.path}
    first, second = map(_step_folder, paths.values())
    if first.parent == second.parent and all(_STEP_NAME.fullmatch(one.name) for one in (first, second)):
        return "both are steps of one training run"
    for child, parent in (("B", "A"), ("A", "B")):
        if _names(paths[child], paths[parent]):
            return f"{child}'s params.json names {parent} as the checkpoint it started from"
    return ""


def _shares_weights(a: HookedMTA, b: HookedMTA) -> bool:
    """An edited model shares the tensors it does not change, the embedding among them."""
    return a.embed.weight.data_ptr() == b.embed.weight.data_ptr()


def _step_folder(path: Path) -> Path:
    path = path.resolve()
    return path.parent if path.name == "consolidated" else path


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

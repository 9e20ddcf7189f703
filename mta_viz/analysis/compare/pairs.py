"""Which head of model B stands beside which head of model A, and how far the kernels of a pair are apart.

Heads of kin are paired by index, others by what they do. Kernels are laid over each other by their offsets: a
tap a kernel does not have is 0, and a layer without kernels convolves with the identity. Mixing rows are
compared only by index: other pairs have other sources.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from mta_viz.analysis.attention.patterns import layer_thumbnails
from mta_viz.analysis.kernels import kernels as checkpoint_kernels
from mta_viz.analysis.kernels.kernels import LayerKernelSet, Offsets
from mta_viz.analysis.kernels.mixing import best_match
from mta_viz.analysis.kernels.table import kernel_table
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import PARAMS, STEPS
from mta_viz.config import KernelPlace, Where
from mta_viz.errors import FileError, PromptError
from mta_viz.model.stages import Stage
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.tracing import Progress, Trace, ignore, progress_within

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
    for parts in zip(*(weight.split(ROWS) for weight in weights), strict=True):
        left, right = (part.cpu().double() for part in parts)
        sums += torch.stack([(left * right).sum(), left.square().sum(), right.square().sum()])
    product, *squares = sums.tolist()
    return product / max((squares[0] * squares[1]) ** 0.5, 1e-30)


def _recorded(a: HookedMTA, b: HookedMTA) -> str:
    if same_weights(a, b):
        return "both sides are one model"
    if a.source is None or b.source is None:
        return ""
    path_a, path_b = a.source.path, b.source.path
    first, second = step_folder(path_a), step_folder(path_b)
    # Folders named 0 and 1 elsewhere than where training writes its steps may be anything.
    steps = first.parent.name == STEPS and all(_STEP_NAME.fullmatch(step.name) for step in (first, second))
    if steps and first.parent == second.parent:
        return "both are steps of one training run"
    if _names(path_b, path_a):
        return "B's params.json names A as the checkpoint it started from"
    return "A's params.json names B as the checkpoint it started from" if _names(path_a, path_b) else ""


def same_weights(a: HookedMTA, b: HookedMTA) -> bool:
    """Whether both are of one file, or share the tensors that no intervention changes, as the embedding."""
    shared = a.embed.weight.data_ptr() == b.embed.weight.data_ptr()
    return shared or (a.source is not None and a.source == b.source)


def step_folder(path: Path) -> Path:
    """The folder of a checkpoint, which may be a step of a training run."""
    path = path.resolve()
    return path.parent if path.name == "consolidated" else path


def _names(child: Path, parent: Path) -> bool:
    """Whether the child's params.json names the parent's folder, or one that holds it."""
    try:
        named = door.read_json(child / PARAMS)["checkpoint"]["init_ckpt_path"]
        if not isinstance(named, str) or not named.strip():
            return False
        wanted, place = (child / named).resolve(), parent.resolve()
    except (FileError, KeyError, TypeError, OSError, ValueError):
        return False
    return place == wanted or (place.parent == wanted and place.name == "consolidated")


Rule = Literal["index", "similarity", "needle"]

CELLS = 64  # a side of the maps that are compared: longer prompts are pooled
FEWEST = 8  # tokens in common below which maps say nothing of likeness
CLEAR_R, CLEAR_LEAD = 0.7, 0.1


@dataclass(frozen=True)
class HeadPairs:
    """`partner` [layer, head] = (layer, head) of B, -1 where a head has none.

    By similarity: `r`, the correlation of the pair's maps, and `next_r`, that of A's head with the
    most alike of B's other heads; NaN by other rules. `why` is a sentence.
    """

    rule: Rule | Literal["none"]
    why: str
    partner: Int[np.ndarray, "layer head 2"]
    r: Float[np.ndarray, "layer head"]
    next_r: Float[np.ndarray, "layer head"]

    def of(self, layer: int, head: int) -> tuple[int, int] | None:
        """B's layer and head beside one of A's."""
        place = self.partner[layer, head]
        return None if place[0] < 0 else (int(place[0]), int(place[1]))

    def sure(self, layer: int, head: int) -> str:
        """How sure this pair is, in words; empty by index."""
        if self.rule == "index" or self.of(layer, head) is None:
            return ""
        if self.rule == "needle":
            return "equal rank in needle share, which says nothing of what else the heads do"
        r, other = self.r[layer, head], self.next_r[layer, head]
        clear = r >= CLEAR_R and not r - other < CLEAR_LEAD
        lead = "" if np.isnan(other) else f", with the most alike of B's other heads {other:.2f}"
        return f"{'clear' if clear else 'unsure'}: r = {r:.2f}{lead}"


def pairs_by_index(n_layers: int, n_heads: int, kin: Kinship) -> HeadPairs:
    """Every head beside the one of its own index."""
    partner = np.stack(np.meshgrid(np.arange(n_layers), np.arange(n_heads), indexing="ij"), -1)
    nothing = np.full((n_layers, n_heads), np.nan)
    return HeadPairs("index", f"Heads paired by index: {kin.why}.", partner, nothing, nothing)


def no_pairs(n_layers: int, n_heads: int, n_tokens: int, kin: Kinship) -> HeadPairs:
    """No head beside any: the models are no kin, and too few tokens are shared to see what heads do."""
    why = (
        f"Heads are not paired: {kin.why}, and the prompts have {n_tokens} tokens in common at their start, "
        f"fewer than the {FEWEST} it takes to pair heads by their maps. Compare on a longer prompt that both "
        "tokenizers write alike."
    )
    nothing = np.full((n_layers, n_heads), np.nan)
    return HeadPairs("none", why, np.full((n_layers, n_heads, 2), -1), nothing, nothing)


def pairs_by_similarity(
    a: Trace, b: Trace, n_tokens: int, kin: Kinship, progress: Progress = ignore
) -> HeadPairs:
    """One to one over all layers, so that the summed correlation is largest.

    Of the final weights over the first `n_tokens`, which both prompts share. Raises PromptError for
    fewer than 8; raise in `progress` to stop.
    """
    if n_tokens < FEWEST:
        raise PromptError(
            f"the prompts have {n_tokens} tokens in common at their start; to pair heads by their maps takes "
            f"{FEWEST}. Compare on a longer prompt that both tokenizers write alike"
        )
    first = a.model.config.n_layers / (a.model.config.n_layers + b.model.config.n_layers)
    r: Float[np.ndarray, "head other"] = (
        _features(a, n_tokens, progress_within(progress, 0.0, first))
        @ _features(b, n_tokens, progress_within(progress, first, 1 - first)).T
    )
    shape, match = (a.model.config.n_layers, a.model.config.n_heads), best_match(r)
    own = np.where(match >= 0, r[np.arange(len(r)), match], np.nan)
    others = np.where(np.arange(r.shape[1]) == match[:, None], -np.inf, r).max(1)
    others = np.where(np.isfinite(others), others, np.nan)
    why = (
        f"Heads paired by map similarity on this prompt (median r = {np.nanmedian(own):.2f}); {kin.why}, "
        "so equal indices mean nothing."
    )
    places = _places(match, b.model.config.n_heads).reshape(*shape, 2)
    return HeadPairs("similarity", why, places, own.reshape(shape), others.reshape(shape))


def pairs_by_needle(
    a: Float[np.ndarray, "layer head"], b: Float[np.ndarray, "other_layer other_head"], kin: Kinship
) -> HeadPairs:
    """A's best needle head beside B's best, the second beside the second, and so on; shares are given."""
    first, second = (np.argsort(-np.nan_to_num(shares.ravel(), nan=-1), kind="stable") for shares in (a, b))
    match = np.full(a.size, -1)
    count = min(a.size, b.size)
    match[first[:count]] = second[:count]
    nothing = np.full(a.shape, np.nan)
    why = (
        "Heads paired by needle share on this prompt, A's best finder beside B's best and so on; "
        f"{kin.why}, so equal indices mean nothing."
    )
    return HeadPairs("needle", why, _places(match, b.shape[1]).reshape(*a.shape, 2), nothing, nothing)


def _places(match: Int[np.ndarray, " head"], n_heads: int) -> Int[np.ndarray, "head 2"]:
    """Layer and head of each flat index; -1, -1 for none."""
    return np.where(match[:, None] < 0, -1, np.stack(np.divmod(match, n_heads), -1))


def _features(trace: Trace, n_tokens: int, progress: Progress) -> Float[np.ndarray, "head cell"]:
    """Every head's causal cells, pooled, less their mean and of length 1: products are correlations.

    Without the first column, which holds the first token: most heads attend to it, whatever they do.
    """
    layers, n_layers = [], trace.model.config.n_layers
    for layer in range(n_layers):
        layers.append(layer_thumbnails(trace, layer, Stage.PATTERN, CELLS, n_tokens=n_tokens).values[0])
        progress((layer + 1) / n_layers)
    maps = torch.cat(layers).double()
    used = torch.ones(maps.shape[1:], dtype=torch.bool).tril()
    used[:, 0] = False
    cells = maps[:, used].nan_to_num(0.0, 0.0, 0.0)
    cells = cells - cells.mean(1, keepdim=True)
    length = cells.norm(dim=1, keepdim=True)
    return (cells / length.where(length > 0, 1.0)).numpy()


NO_KERNEL = "no kernel (identity)"
Taps = Float[np.ndarray, "_ _"]  # of two heads, whose sizes differ


@dataclass(frozen=True)
class KernelPair:
    """A kernel of A's head and of its partner in B. `distance` is in taps, sqrt of the sum of squares.

    `shape_a`, `shape_b`: names as in the atlas. `off_a`, `off_b`: distance from the identity.
    """

    layer: int
    head: int
    where: Where
    layer_b: int
    head_b: int
    distance: float
    off_a: float
    off_b: float
    shape_a: str
    shape_b: str


def kernel_pairs(
    a: HookedMTA, b: HookedMTA, pairs: HeadPairs, progress: Progress = ignore
) -> tuple[KernelPair, ...]:
    """Every place where one of two paired heads has a kernel, A's layers and heads in order.

    Empty for one and the same model, whose kernels are equal. Raise in `progress` to stop.
    """
    if same_weights(a, b) and a.plan == b.plan:
        return ()
    shapes_a, shapes_b = _shapes(a, progress, 0.5), _shapes(b, progress, 1.0)
    sets = [[_kernels(model, at) for at in range(model.config.n_layers)] for model in (a, b)]
    kernels = []
    for layer, head in np.ndindex(pairs.partner.shape[:2]):
        other = pairs.of(layer, head)
        if other is not None:
            here, there = sets[0][layer], sets[1][other[0]]
            for where, distances in _measured(here, there, head, other[1], pairs):
                shape_a = shapes_a.get((layer, head, where), NO_KERNEL)
                shape_b = shapes_b.get((*other, where), NO_KERNEL)
                kernels.append(KernelPair(layer, head, where, *other, *distances, shape_a, shape_b))
    return tuple(kernels)


def pair_taps(
    a: HookedMTA, b: HookedMTA, first: tuple[int, int], second: tuple[int, int], where: KernelPlace
) -> tuple[Taps, Taps, Offsets]:
    """Both kernels over the same offsets, the identity where a layer has none."""
    places = (a, *first), (b, *second)
    own, beside = (_taps(_kernels(model, layer), head, where) for model, layer, head in places)
    return _laid_over(own, beside)


def _shapes(model: HookedMTA, progress: Progress, share: float) -> Mapping[tuple[int, int, str], str]:
    rows = kernel_table(model.state_dict(), model.config)
    progress(share)
    faint = {True: "faint ", False: ""}
    return {(row["layer"], row["head"], row["where"]): f"{faint[row['faint']]}{row['shape']}" for row in rows}


def _kernels(model: HookedMTA, layer: int) -> LayerKernelSet:
    return checkpoint_kernels.layer_kernels(model.state_dict(), model.config, layer)


def _measured(
    here: LayerKernelSet, there: LayerKernelSet, head: int, other: int, pairs: HeadPairs
) -> Iterator[tuple[Where, tuple[float, float, float]]]:
    """Where one of two heads has a kernel: their distance, and that of each from the identity."""
    for where in checkpoint_kernels.KEY_QUERY:
        if getattr(here, where) is not None or getattr(there, where) is not None:
            first, second, offsets = _laid_over(_taps(here, head, where), _taps(there, other, where))
            identity = np.zeros_like(first)
            identity[offsets.own] = 1.0
            yield where, _distances(first, second, identity)
    for mix in checkpoint_kernels.MIXING if pairs.rule == "index" else ():
        matrices, identity = [getattr(here, mix), getattr(there, mix)], np.eye(pairs.r.shape[1])[head]
        if any(matrix is not None for matrix in matrices):
            first, second = (
                identity if matrix is None else torch.block_diag(*matrix.double())[head].numpy()
                for matrix in matrices
            )
            yield mix, _distances(first, second, identity)


def _distances(a: np.ndarray, b: np.ndarray, identity: np.ndarray) -> tuple[float, float, float]:
    apart, off_a, off_b = (float(np.linalg.norm(gap)) for gap in (a - b, a - identity, b - identity))
    return apart, off_a, off_b


def _taps(kernels: LayerKernelSet, head: int, where: KernelPlace) -> tuple[Taps, Offsets]:
    if getattr(kernels, where) is None:
        return np.ones((1, 1)), Offsets((0,), (0,))  # the identity
    taps, offsets = kernels.taps(where)
    return taps[head].double().numpy(), offsets


def _laid_over(a: tuple[Taps, Offsets], b: tuple[Taps, Offsets]) -> tuple[Taps, Taps, Offsets]:
    both = a[1], b[1]
    first_query = min(offset.query[0] for offset in both)
    first_key, last_key = min(offset.key[0] for offset in both), max(offset.key[-1] for offset in both)
    offsets = Offsets(tuple(range(first_query, 1)), tuple(range(first_key, last_key + 1)))
    laid = []
    for taps, own in (a, b):
        whole = np.zeros((len(offsets.query), len(offsets.key)))
        row, column = own.query[0] - first_query, own.key[0] - first_key
        whole[row : row + taps.shape[0], column : column + taps.shape[1]] = taps
        laid.append(whole)
    return laid[0], laid[1], offsets

"""Which head of model B stands beside which head of model A.

By index only for related models: heads of models trained apart come in any order. Else one to one over
all layers, by how alike their final weights are on this prompt, or by how much each gives the needle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from mta_viz.analysis.kinship import Kinship
from mta_viz.analysis.shapes.matching import best_match
from mta_viz.analysis.thumbnails import layer_thumbnails
from mta_viz.errors import PromptError
from mta_viz.model.stages import Stage
from mta_viz.tracing import Progress, Trace

Rule = Literal["index", "similarity", "needle"]
Likeness = Float[np.ndarray, "head other"]
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
        found = self.partner[layer, head]
        return None if found[0] < 0 else (int(found[0]), int(found[1]))

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
    a: Trace, b: Trace, n_tokens: int, kin: Kinship, progress: Progress | None = None
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
    count = a.model.config.n_layers + b.model.config.n_layers
    done = iter(range(1, count + 1))

    def told() -> None:
        if progress is not None:
            progress(next(done) / count)

    r = _features(a, n_tokens, told) @ _features(b, n_tokens, told).T
    return _similar(r, a, b, kin)


def _similar(r: Likeness, a: Trace, b: Trace, kin: Kinship) -> HeadPairs:
    shape, n_heads = (a.model.config.n_layers, a.model.config.n_heads), b.model.config.n_heads
    match = best_match(r)
    rows = np.arange(len(r))
    own = np.where(match >= 0, r[rows, match], np.nan)
    others = np.where(np.arange(r.shape[1]) == match[:, None], -np.inf, r).max(1)
    others = np.where(np.isfinite(others), others, np.nan)
    why = (
        f"Heads paired by map similarity on this prompt (median r = {np.nanmedian(own):.2f}); {kin.why}, "
        "so equal indices mean nothing."
    )
    places = _places(match, n_heads).reshape(*shape, 2)
    return HeadPairs("similarity", why, places, own.reshape(shape), others.reshape(shape))


def pairs_by_needle(
    a: Float[np.ndarray, "layer head"], b: Float[np.ndarray, "other_layer other_head"], kin: Kinship
) -> HeadPairs:
    """A's best needle head beside B's best, the second beside the second, and so on; shares are given."""
    first, second = (np.argsort(-np.nan_to_num(one.ravel(), nan=-1), kind="stable") for one in (a, b))
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


def _features(trace: Trace, n_tokens: int, told: Callable[[], None]) -> Float[np.ndarray, "head cell"]:
    """Every head's causal cells, pooled, less their mean and of length 1: products are correlations.

    Without the first column, which holds the first token: most heads attend to it, whatever they do.
    """
    layers = []
    for layer in range(trace.model.config.n_layers):
        layers.append(layer_thumbnails(trace, layer, Stage.PATTERN, CELLS, n_tokens=n_tokens).values[0])
        told()
    maps = torch.cat(layers).double()
    used = torch.ones(maps.shape[1:], dtype=torch.bool).tril()
    used[:, 0] = False
    cells = maps[:, used].nan_to_num(0.0, 0.0, 0.0)
    cells = cells - cells.mean(1, keepdim=True)
    length = cells.norm(dim=1, keepdim=True)
    return (cells / length.where(length > 0, 1.0)).numpy()

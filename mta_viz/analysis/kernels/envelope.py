"""Kernels that learned no shape but are otherwise a model's own: surrogates, and what they reach.

A surrogate has at each tap the energy that the model's kernels of its size and place have there on average,
and the correlation of their neighbouring taps; its signs are random. Names that such kernels get as often say
where a model's energy lies, not what shape it has. Owns the surrogates, their names, and the p against them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import measures, naming
from mta_viz.analysis.kernels.kernels import KernelId, KernelStack, Offsets
from mta_viz.analysis.kernels.measures import Kernels, PerKernel
from mta_viz.analysis.kernels.naming import KernelShape
from mta_viz.errors import MtaVizError
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tables import Table
from mta_viz.tasks.intervals import accuracy_interval

SEED = 0
FIRST, FEWEST, MOST = 9_999, 99_999, 999_999  # surrogates of a p
RESOLUTION = 2.0  # times what one test among all needs
FALSE_SHARE, CLEAR_P = 0.05, 0.01  # false among the survivors, expected
ENVELOPE_FALSE_SHARE = FALSE_SHARE / 2  # of 200 surrogate models hardly ever more than 5 % show a name
NAMED = 10_000  # surrogates that are named
BLOCK = 50_000
LARGEST_CORRELATION = 0.95


@dataclass(frozen=True)
class Envelope:
    """What the kernels of one size and place have in common besides shapes.

    `sizes`: the root of the mean share of ||r||^2 at each tap, 0 at the own tap. `along_queries`,
    `along_keys`: the correlation of neighbouring taps, from the energies of both. `own`: every kernel's own
    tap over ||r||.
    """

    offsets: Offsets
    sizes: Float[Array, "c_q c_k"]
    along_queries: float
    along_keys: float
    own: PerKernel

    def draw(self, count: int, random: np.random.Generator) -> Kernels:
        """Surrogates: Gaussian taps under the envelope, ||r|| = 1, the own tap that of a kernel at random."""
        taps = random.standard_normal((count, *self.sizes.shape))
        rows, columns = map(_mixing, self.sizes.shape, (self.along_queries, self.along_keys))
        return _with_own((rows @ taps @ columns.T) * self.sizes, self, random)


def envelope_of(kernels: Kernels, offsets: Offsets) -> Envelope | None:
    """The envelope of finite kernels; None where no kernel has a tap besides its own."""
    rest = measures.without_own_tap(kernels, offsets)
    length = measures.norm(rest)
    rest, length, own = (part[length > 0] for part in (rest, length, measures.own_tap(kernels, offsets)))
    if not len(rest):
        return None
    unit = rest / length[:, None, None]
    sizes = np.sqrt(np.square(unit).mean(0))
    along_queries, along_keys = (_correlation(unit, sizes, axis) for axis in (1, 2))
    return Envelope(offsets, sizes, along_queries, along_keys, own / length)


def with_random_signs(kernels: Kernels, offsets: Offsets, random: np.random.Generator) -> Kernels:
    """Each kernel with the signs of its taps at random, the own tap as it is."""
    signed = kernels * random.choice([-1.0, 1.0], kernels.shape)
    signed[(slice(None), *offsets.own)] = measures.own_tap(kernels, offsets)
    return signed


def _correlation(unit: Kernels, sizes: Float[Array, "c_q c_k"], axis: int) -> float:
    """sum r r' / sum sqrt(v v') over pairs of neighbours along an axis, v the mean energies; 0 without
    pairs."""
    neighbours = range(unit.shape[axis] - 1), range(1, unit.shape[axis])
    first, second = (np.take(unit, part, axis) for part in neighbours)
    size, next_size = (np.take(sizes, part, axis - 1) for part in neighbours)
    expected = float((size * next_size).sum()) * len(unit)
    correlation = float((first * second).sum()) / expected if expected > 0 else 0.0
    return float(np.clip(correlation, -LARGEST_CORRELATION, LARGEST_CORRELATION))


def _mixing(size: int, correlation: float) -> Float[Array, "tap tap"]:
    """What turns independent taps into a line of them with that correlation of neighbours."""
    distance = np.abs(np.arange(size)[:, None] - np.arange(size))
    return np.linalg.cholesky(np.power(correlation, distance) if correlation else np.eye(size))


def _with_own(rest: Kernels, envelope: Envelope, random: np.random.Generator) -> Kernels:
    length = measures.norm(rest)[:, None, None]
    kernels = rest / np.where(length > 0, length, 1)
    kernels[(slice(None), *envelope.offsets.own)] = random.choice(envelope.own, len(rest))
    return kernels


def named_share(envelope: Envelope) -> tuple[float, float]:
    """Shares of surrogates that a template names, and that an edge names."""
    drawn = envelope.draw(NAMED, np.random.default_rng(SEED))
    evidence = naming.Evidence(drawn, envelope.offsets)
    return float(evidence.templates.any(-1).mean()), float(evidence.edge.fires.mean())


def envelope_p(
    kernels: Kernels, envelope: Envelope, fired: Bool[Array, "kernel template"], tests: int
) -> PerKernel:
    """The p of kernels with template names (`fired`) against surrogates; of several names the smallest.

    How often a surrogate has, in any template, a score at least as rare as the kernel's is in its own
    template: the smallest p of all templates (Westfall & Young 1993). 9,999 surrogates, and where they leave
    p at most 0.01 as many as one kernel among `tests` needs to survive.
    """
    enough = int(np.clip(RESOLUTION / ENVELOPE_FALSE_SHARE * fired.shape[1] * tests, FEWEST, MOST))
    p = _rarity(kernels, envelope, fired, FIRST)
    clear = p <= CLEAR_P
    if clear.any():
        p[clear] = _rarity(kernels[clear], envelope, fired[clear], enough)
    return p


def _rarity(
    kernels: Kernels, envelope: Envelope, fired: Bool[Array, "kernel template"], count: int
) -> PerKernel:
    null = np.concatenate([*_scores(envelope, count)])
    order = np.argsort(-null, axis=0)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, count + 1)[:, None], 0)
    rarest, null = np.sort(ranks.min(-1)), np.sort(null, axis=0)
    scores = np.abs(measures.template_scores(kernels, envelope.offsets)) - naming.ROUNDING
    place = np.full(fired.shape, count + 1)
    for template in np.flatnonzero(fired.any(0)):
        place[:, template] = 1 + count - np.searchsorted(null[:, template], scores[:, template])
    best = np.where(fired, place, count + 1).min(-1)
    return (1 + np.searchsorted(rarest, best, "right")) / (1 + count)


def _scores(envelope: Envelope, count: int) -> Iterator[Float[Array, "surrogate template"]]:
    random = np.random.default_rng(SEED)
    for start in range(0, count, BLOCK):
        drawn = envelope.draw(min(BLOCK, count - start), random)
        yield np.abs(measures.template_scores(drawn, envelope.offsets)).astype(np.float32)


@dataclass(frozen=True)
class Judged:
    """A kernel among those of its model.

    `envelope_p`: 1 where no template names it and no test was made, NaN where `shape.p` is. `survives`:
    whether Benjamini-Hochberg over all kernels keeps it by both p (5 % by `shape.p`,
    2.5 % by `envelope_p`); None without a template's name.
    """

    shape: KernelShape
    envelope_p: float
    survives: bool | None


def judge_kernels(stacks: Sequence[KernelStack]) -> dict[KernelId, Judged]:
    """The names of all kernels of a model, and which survive. One stack a size and place.

    Kernels that `envelope_p` keeps get a p from up to 99,999 orders, the others keep that of 999.
    """
    places = [(stack, at) for stack in stacks for at in range(len(stack.ids))]
    shapes = [shape for stack in stacks for shape in naming.name_kernels(stack.taps, stack.offsets)]
    of_stacks = np.split(np.arange(len(places)), np.cumsum([len(stack.ids) for stack in stacks])[:-1])
    rarity = np.concatenate([
        _stack_p(stack, [shapes[at] for at in part], len(places))
        for stack, part in zip(stacks, of_stacks, strict=True)
    ]) if stacks else np.empty(0)  # fmt: skip
    survives = _kept(rarity, ENVELOPE_FALSE_SHARE)
    for at in np.flatnonzero(survives).tolist():
        stack, own = places[at]
        (shapes[at],) = naming.name_kernels(stack.taps[own : own + 1], stack.offsets, naming.STAGES)
    survives &= _kept(np.array([shape.p for shape in shapes]), FALSE_SHARE)
    return {
        stack.ids[own]: Judged(shape, float(p), bool(kept) if shape.templates else None)
        for (stack, own), shape, p, kept in zip(places, shapes, rarity, survives, strict=True)
    }


def _kept(p: PerKernel, level: float) -> Bool[Array, " kernel"]:
    """Which of those that were tested Benjamini-Hochberg keeps."""
    kept, tested = np.zeros(len(p), bool), ~np.isnan(p)
    kept[tested] = naming.benjamini_hochberg(p[tested], level)
    return kept


def _stack_p(stack: KernelStack, shapes: Sequence[KernelShape], tests: int) -> PerKernel:
    fired = np.zeros((len(shapes), len(measures.library(stack.offsets))), bool)
    for at, shape in enumerate(shapes):
        fired[at, list(shape.templates)] = True
    p = np.where(np.isnan([shape.p for shape in shapes]), np.nan, 1.0)
    envelope, named = envelope_of(stack.taps[stack.usable()], stack.offsets), fired.any(-1)
    if named.any() and envelope is not None:
        p[named] = envelope_p(stack.taps[named], envelope, fired[named], tests)
    return p


NULLS = ("envelope", "signs")


@dataclass(frozen=True)
class SurrogateModel:
    """Names of one surrogate model: kernels with a template's name, those that survive, and edges."""

    null: str
    model: int
    template_names: int
    surviving: int
    edges: int


@dataclass(frozen=True)
class Surrogates:
    """Surrogate models of a model, beside the model itself (`own`, its null is "")."""

    own: SurrogateModel
    models: tuple[SurrogateModel, ...]

    def table(self) -> Table:
        """A row a surrogate model."""
        columns = ("null", "model", "template_names", "surviving", "edges")
        return Table.of(columns, map(astuple, self.models))

    def summary(self, null: str) -> dict[str, Any]:
        """Means and 95 % ranges of names, and in how many models any survives, with its exact interval."""
        models = [model for model in self.models if model.null == null]
        answer: dict[str, Any] = {"null": null, "models": len(models)}
        for name in ("template_names", "edges"):
            counts = np.array([getattr(model, name) for model in models])
            low, high = np.quantile(counts, (0.025, 0.975), method="inverted_cdf").tolist()
            as_many = int((counts >= getattr(self.own, name)).sum())
            p = (1 + as_many) / (1 + len(models))
            answer[name] = {"mean": float(counts.mean()), "low": int(low), "high": int(high), "p": p}
        hits = sum(model.surviving > 0 for model in models)
        interval = list(accuracy_interval(hits, len(models)))
        return answer | {"with_surviving": hits, "share": hits / len(models), "interval": interval}


def surrogates(
    stacks: Sequence[KernelStack], count: int, seed: int = 0, progress: Progress = ignore
) -> Surrogates:
    """`count` surrogate models of each null, named and tested as the model itself is.

    envelope: kernels drawn from the model's own envelopes. signs: its own kernels, the sign of every tap but
    the own one at random. Raises MtaVizError for a model without a kernel that has a tap besides its own.
    """
    clean = [
        replace(stack, taps=np.where(stack.usable()[:, None, None], stack.taps, 0.0)) for stack in stacks
    ]
    if all(envelope_of(stack.taps, stack.offsets) is None for stack in clean):
        raise MtaVizError("the model has no key-query kernel with a tap besides its own, so no surrogates")
    random, models = np.random.default_rng(seed), []
    for null in NULLS:
        for model in range(count):
            drawn = [replace(stack, taps=_surrogate(stack, null, random)) for stack in clean]
            models.append(_counted(drawn, null, model))
            progress(len(models) / (len(NULLS) * count))
    return Surrogates(_counted(clean, "", 0), tuple(models))


def _surrogate(stack: KernelStack, null: str, random: np.random.Generator) -> Kernels:
    envelope = envelope_of(stack.taps, stack.offsets)
    if null == "signs" or envelope is None:
        return with_random_signs(stack.taps, stack.offsets, random)
    return envelope.draw(len(stack.ids), random)


def _counted(stacks: Sequence[KernelStack], null: str, model: int) -> SurrogateModel:
    judged = judge_kernels(stacks).values()
    named = [kernel for kernel in judged if kernel.survives is not None]
    edges = sum(name.evidence == "edge" for kernel in judged for name in kernel.shape.fired)
    return SurrogateModel(null, model, len(named), sum(bool(kernel.survives) for kernel in named), edges)

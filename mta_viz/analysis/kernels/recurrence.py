"""Which named kernels come again: in another training's kernels, and from step to step of one training.

Heads of two trainings have no common order, so within a layer and place they are matched by optimal
transport (the assignment of largest total similarity); the null matches kernels whose layers were
shuffled. Owns the matching and its p; names are `naming.py`'s.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array
from torch import Tensor

from mta_viz.analysis.kernels import kernels
from mta_viz.analysis.kernels.measures import without_own_tap
from mta_viz.analysis.kernels.mixing import best_match
from mta_viz.analysis.kernels.naming import NONE, KernelShape, name_kernels
from mta_viz.checkpoint.history import KernelHistory
from mta_viz.config import KernelPlace, ModelConfig
from mta_viz.errors import MtaVizError
from mta_viz.run.tracing import Progress, ignore
from mta_viz.tables import Table

SHUFFLES = 999
SEED = 0


@dataclass(frozen=True)
class NamedKernels:
    """The key-query kernels of one place of a model, [layer, head], in the `layers` that have some there."""

    where: KernelPlace
    layers: tuple[int, ...]
    taps: Float[Array, "layer head tap"]
    shapes: tuple[tuple[KernelShape, ...], ...]

    def comes_again(self, other: "NamedKernels") -> Bool[Array, "kernel other"]:
        """Whether a kernel of another model bears the template's name of one here, layer by layer."""
        own, others = ([shape for layer in part.shapes for shape in layer] for part in (self, other))
        return np.array([[bool(a.template and b.bears(a.template)) for b in others] for a in own])


@dataclass(frozen=True)
class Match:
    """A kernel, the kernel of the other model it is matched with, and whether the name is the same.

    `shape`: its template's name, `NONE` of one that is listed without a name. `other_shape`: the same where
    the other bears it among its names, else the other's first. `cosine`: of the two kernels without their
    own taps, its size before the softmax, where a sign may move between the kernel and the queries.
    """

    kernel: kernels.KernelId
    shape: str
    other: kernels.KernelId
    other_shape: str
    cosine: float

    @property
    def same(self) -> bool:
        """Whether both have the name."""
        return self.shape != NONE and self.shape == self.other_shape


@dataclass(frozen=True)
class Recurrence:
    """How many of a model's template names the matched kernels of another one bear too.

    `expected`: the mean over 999 shuffles of the other model's layers, matched anew each time; `p` =
    (1 + shuffles with at least so many) / 1000: small where names come again at the same depth.
    """

    matches: tuple[Match, ...]
    same: int
    expected: float
    p: float

    @property
    def n_named(self) -> int:
        """How many of the matched kernels have a template's name; only these are counted and tested."""
        return sum(match.shape != NONE for match in self.matches)

    def table(self) -> Table:
        """A row a matched kernel."""
        columns = ("layer", "head", "where", "shape", "other_head", "other_shape", "cosine", "same")
        rows = [
            (*astuple(at.kernel), at.shape, at.other.head, at.other_shape, at.cosine, at.same)
            for at in self.matches
        ]
        return Table.of(columns, rows)


def recurrence(
    first: tuple[Mapping[str, Tensor], ModelConfig],
    other: tuple[Mapping[str, Tensor], ModelConfig],
    also: Collection[kernels.KernelId] = (),
) -> Recurrence:
    """The names of `first` in `other`; each a state dict (names of `parameter_shapes`) and its config.

    Kernels of `also` are matched by their taps where they have no name; no count and no p hangs on them.
    Raises MtaVizError unless both have kernels of the same sizes in the same layers.

    >>> itself = model.state_dict(), model.config
    >>> again = mta_viz.recurrence(itself, itself)
    >>> again.same == len(again.matches)
    True
    """
    pairs = [
        (here, there)
        for where in kernels.KEY_QUERY
        if (here := named_kernels(*first, where)) and (there := named_kernels(*other, where))
    ]
    if not pairs or any(
        here.layers != there.layers or here.taps.shape != there.taps.shape for here, there in pairs
    ):
        raise MtaVizError(
            "the two models' kernels cannot be matched: expected key-query kernels of the same sizes, "
            "in the same layers, with as many heads"
        )
    random = np.random.default_rng(SEED)
    matches = [match for here, there in pairs for match in _matches(here, there, also)]
    same = sum(match.same for match in matches)
    chances = [_Shuffles(here, there) for here, there in pairs]
    shuffled = [sum(chance.draw(random) for chance in chances) for _ in range(SHUFFLES)]
    p = (1 + sum(count >= same for count in shuffled)) / (1 + SHUFFLES)
    return Recurrence(tuple(matches), same, float(np.mean(shuffled)), p)


def named_kernels(
    state_dict: Mapping[str, Tensor], config: ModelConfig, where: KernelPlace
) -> NamedKernels | None:
    """All kernels at a place with their names; None where the model has none there."""
    layers, taps, shapes = kernels.layers_having(config, where), [], []
    for layer in kernels.layers_having(config, where):
        stored, offsets = kernels.layer_kernels(state_dict, config, layer).taps(where)
        values = stored.double().numpy()
        taps.append(without_own_tap(np.nan_to_num(values), offsets).reshape(len(values), -1))
        shapes.append(name_kernels(values, offsets))
    return NamedKernels(where, layers, np.array(taps), tuple(shapes)) if layers else None


def _similarity(here: NamedKernels, there: NamedKernels) -> Float[Array, "kernel other"]:
    """Cosines of all pairs, layer by layer; 0 for a kernel of nothing but its own tap."""
    unit = [
        (part.taps / np.linalg.norm(part.taps, axis=-1, keepdims=True).clip(1e-12)).reshape(
            -1, part.taps.shape[-1]
        )
        for part in (here, there)
    ]
    cosine = unit[0] @ unit[1].T
    return np.abs(cosine) if here.where == "pre" else cosine


def _matches(here: NamedKernels, there: NamedKernels, also: Collection[kernels.KernelId]) -> Iterator[Match]:
    similarity, heads = _similarity(here, there), here.taps.shape[1]
    for at, layer in enumerate(here.layers):
        rows = slice(at * heads, (at + 1) * heads)
        assigned = best_match(similarity[rows, rows])
        for head, shape in enumerate(here.shapes[at]):
            kernel, name = kernels.KernelId(layer, head, here.where), shape.template or NONE
            if name == NONE and kernel not in also:
                continue
            other = int(assigned[head])
            matched = there.shapes[at][other]
            yield Match(
                kernel,
                name,
                kernels.KernelId(layer, other, here.where),
                name if name != NONE and matched.bears(name) else matched.shape,
                float(similarity[rows, rows][head, other]),
            )


@dataclass(frozen=True)
class Training:
    """Another training, and how many of the model's names its matched kernels bear.

    `seed`: the one it was trained from, None where nothing says so. `same_seed`: whether that is the model's
    own: then both began with the same weights and data, and agreement is no independent evidence.
    """

    name: str
    seed: int | None
    same_seed: bool
    recurrence: Recurrence


@dataclass(frozen=True)
class Recurring:
    """A model's kernels in several other trainings, each matched and tested by itself."""

    trainings: tuple[Training, ...]

    @property
    def named(self) -> tuple[Match, ...]:
        """The model's kernels with a name, and those that matter, as matched with the first training's."""
        return tuple(sorted(self.trainings[0].recurrence.matches, key=lambda match: match.kernel))

    def table(self) -> Table:
        """A row a training and named kernel; the training's count, chance and p in each of its rows."""
        own = self.trainings[0].recurrence.table().columns
        columns = ("training", "seed", *own, "n_same", "expected", "p")
        rows = [
            (training.name, training.seed, *row, matched.same, matched.expected, matched.p)
            for training in self.trainings
            for matched in (training.recurrence,)
            for row in matched.table().rows
        ]
        return Table.of(columns, rows)


class _Shuffles:
    """How many names come again when the other model's kernels are dealt out to the layers anew."""

    def __init__(self, here: NamedKernels, there: NamedKernels) -> None:
        self.similarity, (self.layers, self.heads) = _similarity(here, there), here.taps.shape[:2]
        self.same = here.comes_again(there)

    def draw(self, random: np.random.Generator) -> int:
        """One shuffle, matched."""
        dealt = random.permutation(self.layers * self.heads).reshape(self.layers, self.heads)
        count = 0
        for at, others in enumerate(dealt):
            rows = np.arange(at * self.heads, (at + 1) * self.heads)
            if self.same[rows].any():  # else no name of the layer can come again
                assigned = others[best_match(self.similarity[np.ix_(rows, others)])]
                count += int(self.same[rows, assigned].sum())
        return count


@dataclass(frozen=True)
class Lasting:
    """A kernel's last name over training: since which step it has it unbroken, in what share of snapshots.

    `bears`: whether it has that name in each snapshot.
    """

    kernel: kernels.KernelId
    shape: str
    since: int
    share: float
    bears: tuple[bool, ...]


def lasting_names(
    history: KernelHistory, config: ModelConfig, progress: Progress = ignore
) -> tuple[Lasting, ...]:
    """Of every key-query kernel whose last snapshot bears a template's name, the longest-lasting first.

    Raise in `progress` to stop.
    """
    rows: list[Lasting] = []
    places = [(layer, where) for layer in range(config.n_layers) for where in kernels.KEY_QUERY]
    for done, (layer, where) in enumerate(places, 1):
        stored = history.kernels.get(f"blocks.{layer}.attn.kernel_{where}")
        if stored is not None:
            rows += _lasting_of(stored, history.steps, config, layer, where)
        progress(done / len(places))
    return tuple(sorted(rows, key=lambda row: row.since))


def _lasting_of(
    stored: Tensor, steps: Sequence[int], config: ModelConfig, layer: int, where: KernelPlace
) -> Iterator[Lasting]:
    """Those of one layer and place; only kernels whose last snapshot has a name are named in the others."""
    offsets = kernels.kernel_offsets(config, *stored.shape[-2:])
    last = name_kernels(stored[-1].double().numpy(), offsets)
    heads = [head for head, shape in enumerate(last) if shape.template]
    names = [name_kernels(taps[heads].double().numpy(), offsets) for taps in stored] if heads else []
    for at, head in enumerate(heads):
        shape = last[head].template or ""
        bears = tuple(snapshot[at].bears(shape) for snapshot in names)
        yield _lasting(kernels.KernelId(layer, head, where), shape, bears, steps)


def lasting_table(rows: Sequence[Lasting]) -> Table:
    """A row a named kernel; `share` of the snapshots with that name, 0..1."""
    columns = ("layer", "head", "where", "shape", "since_step", "share")
    return Table.of(columns, [(*astuple(row.kernel), row.shape, row.since, row.share) for row in rows])


def _lasting(kernel: kernels.KernelId, shape: str, bears: tuple[bool, ...], steps: Sequence[int]) -> Lasting:
    breaks = [at for at, held in enumerate(bears) if not held]
    since = steps[breaks[-1] + 1] if breaks else steps[0]
    return Lasting(kernel, shape, since, sum(bears) / len(bears), bears)

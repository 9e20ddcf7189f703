"""What a checkpoint loses at its task without one of its kernels: the measured table, and its file.

Owns the values, the file's format and whether a file belongs to a checkpoint. Measuring belongs to
`mta_viz.analysis.cause.sweeps`: it needs the tasks.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from mta_viz.analysis.kernels.kernels import KEY_QUERY, MIXING, KernelId, kernels_at
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.locate import sha256
from mta_viz.checkpoint.validate import Measured, from_text
from mta_viz.config import Where
from mta_viz.errors import MtaVizError
from mta_viz.model.interventions import Intervention
from mta_viz.model.plans import OF_KERNEL, OF_MIXING, PLACES, Edit, Plan, PlanData, plan_as_data
from mta_viz.model.transformer import HookedMTA
from mta_viz.tables import Table, finite
from mta_viz.writing import write

FILES: dict[Edit, str] = {
    "identity": "effects.json",
    "own-tap": "effects-own-tap.json",
    "zero": "effects-zero.json",
}
FILE = FILES["identity"]
FORMAT, OLDER = "mta_viz effects 2", "mta_viz effects 1"  # the older has no medians
APART = 0.1  # nats, of two means


@dataclass(frozen=True)
class Estimate:
    """A mean over samples and the ends of its 95 % interval, NaN where it has none."""

    value: Measured
    low: Measured
    high: Measured


@dataclass(frozen=True)
class MedianEstimate:
    """A median over samples and the ends of its interval, which covers it in `level` of cases.

    `level` is 0.95 or more, and less below 6 samples, where the ends are the range.
    """

    value: Measured
    low: Measured
    high: Measured
    level: Measured


@dataclass(frozen=True)
class Effect:
    """What one plan does to the task, on the samples the unchanged model was measured on.

    `accuracy` 0..1; `accuracy_change` = it minus the unchanged model's, on the same samples.
    `log_probability_change`: change of the gold answer's log-probability in nats, summed over the
    answer's tokens and averaged over samples; a mean without bounds, so without an interval.
    `log_probability_change_median`: its median over samples, None in files of the older format. NaN
    where the edited model's output is not finite.
    """

    plan: PlanData
    accuracy: Measured
    accuracy_change: Estimate
    log_probability_change: Estimate
    log_probability_change_median: MedianEstimate | None = None


@dataclass(frozen=True)
class Effects:
    """A checkpoint's effects. `setting` is what one sample is, in words and numbers.

    `sha256` is that of the weights; `samples` were drawn from `seed`. `accuracy` and
    `log_probability` are the unchanged model's. `edit`: what was made of each kernel.
    """

    sha256: str
    task: Literal["needle", "pairs", "file", "blocks"]
    samples: int
    seed: int
    setting: str
    version: str
    accuracy: Measured
    log_probability: Measured
    effects: tuple[Effect, ...]
    edit: Edit = "identity"

    def of(self, kernel: KernelId) -> Effect | None:
        """The effect of taking out one kernel (a target's row of head mixing) as `edit` says."""
        if kernel.where in MIXING and self.edit not in OF_MIXING:
            return None
        return self.of_plan((without(kernel, self.edit),))

    def of_each(self, where: Where | None = None) -> dict[KernelId, Effect]:
        """The effects of single kernels, of those at `where` or of all, the most harmful first.

        Harm: how far the answer's log-probability falls; not finite comes first.
        """
        effects = [(kernel_of(effect), effect) for effect in self.effects]
        kept = [(kernel, effect) for kernel, effect in effects if kernel and where in (None, kernel.where)]
        changes = {kernel: effect.log_probability_change.value for kernel, effect in kept}
        harm = {kernel: change if math.isfinite(change) else -math.inf for kernel, change in changes.items()}
        return dict(sorted(kept, key=lambda pair: harm[pair[0]]))

    def of_plan(self, plan: Plan) -> Effect | None:
        """The effect of a plan, None where it was not measured."""
        return next((effect for effect in self.effects if effect.plan == plan), None)

    def table(self, other: "Effects | None" = None) -> Table:
        """A line a kernel (a target's row of head mixing): accuracy, both changes with their intervals.

        `other`: the effects at another edit, in columns after these, with whether the two differ; empty
        where the other has no effect of the kernel.
        """
        rows = []
        for kernel, effect in ((kernel, effect) for effect in self.effects if (kernel := kernel_of(effect))):
            row: tuple[object, ...] = (*astuple(kernel), *_cells(effect))
            if other is not None:
                beside = other.of(kernel)
                row += (None,) * 12 if beside is None else (*_cells(beside), edits_differ(effect, beside))
            rows.append(row)
        median = "log_probability_change_median"
        measured = ("accuracy_change", "log_probability_change", median)
        ends = [f"{name}{end}" for name in measured for end in ("", "_low", "_high")]
        names = ["accuracy", *ends, f"{median}_level"]
        columns = ["layer", "head", "where", *names]
        if other is not None:
            word = other.edit.replace("-", "_")
            columns += [*(f"{word}_{name}" for name in names), f"differs_from_{word}"]
        return Table.of(columns, rows)


def _cells(effect: Effect) -> tuple[float | None, ...]:
    """Accuracy, both changes and the median with their ends; None for a median that is not measured."""
    median = effect.log_probability_change_median
    means = (*astuple(effect.accuracy_change), *astuple(effect.log_probability_change))
    return (effect.accuracy, *means, *((None,) * 4 if median is None else astuple(median)))


def edits_differ(first: Effect, second: Effect) -> bool:
    """Whether the same kernel, taken out in two ways, costs the answer differently much.

    The two medians' intervals have no point in common. Where a file has no medians, which is no test: the
    means are more than a factor of two, and more than 0.1 nats, apart.
    """
    medians = first.log_probability_change_median, second.log_probability_change_median
    if medians[0] is not None and medians[1] is not None:
        return medians[0].high < medians[1].low or medians[1].high < medians[0].low
    means = (first.log_probability_change.value, second.log_probability_change.value)
    return abs(means[0] - means[1]) > max(APART, max(map(abs, means)) / 2)


@dataclass(frozen=True)
class Absent:
    """There is no table for these weights: `reason`, a sentence, says why."""

    reason: str


def without(kernel: KernelId, edit: Edit = "identity") -> Intervention:
    """The intervention that takes out one kernel, or of head mixing a target's row.

    Raises MtaVizError for head mixing at zero: the head would attend to all keys alike.
    """
    match kernel.where:
        case "pre" | "post" as where:
            return OF_KERNEL[edit](kernel.layer, kernel.head, where)
        case where if edit not in OF_MIXING:
            raise MtaVizError(f"{kernel.name()} is head mixing, which has no edit {edit!r}; take own-tap")
        case where:
            return OF_MIXING[edit](kernel.layer, where, kernel.head)


def kernel_ids(model: HookedMTA, edit: Edit) -> tuple[KernelId, ...]:
    """Every kernel that `edit` can take out, head mixing by its target's rows, in the order of layers."""
    return kernels_at(model.config, KEY_QUERY if edit == "zero" else [*chain(*PLACES)])


def kernel_of(effect: Effect) -> KernelId | None:
    """The kernel an effect is about; None for plans of several, and for whole matrices."""
    if len(effect.plan) != 1:
        return None
    (part,) = effect.plan
    if type(part) in (*OF_KERNEL.values(), *OF_MIXING.values()) and vars(part)["head"] is not None:
        return KernelId(part.layer, vars(part)["head"], vars(part)["where"])
    return None


@runtime_checkable
class _OfWeights(Protocol):
    @property
    def sha256(self) -> str: ...


M = TypeVar("M", bound=_OfWeights)


def find_measured(path: Path | None, name: str, read: Callable[[Path], M], unmeasured: str) -> M | Absent:
    """The measurement in file `name` beside the weights at `path`, if it is of these weights.

    `path` is None for a model that is not from a file. `Absent` says what is wrong, where there is no file
    `unmeasured`.
    """
    if path is None:
        return Absent("This model is not from a file, so no measurement belongs to it.")
    file = beside(path) / name
    if not door.is_there(file):
        return Absent(unmeasured)
    try:
        measured = read(file)
        if measured.sha256 != sha256(path):
            return Absent(f"{name} was measured on other weights: they have changed since.")
    except MtaVizError as error:
        return Absent(str(error))
    return measured


def find_effects(path: Path | None, edit: Edit = "identity") -> Effects | Absent:
    """The effects of the checkpoint at `path`; `Absent` says what is wrong with what is there."""
    unmeasured = "The effect of each kernel on a task has not been measured for this checkpoint."
    effects = find_measured(path, FILES[edit], read_effects, unmeasured)
    if not isinstance(effects, Absent) and effects.edit != edit:
        return Absent(f"{FILES[edit]} holds what kernels cost at {effects.edit}, not at {edit}.")
    return effects


def kernels_that_matter(path: Path | None) -> frozenset[KernelId]:
    """The key-query kernels at `path` without which its task's accuracy falls, by the 95 % interval.

    One at a time, not corrected for their number; none where nothing was measured.
    """
    effects = find_effects(path)
    each = {} if isinstance(effects, Absent) else effects.of_each()
    return frozenset(
        kernel for kernel, at in each.items() if kernel.where in KEY_QUERY and at.accuracy_change.high < 0
    )


def read_effects(file: Path) -> Effects:
    """The table in a file. Raises MtaVizError listing what is wrong with it."""
    content, remedy = door.read_bytes(file, door.RESULTS), "Move it away and measure again."
    subject = f"{file} as a table of effects"
    read = from_text(Effects, content, subject, file_format=FORMAT, older=(OLDER,), remedy=remedy)
    # Ends of a mean without bounds, as files of the older format hold, cover too seldom to be shown.
    no_ends = {"low": math.nan, "high": math.nan}
    means = [replace(effect.log_probability_change, **no_ends) for effect in read.effects]
    pairs = zip(read.effects, means, strict=True)
    return replace(read, effects=tuple(replace(at, log_probability_change=mean) for at, mean in pairs))


def write_effects(file: Path, effects: Effects) -> None:
    """Replace `file`; a reader never sees half of it. Raises MtaVizError when the disk refuses."""
    # One effect a line; a number that is not finite is null.
    rows = [asdict(effect) | {"plan": plan_as_data(effect.plan)} for effect in effects.effects]
    lines = ",".join(f"\n  {json.dumps(_rounded(row))}" for row in rows)
    data = _rounded({"format": FORMAT, **asdict(replace(effects, effects=()))})
    del data["effects"]
    head = json.dumps(data, indent=1).removesuffix("\n}")
    write(file, f'{head},\n "effects": [{lines}\n ]\n}}\n')


def _rounded(row: dict[str, Any]) -> Any:
    """Numbers to six decimals, without -0.0."""
    text = json.dumps(finite(row), allow_nan=False)
    return json.loads(text, parse_float=lambda digits: round(float(digits), 6) + 0.0)

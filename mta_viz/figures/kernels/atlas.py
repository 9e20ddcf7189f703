"""What the atlas says of key-query kernels: their shapes, what each costs, what their probe shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mta_viz.analysis.attention.spans import needle_spans
from mta_viz.analysis.cause.answers import AnswerMeter, answer_after
from mta_viz.analysis.cause.choosing import answer_span, kernel_gains
from mta_viz.analysis.cause.effects import Absent, Effects
from mta_viz.analysis.cause.story import ASKED
from mta_viz.analysis.kernels.kernels import KernelId, LayerKernelSet
from mta_viz.analysis.kernels.naming import ALL_ZERO, IDENTITY, NONE, NOT_FINITE, family, names_of
from mta_viz.analysis.kernels.probes import SPIKE, probe_of, read_off
from mta_viz.analysis.kernels.query import NO_SORT
from mta_viz.analysis.kernels.table import Row, kernel_of
from mta_viz.analysis.labs.blocks import block_spans
from mta_viz.analysis.labs.finder import Parts, find
from mta_viz.model.plans import Edit
from mta_viz.run.trace import Trace

GROUPS: dict[str, tuple[str, ...]] = {  # what kernels do, and the first names that say so
    "diagonal": ("diagonal", "negative diagonal"),
    "induction": ("induction", "negative induction"),
    "priming": ("priming", "inhibition of return"),
    "edge": ("edge",),
    "smoothing": ("smoothing", "sharpening"),
    "anti-diagonal": ("anti-diagonal", "negative anti-diagonal"),
    "single tap": ("single tap", "KV shift", "key shift"),
    "identity": (IDENTITY,),
    "unnamed": (NONE,),
    "broken": (NOT_FINITE, ALL_ZERO),
}
MEANING = {
    "diagonal": "sequence match",
    "induction": "the key after a match",
    "anti-diagonal": "reversed sequence",
    "priming": "earlier queries attended the same key",
    "inhibition of return": "earlier queries at the same key, against the own tap",
    "smoothing": "neighbours averaged",
    "sharpening": "both sides against the own tap",
    "edge-first": "first of a run",
    "edge-last": "last of a run",
    "both edges": "first and last of a run",
    "edge": "where a run begins or ends",
    "KV shift": "reads the previous key",
    "identity": "passes scores as they are",
    "unnamed": "none of these shapes",
}
DISTANCE, SMALLEST = "distance_from_identity", 0.005  # of a value that is not rounded to 0


WITHOUT: dict[Edit, str] = {"own-tap": "without each", "identity": "with each at the identity"}


@dataclass(frozen=True)
class Order:
    """What kernels are sorted by, in words too, and the value of each that has one, the first first."""

    by: Literal["effect", "gain", "size", "column"]
    words: str
    values: dict[KernelId, float]

    def sorted(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """The rows group by group, those before the softmax first, each in this order."""
        rank, groups = {kernel: at for at, kernel in enumerate(self.values)}, list(GROUPS)
        ranked = sorted(rows, key=lambda row: rank.get(kernel_of(row), len(rank)))
        return tuple(sorted(ranked, key=lambda row: (groups.index(group_of(row)), row["where"] == "post")))

    def text(self, kernel: KernelId) -> str:
        """`−2.31`, a share as `+12%`; empty for what is rounded to nothing, and for sizes."""
        value = self.values.get(kernel, 0.0)
        if abs(value) < SMALLEST or self.by == "size":
            return ""
        return (f"{value:+.0%}" if self.by == "gain" else f"{value:+.2f}").replace("-", "−")


def order_of(rows: Sequence[Row], sort: str, effects: Effects | Absent, run: Trace | None) -> Order:
    """By a column of the kernel table; without one by measured effects, else by a run, else by size."""
    if sort != NO_SORT:
        return Order("column", sort.replace("_", " "), _column(rows, sort))
    if isinstance(effects, Effects):
        words = (
            f"what the answer loses {WITHOUT[effects.edit]} (number: its log-probability's change in nats, "
            f"mean over {effects.samples:,} samples of the {effects.task} task)"
        )
        lost = {kernel: effect.log_probability_change.value for kernel, effect in effects.of_each().items()}
        return Order("effect", words, lost)
    if run is not None and len(run.tokens) > 1:
        return _on_run(run)
    return Order("size", "the size of the change", _falling(_column(rows, DISTANCE)))


def _on_run(run: Trace) -> Order:
    """By the gain at what the prompt asks for, else at what adds most to its answer directly."""
    named, last = needle_spans(run.tokens) or block_spans(run.tokens), len(run.tokens) - 1
    asked = next((span for span in named if span.name.endswith(ASKED) and span.stop <= last), None)
    span = asked or answer_span(AnswerMeter(run, answer_after(run, None)))
    why = "" if asked else " (of largest direct effect on the answer)"
    words = f"what each adds to the last token's share of {span.words}{why} on this prompt"
    return Order("gain", words, _falling(kernel_gains(find(run, Parts(span, (span,), last)))))


def _column(rows: Sequence[Row], name: str) -> dict[KernelId, float]:
    return {kernel_of(row): float(row[name]) for row in rows if row[name] is not None}


def _falling(values: dict[KernelId, float]) -> dict[KernelId, float]:
    return dict(sorted(values.items(), key=lambda pair: -pair[1]))


def group_of(row: Row) -> str:
    """Where a kernel stands, by its first name; a row of head mixing by its shape. Faint: the identity."""
    shape = IDENTITY if row["faint"] else family(row["shape"])
    return next((group for group, shapes in GROUPS.items() if shape in shapes), shape)


def also(row: Row) -> str:
    """Its other names, `+ priming`; of a faint kernel all."""
    return " ".join(f"+ {name}" for name in names_of(row)[0 if row["faint"] else 1 :])


def probed(row: Row, layer: LayerKernelSet) -> str:
    """`sequence probe: +1 before, +4.29 after`; empty for a broken kernel."""
    if group_of(row) == "broken":
        return ""
    taps, offsets = layer.taps(row["where"])
    probe = probe_of(row["shape"]) or SPIKE
    sides = read_off(taps[row["head"]][None].double().numpy(), offsets, probe)
    before, after = (" · ".join(f"{value + 0.0:+.3g}" for value in side) for side in sides)
    return f"{probe} probe: {before} before, {after} after".replace("-", "−")

"""What each kernel is worth to a task: alone removed, alone kept, and its share; and who reads it."""

from dataclasses import dataclass
from typing import Any, Literal

from mta_viz.analysis.cause import shapley_file
from mta_viz.analysis.cause.effects import Absent, kernel_ids
from mta_viz.analysis.cause.kernel_effect import SMALL, KernelPaths, edge_count, kernel_paths
from mta_viz.analysis.cause.shapley import FEWEST, LARGEST_ERROR, KernelValue, passes, shapley_values
from mta_viz.analysis.kernels.kernels import KernelId
from mta_viz.analysis.labs.blocks import trained_task
from mta_viz.analysis.labs.needle import parts
from mta_viz.analysis.labs.task_samples import LENGTHS, task_batches
from mta_viz.config import Where
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Measured, Source, named
from mta_viz.figures.cause.attribution import meter_of
from mta_viz.model.plans import Edit
from mta_viz.plots import worth as plots
from mta_viz.plots.theme import Figure, score_text
from mta_viz.run.tracing import estimate_seconds

SHOWN = 12
EDITS: dict[Edit, str] = {
    "own-tap": "keeps its own tap only: its shape goes, its gain and sign stay",
    "identity": "is set to the identity: its shape goes, and its gain and sign",
    "zero": "is set to zero",
}
TASKS: dict[shapley_file.Task, str] = {
    **{"needle": "the needle task", "pairs": "the pairs task", "file": "the task of a file"},
    **{"blocks": "block finding", "prompt": "this prompt alone"},
}


@dataclass(frozen=True)
class Cost:
    """Forward passes of a batch, and about how many seconds they take: with the fewest orders, with all."""

    passes: tuple[int, int]
    seconds: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class OfShapley(Measured[shapley_file.TaskShapley]):
    """A figure of what every kernel is worth to a task.

    `task` None: what the file shapley.json beside the weights holds. Else it is measured: at the needle
    task, the pairs task, block finding, or on the prompt and its `answer`, with a kernel that is taken out as
    `edit` says, on `samples` samples (None: 16, 64, or the prompt), over at most `pairs` pairs of orders.
    """

    task: Literal["needle", "pairs", "blocks", "prompt"] | None = None
    edit: Edit = "own-tap"
    samples: int | None = None
    pairs: int = 400
    seed: int = 0
    answer: str | None = None
    result_of = "shapley"
    hangs_on = ("task", "edit", "samples", "pairs", "seed", "answer")

    @property
    def of_weights(self) -> bool:
        return self.task in ("needle", "blocks")

    def result(self, source: Source) -> shapley_file.TaskShapley:
        """Read, or measured once. Raises MtaVizError where no file is, and as `measure`."""
        return self.read(source) if self.task is None else super().result(source)

    def read(self, source: Source) -> shapley_file.TaskShapley:
        """The file's. Raises MtaVizError that says what is wrong with it."""
        there = shapley_file.find_shapley(source.model.path)
        if isinstance(there, Absent):
            raise MtaVizError(there.reason)
        return there

    def measure(self, source: Source) -> shapley_file.TaskShapley:
        """Raises MtaVizError for a model without kernels, or that cannot do the task."""
        setting, batches = self._batches(source)
        measured = shapley_values(
            source.model, batches, self.edit, seed=self.seed, most=self.pairs, progress=source.progress
        )
        return shapley_file.TaskShapley("", self.task or "prompt", setting, self.seed, measured)

    def _batches(self, source: Source) -> tuple[str, list[Any]]:
        model, task = source.model, self.task
        if task is None or task == "prompt":
            return shapley_file.prompt_batch(meter_of(source, self.answer))
        return task_batches(model, task, None, self.seed, usual=self.n_samples, length=self._length(source))

    @property
    def n_samples(self) -> int:
        """How many it is measured on."""
        return self.samples or shapley_file.SAMPLES[self.task or "prompt"]

    def cost(self, source: Source) -> Cost:
        """What measuring takes. Raises MtaVizError for a model without kernels."""
        model, n = source.model, len(kernel_ids(source.model, self.edit))
        if not n:
            raise MtaVizError("this model has no kernels: there is no effect to share out")
        length = self._length(source)
        n_batches = 1 if self.task == "prompt" else len(parts(model, self.n_samples, length))
        fewest = min(self.pairs, FEWEST)
        counts = passes(n, n_batches, fewest), passes(n, n_batches, self.pairs)
        samples = 1 if self.task == "prompt" else self.n_samples
        whole = samples / n_batches * estimate_seconds(model, length)
        share = (model.config.n_layers + 1) / (2 * model.config.n_layers)  # orders run what lies above only
        once = passes(n, n_batches, 0)
        seconds = [whole * (once + share * (count - once)) for count in counts]
        return Cost(counts, (seconds[0], seconds[1]))

    def _length(self, source: Source) -> int:
        if self.task == "blocks":
            return trained_task(source.model.path).n_tokens
        length = LENGTHS.get(self.task or "prompt")
        return len(source.trace.tokens) if length is None else min(length, source.model.config.n_ctx)

    def words_of(self, result: shapley_file.TaskShapley) -> str:
        """The task, n, what is taken out, the whole effect."""
        shared = result.shared
        return (
            f"{TASKS[result.task].capitalize()}: {result.setting}; {samples_words(result)}, the same "
            f"throughout (seed {result.seed}). A kernel that is taken out {EDITS[shared.edit]}. "
            "Log-probability of the right answer with all kernels "
            f"{score_text(shared.complete)} nats, with none {score_text(shared.none)}: the whole effect is "
            f"{score_text(shared.effect)} nats."
        )


def samples_words(result: shapley_file.TaskShapley) -> str:
    """`16 samples`."""
    n = result.shared.n_samples
    return "1 sample" if n == 1 else f"{n:,} samples"


def settled(result: shapley_file.TaskShapley) -> bool:
    """Whether the values are as exact as asked for."""
    return result.shared.largest_error <= LARGEST_ERROR


def error_words(result: shapley_file.TaskShapley) -> str:
    """How exact the Shapley values are, and whether that is as exact as asked for."""
    share, n = result.shared.largest_error, result.shared.n_orders
    words = f"Their largest standard error, over {n:,} orders, is {share:.1%} of the whole effect"
    if settled(result):
        return f"{words} (at most {LARGEST_ERROR:.0%} is asked for)."
    return f"{words}: MORE than the {LARGEST_ERROR:.0%} asked for, so their order is not settled."


@named("shapley", kw_only=True)
class ShapleyBars(OfShapley):
    """The kernels of largest Shapley value: what is lost without each, gained with it alone, its share."""

    shown: int = SHOWN

    def largest(self, result: shapley_file.TaskShapley) -> tuple[KernelValue, ...]:
        """Those that are drawn, the largest value first."""
        by_size = sorted(result.shared.values, key=lambda value: -abs(value.shapley))[: max(self.shown, 1)]
        return tuple(sorted(by_size, key=lambda value: -value.shapley))

    def draw(self, source: Source, result: shapley_file.TaskShapley) -> Figure:
        return plots.worth_bars(self.largest(result), numbering=source.numbering)

    def line(self, source: Source, result: shapley_file.TaskShapley) -> str:
        """n, the whole effect, and how exact the diamonds are."""
        shared, n = result.shared, samples_words(result)
        enough = "of it" if settled(result) else f"of it, MORE than {LARGEST_ERROR:.0%}: NOT settled"
        effect = f"whole effect {score_text(shared.effect)} nats"
        return f"{n}, {effect}; largest error {shared.largest_error:.1%} {enough}."

    def caption(self, source: Source, result: shapley_file.TaskShapley) -> str:
        """What each mark is, n, intervals, and what is left out."""
        shared, drawn = result.shared, len(self.largest(result))
        medians = all(value.necessary_median is not None for value in shared.values)
        means = " Both are means over samples, which have no interval"
        means += "; hover and numbers have the medians with theirs (95 %)." if medians else "."
        return (
            f"{self.words_of(result)} Blue: necessary, what is lost when that kernel alone is taken out. "
            "Vermilion, hatched: sufficient, what is gained when it alone is kept and all others are "
            f"out.{means} Diamond: Shapley value, the mean over orders of what the kernel adds to those "
            "before it, ± 2 standard errors; over all kernels they sum to the whole effect. "
            f"{error_words(result)} Drawn: the {drawn} of {len(shared.values)} kernels and rows of head "
            "mixing with the largest values."
        )


@named("necessity-sufficiency", kw_only=True)
class NecessitySufficiency(OfShapley):
    """Every kernel by what is gained with it alone and by what is lost without it."""

    def draw(self, source: Source, result: shapley_file.TaskShapley) -> Figure:
        return plots.worth_scatter(result.shared.values, numbering=source.numbering)

    def line(self, source: Source, result: shapley_file.TaskShapley) -> str:
        return f"All {len(result.shared.values)} kernels and rows; dotted: both are equal."

    def caption(self, source: Source, result: shapley_file.TaskShapley) -> str:
        return (
            f"{self.words_of(result)} All {len(result.shared.values)} kernels and rows of head mixing. On "
            "the dotted line a kernel does alone what is lost without it. Under it others stand in for the "
            "kernel when it is out; above it it needs others. Near 0: neither alone. The axes differ in "
            "scale."
        )


@named("kernel-paths", kw_only=True)
class KernelPathsGraph(Measured[KernelPaths]):
    """Which later heads, MLPs and logits read what a kernel writes; what the answer loses along each edge.

    `into`: queries, keys, values, MLPs and logits; or raw scores of later heads, queries and keys at once.
    """

    layer: int
    head: int
    where: Where = "pre"
    edit: Edit = "own-tap"
    answer: str | None = None
    into: Literal["inputs", "scores"] = "inputs"
    hangs_on = ("layer", "head", "where", "edit", "answer")

    @property
    def kernel(self) -> KernelId:
        """Whose paths they are."""
        return KernelId(self.layer, self.head, self.where)

    def measure(self, source: Source) -> KernelPaths:
        """Raises ConfigError for a kernel the model does not have."""
        meter = meter_of(source, self.answer)
        return kernel_paths(meter, self.kernel, self.edit, progress=source.progress)

    def cost(self, source: Source) -> Cost:
        """What measuring takes."""
        n, config = edge_count(source.model.config, self.layer), source.model.config
        share = (config.n_layers - self.layer) / config.n_layers
        seconds = n * share * estimate_seconds(source.model, len(source.trace.tokens))
        return Cost((n, n), (seconds, seconds))

    def draw(self, source: Source, result: KernelPaths) -> Figure:
        config = source.model.config
        layout = (config.n_layers, config.n_heads, config.n_heads // config.n_kv_heads)
        edges = result.strongest(self.into)
        return plots.paths_graph(result, edges, layout=layout, numbering=source.numbering)

    def line(self, source: Source, result: KernelPaths) -> str:
        """Whose change it is, how large, and how much of it what is drawn explains."""
        words = f"Answer {result.answer.words}: {score_text(result.whole)} nats without the kernel"
        if abs(result.whole) < SMALL:
            return f"{words}, too little to share out."
        drawn = result.n_together
        return f"{words}; the {drawn} strongest inputs together {result.share:.0%} of it."

    def caption(self, source: Source, result: KernelPaths) -> str:
        """What an edge is, n, the whole effect and the share."""
        name = self.kernel.name(source.numbering)
        return (
            f"{name} {EDITS[self.edit]}, which changes the log-probability of the answer "
            f"{result.answer.words} from {score_text(result.before)} by {score_text(result.whole)} nats: "
            "the whole effect. A line: that change when the reader at its end alone gets what its head "
            "writes without the kernel, all else as in the run, what lies above running on (path patching; "
            "exact, this prompt only). Brown: the answer loses; green, dashed: it gains. "
            f"{self._share_words(result)}"
        )

    def _share_words(self, result: KernelPaths) -> str:
        drawn, n = len(result.strongest(self.into)), len(result.edges)
        if self.into == "scores":
            of = sum(edge.part == "scores" for edge in result.edges)
            return (
                f"Drawn: the {drawn} strongest of {of} edges into raw scores (S: queries and keys of a head "
                "at once, all that its kernel before the softmax reads). They hold the edges into queries "
                "and keys."
            )
        readers = "queries (Q), keys (K), values (V), MLPs and logits"
        words = f"Drawn: the {drawn} strongest of {n} edges, into {readers}"
        if abs(result.whole) < SMALL:
            return f"{words}. The whole effect is under {SMALL} nats: shares of it mean nothing."
        return (
            f"{words}; opened together they give {score_text(result.together)} nats, {result.share:.0%} of "
            "the whole effect. Single edges need not sum to it."
        )

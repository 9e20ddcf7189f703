"""Trainings: which named kernels come again, since when each has its name; how a finetuning went."""

from dataclasses import dataclass

from mta_viz.analysis.cause.effects import kernels_that_matter
from mta_viz.analysis.kernels.finetuning import PROGRESS_FILE, FinetuningRun, HeldOut, read_finetuning
from mta_viz.analysis.kernels.recurrence import (
    SHUFFLES,
    Lasting,
    Recurring,
    Training,
    lasting_names,
    lasting_table,
    recurrence,
)
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.checkpoint.relatives import ENDING, Relative, own_seed, relative_kernels, relatives
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Measured, Source, named
from mta_viz.figures.kernels.gallery import KernelFigure
from mta_viz.figures.kernels.layer import training_history
from mta_viz.plots.kernels import training as plots
from mta_viz.plots.theme import Figure
from mta_viz.tables import Table

MOST = 6  # columns there is room for
NEEDED = (
    "Which named kernels come again needs a second training of this shape: layers, heads and kernels of the "
    "same sizes in the same layers. None was found. Train it again from another seed and put its folder "
    f"beside this one, or put a file NAME{ENDING} of its kernels into a folder `cards` beside it."
)


def other_trainings(source: Source) -> tuple[Relative, ...]:
    """Those there are; none for a model that is not from a file."""
    folder = source.model.path
    return () if folder is None else relatives(folder, source.model.config)


@named("recurrence", kw_only=True)
class KernelRecurrence(Measured[Recurring]):
    """The model's kernels with a name, and those that matter, in `others`, by the trainings' names.

    None of them: the first six there are.
    """

    others: tuple[str, ...] = ()
    of_weights, hangs_on = True, ("others",)

    def measure(self, source: Source) -> Recurring:
        """Raises MtaVizError where there is no other training, or none of a name."""
        model, folder = source.model, source.model.path
        there = {training.name: training for training in other_trainings(source)}
        if not there or folder is None:
            raise MtaVizError(NEEDED)
        if unknown := [name for name in self.others if name not in there]:
            raise MtaVizError(
                f"no training of this shape is named {', '.join(unknown)}; there are {', '.join(there)}"
            )
        chosen = [there[name] for name in self.others or list(there)[:MOST]]
        also = kernels_that_matter(None if model.plan else folder)
        own, seed, trainings = (model.state_dict(), model.config), own_seed(folder), list[Training]()
        for relative in chosen:
            other = relative_kernels(relative, model.config)
            same_seed = seed is not None and relative.seed == seed
            matched = recurrence(own, (other, model.config), also)
            trainings.append(Training(relative.name, relative.seed, same_seed, matched))
            source.progress(len(trainings) / len(chosen))
        return Recurring(tuple(trainings))

    def draw(self, source: Source, result: Recurring) -> Figure:
        return plots.recurring_grid(result, numbering=source.numbering)

    def caption(self, source: Source, result: Recurring) -> str:
        """What is matched, n, the null, and what agreement is no evidence."""
        n = result.trainings[0].recurrence.n_named
        more = f"{len(result.named) - n} more matter without such a name: the accuracy measured beside the "
        more += "weights falls without each by itself (95 % interval below 0), and no count hangs on them. "
        words = (
            f"{n} key-query kernels of {source.name} have a template's name as their first. "
            f"{more if len(result.named) > n else ''}Each is "
            "matched with one kernel of the other training, within its layer and place: the assignment of "
            "the heads with the largest total cosine (optimal transport between heads of equal weight), own "
            "taps left out, signs left out before the softmax. Written: the name and cosine of the kernel "
            "there; blue and bold: the "
            f"same name. Chance: the mean over {SHUFFLES} matchings with the other training's kernels dealt "
            "out to the layers anew; p: the share of these with at least as many, each training tested by "
            "itself."
        )
        return words + _independence(result)


def _independence(result: Recurring) -> str:
    """Which trainings began as the model did."""
    alike = [training.name for training in result.trainings if training.same_seed]
    if not alike:
        return ""
    return (
        f" From the model's own seed, so with the same first weights and data, and no independent evidence: "
        f"{', '.join(alike)}."
    )


@dataclass(frozen=True)
class OverSteps:
    """The named kernels over a training's snapshots."""

    steps: tuple[int, ...]
    rows: tuple[Lasting, ...]

    def table(self) -> Table:
        """A row a named kernel."""
        return lasting_table(self.rows)


@named("lasting-names", kw_only=True)
class LastingNames(Measured[OverSteps]):
    """Since which step each named kernel has had the name it has at the end of training."""

    of_weights = True

    def measure(self, source: Source) -> OverSteps:
        """Raises NoHistory where nothing is known of earlier steps."""
        history = training_history(source)
        rows = lasting_names(history, source.model.config, source.progress)
        return OverSteps(history.steps, rows)

    def draw(self, source: Source, result: OverSteps) -> Figure:
        return plots.lasting_rows(result.rows, result.steps, numbering=source.numbering)

    def caption(self, source: Source, result: OverSteps) -> str:
        return (
            f"The {len(result.rows)} key-query kernels with a template's name after step "
            f"{result.steps[-1]:,}, over {len(result.steps)} snapshots of this training. Filled: the kernel "
            "had that name then. Snapshots of one training follow from each other, so that a name lasts is "
            "no test of it, and there is no p."
        )


NO_RUN = (
    f"This model came without {PROGRESS_FILE}, so it is of no finetuning. The Train page and "
    "`python -m mta_viz finetune` write one."
)


@named("finetuning")
class Finetuning(KernelFigure[FinetuningRun]):
    """Loss and right answers of the run that trained a model, over its steps."""

    def result(self, source: Source) -> FinetuningRun:
        """As the folder of the model says. Raises MtaVizError where it is of no finetuning."""
        origin = source.model.source
        if origin is None or not door.is_there(beside(origin.path) / PROGRESS_FILE):
            raise MtaVizError(NO_RUN)
        return read_finetuning(beside(origin.path))

    def draw(self, source: Source, result: FinetuningRun) -> Figure:
        return plots.finetuning_curves(result)

    def caption(self, source: Source, result: FinetuningRun) -> str:
        """How far it is, what the marks are, and the numbers before and after."""
        done = f"{result.step:,} steps"
        words = f"After {result.step:,} of {result.steps:,} steps" if result.state == "running" else done
        words += ". Loss: what training makes small, of the task and what keeps the model as it was, in nats."
        if result.before is not None:
            words += (
                " Right answers: greedy ones to held-out samples, whose words no step trains on, with 95 % "
                "intervals."
            )
        if result.looks:
            words += f" Grey: {result.looks[0].n} of them, on the way."
        return " ".join([words, *answer_words(result), *perplexity_words(result)])


def answer_words(run: FinetuningRun) -> list[str]:
    """All held-out samples before, after, and the paired change; nothing where a task has none."""
    if run.before is None:
        return []
    words = [f"Base (orange): {_share(run.before)}."]
    if run.after is not None and run.change is not None:
        low, high = (100 * end for end in (run.change.low, run.change.high))
        words.append(
            f"Result (blue): {_share(run.after)}. Change on the same samples: {100 * run.change.value:+.1f} "
            f"points, 95 % interval, paired, {low:+.1f} to {high:+.1f}."
        )
    return words


def _share(held_out: HeldOut) -> str:
    low, high = held_out.interval
    return f"{held_out.right} of {held_out.n} right, {held_out.share:.1%}, interval {low:.1%} to {high:.1%}"


def perplexity_words(run: FinetuningRun) -> list[str]:
    """Of each text, before and after."""
    words = []
    for name, (before, after) in run.perplexity.items():
        change = "" if after is None else f" to {after:.4g} ({after / before - 1:+.1%})"
        words.append(f"Perplexity of {name}: {before:.4g}{change}.")
    return words

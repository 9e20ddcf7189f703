"""How the finetuning went that a model's folder is of, while it runs too."""

import plotly.graph_objects as go

from mta_viz.analysis.kernels.finetuning import PROGRESS_FILE, FinetuningRun, HeldOut, read_finetuning
from mta_viz.checkpoint import door
from mta_viz.checkpoint.files import beside
from mta_viz.errors import MtaVizError
from mta_viz.figures.base import Source, named
from mta_viz.figures.kernels.gallery import KernelFigure
from mta_viz.plots.kernels.finetuning import finetuning_curves

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

    def draw(self, source: Source, result: FinetuningRun) -> go.Figure:
        """Two panels."""
        return finetuning_curves(result)

    def caption(self, source: Source, result: FinetuningRun) -> str:
        """How far it is, what the marks are, and the numbers before and after."""
        words = (
            f"After {result.step:,} of {result.steps:,} steps. "
            if result.state == "running"
            else f"{result.step:,} steps. "
        )
        words += (
            "Loss: that of the task's answers and what keeps the model as it was, together, in nats. Right "
            "answers: greedy ones to held-out samples, whose words no step trains on, with 95 % intervals."
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

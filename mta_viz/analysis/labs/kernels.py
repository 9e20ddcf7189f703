"""All kernels of a model in one call: names, and what each does where tokens match, on a prompt or a task."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mta_viz.analysis.attention.matches import with_matches
from mta_viz.analysis.attention.measuring_matches import measure_matches
from mta_viz.analysis.kernels.table import kernel_frame, kernel_table
from mta_viz.analysis.labs.task_samples import task_prompts
from mta_viz.errors import PromptError
from mta_viz.model.transformer import HookedMTA
from mta_viz.run.trace import Trace
from mta_viz.run.tracing import Prompt, capture

if TYPE_CHECKING:
    import pandas

SAMPLES = 20  # of a task


def kernels(
    model: HookedMTA,
    prompt: Prompt | Trace | None = None,
    *,
    task: str | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> "pandas.DataFrame":
    """One row per kernel with its shape, scores and p: see `kernel_table` for the columns.

    Scores are shares from -1 to 1, p-values from 0 to 1. A model without kernels gives no rows. With a
    prompt (or its trace), or `samples` prompts (20) of a task the model can read (`needle`, `pairs`, `blocks`
    or a file of prompts, *.jsonl), also what each kernel does where tokens match: `match_gap`,
    `effect_at_match` and the rest of `AtMatches`. Raises PromptError for both at once, and as `task_prompts`
    does.

    >>> len(mta_viz.kernels(model))
    8
    """
    rows = kernel_table(model.state_dict(), model.config)
    if task is not None and prompt is not None:
        raise PromptError("give a prompt or a task, not both")
    traces: Iterable[Trace]
    if task is not None:
        _, prompts = task_prompts(model, task, samples, seed, usual=SAMPLES)
        traces = (capture(model, tokens) for tokens in prompts)
    elif prompt is not None:
        traces = [prompt if isinstance(prompt, Trace) else capture(model, prompt)]
    else:
        return kernel_frame(rows)
    return kernel_frame(with_matches(rows, measure_matches(rows, traces)))

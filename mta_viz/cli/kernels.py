"""`kernels PATH [--prompt TEXT | --task TASK]`: one row per kernel: shape, scores, p.

On a prompt, or on prompts of a task, also what each kernel does where tokens match.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mta_viz
from mta_viz.cli import flags, values
from mta_viz.cli.output import ProgressLine, note
from mta_viz.errors import MtaVizError

if TYPE_CHECKING:
    from mta_viz.analysis.kernels.table import Row
    from mta_viz.model.transformer import HookedMTA
    from mta_viz.tokenizers.base import Tokens

HELP = "every kernel: shapes, scores, p against stated nulls; on a prompt also what it does at matches"
RUNS = 3.0  # measuring a prompt takes as long as so many runs of it


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=Path, metavar="PATH", help=flags.PATH)
    flags.add_format(parser, _rows_as_csv, "json (default): rows and counts; csv: rows")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", metavar="TEXT", help="measure signs and effects at matches on this text")
    prompts.add_argument("--tokens", type=Path, metavar="FILE", help="or on a JSON list of token ids")
    flags.add_task(prompts, "blocks", about="or on samples of a task, with intervals")
    add("--samples", type=values.positive, metavar="N", help="of the task (default 20)")
    about = "of a prompt with needles or pairs (default: half the trained)"
    add("--length", type=values.positive, metavar="T", help=about)
    add("--seed", type=int, default=0, metavar="S", help="of the samples (default 0)")
    flags.add_base(parser)
    flags.add_running(parser)


def run(arguments: Namespace) -> dict[str, Any]:
    """The rows and the counts over the model; what was run, where something was."""
    from mta_viz.analysis.kernels import kernels, measures, table

    if arguments.task is None and (arguments.samples or arguments.length):
        raise MtaVizError("--samples and --length are of a task; give --task needle, pairs or blocks as well")
    flags.refuse_length(arguments)
    prompted = not (arguments.prompt is arguments.tokens is arguments.task is None)
    checkpoint = flags.open_checkpoint(arguments, alone=not prompted and arguments.base is None)
    config = checkpoint.config
    asked = None
    if prompted:
        # refused, if so, before names are given
        asked = _asked(flags.model_of(checkpoint, arguments), arguments)
    rows = table.kernel_table(checkpoint.state_dict, config)
    if not rows:
        note("the model has no key-query kernels and mixes no heads")
    for c_q, c_k in sorted({size for size in (config.mta.pre_kernel, config.mta.post_kernel) if size}):
        missing = measures.cannot_show(kernels.kernel_offsets(config, c_q, c_k))
        if missing:  # so that an absence is not taken for a finding
            note(f"a kernel of {c_q} x {c_k} cannot show: {', '.join(missing)}")
    counts = asdict(table.shape_counts(rows))
    if asked is None:
        return {"kernels": list(rows), "counts": counts}
    rows, matches = _at_matches(rows, asked)
    return {"kernels": list(rows), "counts": counts, "matches": matches}


class _Asked(NamedTuple):
    """What is run, and what it is in words; `task` None for a prompt."""

    model: "HookedMTA"
    task: str | None
    what: str
    prompts: "list[Tokens]"


def _asked(model: "HookedMTA", arguments: Namespace) -> _Asked:
    """The prompt, or the task's. Raises PromptError for a task that does not fit the model."""
    from mta_viz.analysis.labs.task_samples import SAMPLES as DEFAULT
    from mta_viz.analysis.labs.task_samples import task_prompts

    if arguments.task is None:
        return _Asked(model, None, "the prompt", [flags.encode(model, flags.prompt_of(arguments))])
    task, n, seed, length = (getattr(arguments, name) for name in ("task", "samples", "seed", "length"))
    what, prompts = task_prompts(model, task, n, seed, usual=DEFAULT, length=length)
    flags.note_seconds(model, f"{len(prompts)} prompts to run", map(len, prompts), RUNS)
    return _Asked(model, task, what, prompts)


def _at_matches(rows: "tuple[Row, ...]", asked: _Asked) -> "tuple[tuple[Row, ...], dict[str, Any]]":
    """The rows with what was measured, and on what."""
    from mta_viz.analysis.attention.matches import NO_MATCH, measure_matches, with_matches

    model, task, what, prompts = asked
    traces = (mta_viz.capture(model, prompt) for prompt in prompts)  # one at a time
    with ProgressLine("measuring") as progress:
        measured = measure_matches(rows, traces, len(prompts), progress)
    having = max((at.gap.prompts for at in measured.values()), default=0)
    if measured and not having:
        of_task = "not measured at matches: in no prompt does a token come again"
        note(NO_MATCH if task is None else of_task)
    elif having == 1:
        note("one prompt: the numbers at matches have no interval")
    setting = {"of": what, "prompts": len(prompts), "prompts_with_matches": having}
    return with_matches(rows, measured), setting


def _rows_as_csv(answer: dict[str, Any]) -> str:
    """No value is an empty field."""
    from mta_viz.analysis.kernels.table import kernel_frame

    return kernel_frame(answer["kernels"]).to_csv(index=False, lineterminator="\n")

"""`questions PATH [--task qa1,qa2] [--length N]`: how many questions about stories are right."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from mta_viz.analysis.labs.needle import check_vocabulary
from mta_viz.analysis.labs.questions import (
    ANSWER_RUNS,
    NOT_TRAINED,
    QuestionScore,
    evaluate_questions,
    trained_for_questions,
)
from mta_viz.checkpoint.files import replacing
from mta_viz.cli.loading import open_model
from mta_viz.cli.needle import read_haystack
from mta_viz.cli.output import ProgressLine, check_output, note
from mta_viz.exporting.results import questions_csv
from mta_viz.model.transformer import HookedMTA
from mta_viz.run import tracing
from mta_viz.tasks.questions import QuestionTask, make_question_sample
from mta_viz.tasks.stories import TASKS


def run(arguments: Namespace) -> dict[str, Any]:
    """Each task's accuracy beside chance; `--out` gets every answer, after Ctrl-C those there are."""
    if arguments.out:
        check_output(arguments.out, arguments.force)
    haystack = read_haystack(arguments.haystack) if arguments.haystack else None
    tasks = [QuestionTask(name, arguments.length, haystack) for name in arguments.task]
    model = open_model(arguments)
    _say_seconds(model, tasks, arguments)
    trained = trained_for_questions(model.source.path if model.source else None)
    if not trained:
        note(NOT_TRAINED)
    scores: dict[str, QuestionScore] = {}
    try:
        for task in tasks:
            _measure(model, task, arguments, scores)
    finally:
        if arguments.out and scores:
            _write(arguments.out, scores)
    answer = {"path": str(arguments.path), "trained_for_questions": trained}
    return answer | {"tasks": [_summary(score) for score in scores.values()]}


def _measure(
    model: HookedMTA, task: QuestionTask, arguments: Namespace, scores: dict[str, QuestionScore]
) -> None:
    def keep(found: QuestionScore) -> None:
        scores[task.name] = found

    with ProgressLine(task.name) as progress:
        evaluate_questions(
            model, task, n=arguments.samples, seed=arguments.seed, keep=keep, progress=progress
        )


def _say_seconds(model: HookedMTA, tasks: list[QuestionTask], arguments: Namespace) -> None:
    """About how long it will take here. Raises for samples that cannot be made."""
    tokenizer = check_vocabulary(model, model.tokenizer)
    lengths = [len(make_question_sample(tokenizer, task, arguments.seed).tokens) for task in tasks]
    seconds = (
        ANSWER_RUNS * arguments.samples * sum(tracing.estimate_seconds(model, length) for length in lengths)
    )
    note(f"{arguments.samples * len(tasks):,} samples, about {max(seconds, 1):,.0f} s here")


def _write(file: Path, scores: dict[str, QuestionScore]) -> None:
    with replacing(file) as partial:
        partial.write_text(questions_csv(scores.values()), encoding="utf-8")


def _summary(score: QuestionScore) -> dict[str, Any]:
    return {
        "task": score.task,
        "about": TASKS[score.task],
        "distraction": score.distraction,
        "n": score.n,
        "right": score.right,
        "accuracy": score.accuracy,
        "interval": list(score.interval),
        "chance": score.chance,
        "names_no_label": score.silent,
    }

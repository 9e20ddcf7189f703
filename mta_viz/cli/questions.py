"""`questions PATH [--task qa1,qa2] [--length N]`: how many questions about stories are right."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint import door
from mta_viz.cli.flags import add_file, add_model, note_seconds, open_model, positive, whole
from mta_viz.cli.output import ProgressLine, note, write_text

if TYPE_CHECKING:
    from mta_viz.analysis.labs.questions import QuestionScore
    from mta_viz.model.transformer import HookedMTA
    from mta_viz.tasks.questions import QuestionTask

HELP = "questions about short stories in distracting text, after BABILong"
TASKS = ("qa1", "qa2", "qa3", "qa4", "qa5")  # as tasks.stories has them, which imports torch
MOST_DISTRACTION = 100_000  # tokens; a map of as many takes 40 GB a head


def add_flags(parser: ArgumentParser) -> None:
    """A model, which questions, and how much text is between the facts."""
    add = parser.add_argument
    add_model(parser, dtype="float32")
    add(
        "--task",
        type=task_list,
        default=TASKS,
        metavar="qa1,qa2",
        help="of qa1 to qa5 (default: all): one, two and three supporting facts, relations of two and three",
    )
    add(
        "--length",
        type=whole(0, MOST_DISTRACTION),
        default=512,
        metavar="N",
        help="tokens of distraction between the facts (default 512, 0: none)",
    )
    add("--samples", type=positive, default=20, metavar="N", help="of each task (default 20)")
    add("--seed", type=whole(0), default=0, metavar="S", help="number of the first sample")
    add("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    add_file(parser, "--out", "write every answer as CSV as well")


def run(arguments: Namespace) -> dict[str, Any]:
    """Each task's accuracy beside chance; `--out` gets every answer, after Ctrl-C those there are."""
    from mta_viz.analysis.labs.questions import NOT_TRAINED, answers_table, trained_for_questions
    from mta_viz.tasks.questions import QuestionTask

    haystack = door.read_text(arguments.haystack) if arguments.haystack else None
    tasks = [QuestionTask(name, arguments.length, haystack) for name in arguments.task]
    model = open_model(arguments)
    _note_seconds(model, tasks, arguments)
    trained = trained_for_questions(model.source.path if model.source else None)
    if not trained:
        note(NOT_TRAINED)
    scores: dict[str, QuestionScore] = {}
    try:
        for task in tasks:
            _measure(model, task, arguments, scores)
    finally:
        if arguments.out and scores:
            write_text(arguments.out, answers_table(scores.values()).csv())
    answer = {"path": str(arguments.path), "trained_for_questions": trained}
    return answer | {"tasks": [_summary(score) for score in scores.values()]}


def _measure(
    model: "HookedMTA", task: "QuestionTask", arguments: Namespace, scores: "dict[str, QuestionScore]"
) -> None:
    """Add the task's score to `scores`, after every answer."""
    from mta_viz.analysis.labs.questions import evaluate_questions

    def keep(score: "QuestionScore") -> None:
        scores[task.name] = score

    with ProgressLine(task.name) as progress:
        evaluate_questions(
            model, task, n=arguments.samples, seed=arguments.seed, keep=keep, progress=progress
        )


def _note_seconds(model: "HookedMTA", tasks: "list[QuestionTask]", arguments: Namespace) -> None:
    """About how long it will take here. Raises for samples that cannot be made."""
    from mta_viz.analysis.labs.needle import check_vocabulary
    from mta_viz.analysis.labs.questions import ANSWER_RUNS
    from mta_viz.tasks.questions import make_question_sample

    tokenizer = check_vocabulary(model, model.tokenizer)
    lengths = [len(make_question_sample(tokenizer, task, arguments.seed).tokens) for task in tasks]
    n = arguments.samples
    note_seconds(model, f"{n * len(tasks):,} samples", lengths, runs=ANSWER_RUNS * n)


def _summary(score: "QuestionScore") -> dict[str, Any]:
    from mta_viz.tasks.stories import TASKS as DESCRIPTIONS

    return {
        "task": score.task,
        "about": DESCRIPTIONS[score.task],
        "distraction": score.distraction,
        **asdict(score.accuracy),
        "chance": score.chance,
        "names_no_label": score.silent,
    }


def task_list(text: str) -> tuple[str, ...]:
    """`qa1,qa3` -> both names."""
    names = tuple(part.strip().lower() for part in text.split(","))
    wrong = [name for name in names if name not in TASKS]
    if wrong:
        raise ArgumentTypeError(
            f"there is no task {', '.join(map(repr, wrong))}; choose of {', '.join(TASKS)}"
        )
    return tuple(dict.fromkeys(names))

"""`questions PATH [--task qa1,qa2] [--length N]`: how many questions about stories are right."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mta_viz.checkpoint import door
from mta_viz.cli.flags import add_file, add_model, add_on, note_seconds, open_model
from mta_viz.cli.kept import form_of, kept_beside
from mta_viz.cli.output import ProgressLine, note
from mta_viz.cli.values import positive, whole
from mta_viz.writing import write

if TYPE_CHECKING:
    from mta_viz.analysis.labs.evaluation import QuestionScore

HELP = "questions about short stories in distracting text, after BABILong"
TASKS = ("qa1", "qa2", "qa3", "qa4", "qa5")  # as tasks.stories has them, which imports torch
MOST_DISTRACTION = 100_000  # tokens; a map of as many takes 40 GB a head


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_model(parser)
    add_on(parser)
    about = "of qa1 to qa5 (default: all): one, two and three supporting facts, relations of two and three"
    add("--task", type=task_list, default=TASKS, metavar="qa1,qa2", help=about)
    about = "tokens of distraction between the facts (default 512, 0: none)"
    add("--length", type=whole(0, MOST_DISTRACTION), default=512, metavar="N", help=about)
    add("--samples", type=positive, default=20, metavar="N", help="of each task (default 20)")
    add("--seed", type=whole(0), default=0, metavar="S", help="number of the first sample")
    add("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    add_file(
        parser,
        "--out",
        "write every answer as CSV as well; after Ctrl-C the same command goes on",
        ending=".csv",
    )


def run(arguments: Namespace) -> dict[str, Any]:
    """Each task's accuracy beside chance; `--out` gets every answer."""
    from mta_viz.analysis.labs import evaluation as labs
    from mta_viz.analysis.labs.needle import check_vocabulary
    from mta_viz.tasks.questions import QuestionTask, make_question_sample

    haystack = door.read_text(arguments.haystack) if arguments.haystack else None
    tasks = [QuestionTask(name, arguments.length, haystack) for name in arguments.task]
    model = open_model(arguments)
    tokenizer, n = check_vocabulary(model, model.tokenizer), arguments.samples
    lengths = [len(make_question_sample(tokenizer, task, arguments.seed).tokens) for task in tasks]
    note_seconds(model, f"{n * len(tasks):,} samples", lengths, runs=labs.ANSWER_RUNS * n)
    trained = labs.trained_for_questions(model.path)
    if not trained:
        note(labs.NOT_TRAINED)
    scores: list[QuestionScore] = []
    asked, form = (tasks, n, arguments.seed), form_of(labs.QuestionAnswer)
    with kept_beside(arguments.out, form, [model], *asked) as kept:
        for task in tasks:
            with ProgressLine(task.name) as progress:
                how: dict[str, Any] = {"progress": progress, "on": arguments.on, "kept": kept.of(task.name)}
                scores.append(labs.evaluate_questions(model, task, n=n, seed=arguments.seed, **how))
        if arguments.out:
            write(arguments.out, labs.answers_table(scores).csv())
    answer = {"path": str(arguments.path), "trained_for_questions": trained}
    return answer | {"tasks": [_summary(score) for score in scores]}


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

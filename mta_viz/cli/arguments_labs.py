"""Flags of the labs' commands."""

import argparse
from pathlib import Path

from mta_viz.cli.flags import Commands, add_model, add_output, add_running, depth_list, number_list, positive

QUESTION_TASKS = ("qa1", "qa2", "qa3", "qa4", "qa5")  # as tasks.stories has them, which imports torch


def add_needle(commands: Commands) -> None:
    """The flags of `needle`."""
    needle = commands.add_parser("needle", help="needles x lengths x depths, several checkpoints, resumable")
    needle.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="checkpoint folders")
    add_running(needle, dtype="float32")
    needle.add_argument(
        "--needles", type=number_list, default=(4,), metavar="2,4,6", help="1 to 8 (default 4)"
    )
    needle.add_argument(
        "--lengths", type=number_list, default=(512,), metavar="512,1024", help="of the prompt, in tokens"
    )
    needle.add_argument(
        "--depths",
        type=depth_list,
        default=(0, 25, 50, 75, 100),
        metavar="0,50,100",
        help="per cent of the haystack before the asked needle (default 0,25,50,75,100)",
    )
    needle.add_argument("--samples", type=positive, default=20, metavar="N", help="of each combination")
    needle.add_argument("--seed", type=int, default=0, metavar="S", help="number of the first sample")
    needle.add_argument("--template", choices=("paper", "ruler"), default="paper", help="needle and question")
    needle.add_argument("--needle", metavar="TEXT", help="a sentence of your own with {city} and {value}")
    needle.add_argument("--question", metavar="TEXT", help="with {city}; default: the needle up to its value")
    needle.add_argument("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    needle.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="results; what it holds is not run again"
    )
    needle.add_argument("--force", action="store_true", help="replace a file of another measurement")


def add_perplexity(commands: Commands) -> None:
    """The flags of `perplexity`."""
    perplexity = commands.add_parser(
        "perplexity", help="how well a text, or passages' last words, are predicted"
    )
    add_model(perplexity, dtype="float32")
    given = perplexity.add_mutually_exclusive_group(required=True)
    given.add_argument("--prompt", metavar="TEXT", help="a text, or with --last-word one passage")
    given.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help='a text; with --last-word passages: paragraphs, or {"text": ...} lines',
    )
    perplexity.add_argument(
        "--last-word", action="store_true", help="ask for the last word of each passage, as LAMBADA does"
    )
    perplexity.add_argument(
        "--csv", type=Path, metavar="FILE", help="write every token, or passage, as a table"
    )
    perplexity.add_argument("--force", action="store_true", help="overwrite an existing file")


def add_conjunction(commands: Commands) -> None:
    """The flags of `conjunction`."""
    test = commands.add_parser("conjunction", help="what two words together give a span beyond their sum")
    add_model(test, dtype="float32")
    test.add_argument(
        "--twin", type=Path, metavar="PATH", help="run beside it (default: itself, kernels at identity)"
    )
    test.add_argument("--samples", type=positive, default=20, metavar="N", help="blocks: how many sequences")
    test.add_argument("--seed", type=int, default=0, metavar="S", help="blocks: of the sequences")
    test.add_argument("--letters", type=positive, default=5, metavar="N", help="blocks: letters in each")
    test.add_argument("--blocks", type=positive, default=52, metavar="N", help="blocks: how many")
    test.add_argument(
        "--text", metavar="TEXT", help="instead of blocks: a text with {A?} and {B?}, and {A} and {B} before"
    )
    test.add_argument("--span", metavar="TEXT", help="the part of the text whose attention is measured")
    test.add_argument(
        "--words",
        action="append",
        metavar="'A, B, C, D'",
        help="A, B, and what stands for each where it is not asked for; again for another sample",
    )
    test.add_argument("--format", choices=("json", "csv"), default="json", help="json (default) or csv")
    add_output(test)


def add_questions(commands: Commands) -> None:
    """The flags of `questions`."""
    questions = commands.add_parser(
        "questions", help="questions about short stories in distracting text, after BABILong"
    )
    add_model(questions, dtype="float32")
    questions.add_argument(
        "--task",
        type=task_list,
        default=QUESTION_TASKS,
        metavar="qa1,qa2",
        help="of qa1 to qa5 (default: all): one, two and three supporting facts, relations of two and three",
    )
    questions.add_argument(
        "--length",
        type=count,
        default=512,
        metavar="N",
        help="tokens of distraction between the facts (default 512, 0: none)",
    )
    questions.add_argument(
        "--samples", type=positive, default=20, metavar="N", help="of each task (default 20)"
    )
    questions.add_argument("--seed", type=count, default=0, metavar="S", help="number of the first sample")
    questions.add_argument("--haystack", type=Path, metavar="FILE", help="a text instead of the grammar's")
    questions.add_argument("--out", type=Path, metavar="FILE", help="write every answer as CSV as well")
    questions.add_argument("--force", action="store_true", help="overwrite an existing file")


def count(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def task_list(text: str) -> tuple[str, ...]:
    """`qa1,qa3` -> both names."""
    names = tuple(part.strip().lower() for part in text.split(","))
    wrong = [name for name in names if name not in QUESTION_TASKS]
    if wrong:
        raise argparse.ArgumentTypeError(
            f"there is no task {', '.join(map(repr, wrong))}; choose of {', '.join(QUESTION_TASKS)}"
        )
    return tuple(dict.fromkeys(names))

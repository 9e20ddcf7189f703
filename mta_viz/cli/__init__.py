"""The command line: the same calls as the app and a notebook, without a browser.

A command is a module with `HELP`, `add_flags(parser)` and `run(arguments)`, which returns the answer; `OLDER`
has older words for it. stdout is the answer as JSON (CSV where asked for) and nothing else; notes and
progress go to stderr. What the user got wrong ends with exit status 2 and `error: ...` on stderr. Nothing
heavy is imported before the arguments are understood: what needs torch is imported in `run` or what it calls.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from mta_viz import printed
from mta_viz.cli.kept import forget_parts
from mta_viz.cli.output import check_output, json_text, note
from mta_viz.errors import NO_MEMORY, MtaVizError, PromptError, is_out_of_memory
from mta_viz.writing import write

COMMANDS = (
    "info", "story", "report", "kernels", "trace", "generate", "heads", "cells", "decompose", "lens", "gain",
    "operator", "train", "evaluate", "effects", "shapley", "paths", "recurrence", "surrogates", "ablate",
    "attribute", "compare", "direct-effect", "needle", "perplexity", "conjunction", "questions",
    "paper-figures", "figure", "insert", "convert", "finetune", "app", "doctor",
)  # fmt: skip
USER_ERROR = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE
_QUIET = logging.NullHandler()


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one `error: ...` line, like all others."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(USER_ERROR, f"error: {printed.message(message)} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    """The parser of `python -m mta_viz`; `arguments.run(arguments)` runs the command."""
    parser = Parser(
        prog="python -m mta_viz",
        description="Look inside a Multi-Token Attention checkpoint. Answers are JSON on stdout.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"mta_viz.cli.{name.replace('-', '_')}")
        older = getattr(module, "OLDER", ())  # words for it that still work
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, aliases=older)
        command.set_defaults(run=module.run, out_is=None, as_csv=None)
        module.add_flags(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    _silence_libraries()
    try:
        print(_run(build_parser().parse_args(argv)), flush=True)
    except MtaVizError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _fail(NO_MEMORY)
    except BrokenPipeError:  # nobody reads on
        return BROKEN_PIPE
    except OSError as error:
        return _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    return 0


def _silence_libraries() -> None:
    """No warning of a library before an answer or an error; `python -W` shows them all the same."""
    if not sys.warnoptions:
        logging.captureWarnings(True)
        logging.getLogger().addHandler(_QUIET)


def _run(arguments: argparse.Namespace) -> str:
    """What is printed. `--out` is checked before any work and, where it is for the answer, written after."""
    _check_texts(arguments)
    out = arguments.out if arguments.out_is else None
    if out:
        check_output(out, arguments.force or arguments.out_is == "results", arguments.ending)
    answer, dtype = arguments.run(arguments), getattr(arguments, "dtype", None)
    if dtype is not None:
        answer = answer | {"computed_in": dtype}
    if out and arguments.out_is == "answer":
        write(out, json_text(answer) + "\n")
    if out:
        forget_parts(out)
    in_csv = arguments.as_csv and arguments.format == "csv"
    if in_csv and dtype is not None:
        note(f"computed in {dtype}")
    return arguments.as_csv(answer).rstrip("\n") if in_csv else json_text(answer)


def _check_texts(arguments: argparse.Namespace) -> None:
    """Raise PromptError for a text that is no UTF-8, which a command line can hold; paths may be."""
    for flag, value in vars(arguments).items():
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise PromptError(f"--{flag.replace('_', '-')} is not valid UTF-8 text")


def _fail(message: str) -> int:
    print(f"error: {printed.message(message)}", file=sys.stderr)
    return USER_ERROR

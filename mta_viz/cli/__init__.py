"""The command line: the same calls as the app and a notebook, without a browser.

stdout is the answer as JSON (CSV where asked for) and nothing else; notes and progress go to stderr.
What the user got wrong ends with exit status 2 and `error: ...` on stderr. Nothing heavy is imported
before the arguments are understood: each command is a module with `run(arguments)`, which returns a
dict, or a text that is printed as it is.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from mta_viz.cli.arguments import build_parser
from mta_viz.cli.output import json_text
from mta_viz.errors import MtaVizError

USER_ERROR = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None, *, ready: Callable[[], object] | None = None) -> int:
    """Run one command; returns the exit status. `ready` is called when the command is imported."""
    arguments = build_parser().parse_args(argv)
    try:
        command = import_module(f"mta_viz.cli.{arguments.command.replace('-', '_')}")
        if ready is not None:
            ready()
        answer = command.run(arguments)
        print(answer if isinstance(answer, str) else json_text(answer), flush=True)
    except MtaVizError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # nobody reads on
        return BROKEN_PIPE
    except OSError as error:
        return _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    return 0


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return USER_ERROR

"""`python -m mta_viz`: the command line, and what Ctrl-C does to it."""

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> int:
    """Run the command line. Ctrl-C ends it with one line, also where an interrupted import fails oddly."""
    interrupts: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)  # not where it is ignored, as in a script's background
    try:
        from mta_viz.cli import main as run

        return run()
    except BaseException as error:
        if interrupts:
            print("\ninterrupted", file=sys.stderr)
            return 128 + signal.SIGINT  # mta_viz.cli.INTERRUPTED, which may not be imported
        if (words := _words(error)) is None:
            raise
        print(f"error: {words}", file=sys.stderr)
        return 2


def _words(error: BaseException) -> str | None:
    """What to do where not even the command line can be imported; None for anything else."""
    if "Too many open files" in f"{error} {error.__context__}":  # errors.FEW_FILES, which may not be imported
        return "too few files may be open at a time; raise the limit: ulimit -n 256"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("mta_viz"):
        return (
            f"this Python has no package {error.name}; `make app` puts all into .venv (then "
            ".venv/bin/python -m mta_viz ...), or: pip install -r requirements.txt"
        )
    return None


if __name__ == "__main__":
    sys.exit(main())

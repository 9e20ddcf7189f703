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
        if "Too many open files" not in f"{error} {error.__context__}":
            raise
        # errors.FEW_FILES, which may not be imported
        print("error: too few files may be open at a time; raise the limit: ulimit -n 256", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

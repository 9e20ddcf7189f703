"""`python -m mta_viz`: the command line, and what Ctrl-C does before it is ready."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command line. Until everything it needs is imported, Ctrl-C ends the process at once.

    There is nothing to tidy up by then, and an interrupted import may surface as any other error.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where Ctrl-C is ignored, as in a shell's background
        signal.signal(signal.SIGINT, _end)
    from mta_viz.cli import main as run

    return run(ready=lambda: signal.signal(signal.SIGINT, before))


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(130)  # mta_viz.cli.INTERRUPTED, which may not be imported yet


if __name__ == "__main__":
    sys.exit(main())

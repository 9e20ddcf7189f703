"""Progress and notes on stderr: a line that moves on a terminal, now and then a line in a log."""

import sys
import time

TERMINAL_SECONDS = 0.1
LOG_SECONDS = 5.0


class ProgressLine:
    """A progress callback: call it with the share done, 0 to 1. Use as a context manager.

    On a terminal one line is rewritten, elsewhere a line is printed every few seconds, so quick
    work says nothing in a log.
    """

    def __init__(self, label: str) -> None:
        self.label, self.rewrite = label, sys.stderr.isatty()
        self.start = self.last = time.monotonic()
        self.shown = False

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.shown and self.rewrite:
            print(file=sys.stderr)

    def __call__(self, share: float) -> None:
        """Say how far it is, if it is time to."""
        now = time.monotonic()
        if now - self.last < (TERMINAL_SECONDS if self.rewrite else LOG_SECONDS):
            return
        self.last, self.shown = now, True
        line = f"{self.label}: {share:4.0%}, {_left(now - self.start, share)}"
        print(f"\r{line:<60}" if self.rewrite else line, end="" if self.rewrite else "\n", file=sys.stderr)
        sys.stderr.flush()


def note(text: str) -> None:
    """Something the user should know that is no error."""
    print(f"note: {text}", file=sys.stderr)


def _left(elapsed: float, share: float) -> str:
    return f"{elapsed * (1 - share) / share:.0f} s left" if share > 0 else f"{elapsed:.0f} s"

"""Ctrl-C held back while a value is between two states. Owns the signal for that moment only."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the body finish before Ctrl-C acts. Outside the main thread Ctrl-C never arrives anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[FrameType | None] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, or not Python's to handle
        yield
        return
    signal.signal(signal.SIGINT, lambda _number, frame: held.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(signal.SIGINT, held[0])

"""What a signal does while a command has no better answer to it.

Commands that stop in steps (serving, training, answering) have their own handlers for that time.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_sigterm() -> Generator[None, None, None]:
    """A SIGTERM in the block ends the process in order, with exit code 143: what is open is closed
    and what is unfinished removed, as after an error.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

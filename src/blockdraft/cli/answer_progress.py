"""How far the making of answers or prompts is: a bar where someone watches, else a line a minute.

It also turns SIGTERM into an interrupt, so that what is finished is kept. It decides nothing.
"""

import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from blockdraft.cli.console import say

SECONDS_BETWEEN_LINES = 60.0


class Standing(NamedTuple):
    """How far a run is: `done` of `total`, and the tokens that this process has generated."""

    done: int
    total: int
    new_tokens: int


class Pace:
    """Speed and time left, from the first standing on."""

    def __init__(self, noun: str, clock: Callable[[], float]) -> None:
        self._noun = noun
        self._clock = clock
        self._began: tuple[float, int] | None = None

    def text(self, now: Standing) -> str:
        """The standing in words. What was done before this process tells nothing of its speed."""
        if self._began is None:
            self._began = self._clock(), now.done
        started, done_before = self._began
        seconds = max(self._clock() - started, 1e-9)
        new = now.done - done_before
        speed = f", {now.new_tokens / seconds:,.0f} tok/s" if new else ""
        left = f", {_duration((now.total - now.done) * seconds / new)} left" if new > 0 else ""
        return f"{now.done:,} of {now.total:,} {self._noun}{speed}{left}"


@contextmanager
def watch(
    noun: str, clock: Callable[[], float] = time.monotonic
) -> Generator[Callable[[Standing], None], None, None]:
    """Gives the function that takes each new standing."""
    pace = Pace(noun, clock)
    with terminate_as_interrupt():
        if not sys.stderr.isatty():
            yield _lines(pace, clock)
            return
        columns = (BarColumn(), TextColumn("{task.description}"))
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, refresh_per_second=2) as bar:
            task = bar.add_task(noun, total=None)
            yield lambda now: bar.update(
                task, completed=now.done, total=now.total, description=pace.text(now)
            )


@contextmanager
def terminate_as_interrupt() -> Generator[None, None, None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _lines(pace: Pace, clock: Callable[[], float]) -> Callable[[Standing], None]:
    said_at: float | None = None

    def update(now: Standing) -> None:
        nonlocal said_at
        text = pace.text(now)
        if said_at is None or clock() - said_at >= SECONDS_BETWEEN_LINES:
            said_at = clock()
            say(text)

    return update


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"

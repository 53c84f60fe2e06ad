"""How far an evaluation is: a bar where someone watches, a line now and then elsewhere.

It goes to stderr and holds no result.
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from blockdraft.cli.console import say
from blockdraft.cli.render import figure
from blockdraft.decoding import AcceptanceStats
from blockdraft.evaluation import AnswerCount

SECONDS_BETWEEN_LINES = 60.0


@contextmanager
def watch_prompts(
    total: int, clock: Callable[[], float] = time.monotonic
) -> Generator[Callable[[AnswerCount], None], None, None]:
    """Gives the function that takes each finished answer. An interrupt is told in one line."""
    watch = _Watch(total, clock)
    try:
        if sys.stderr.isatty():
            console = Console(stderr=True)
            with Progress(console=console, transient=True, refresh_per_second=2) as progress:
                task = progress.add_task("prompts", total=total)

                def advance(answer: AnswerCount) -> None:
                    watch.count(answer)
                    progress.update(task, advance=1, description=watch.text())

                yield advance
        else:
            yield watch.count_and_say
    except KeyboardInterrupt:
        say(f"interrupted after {watch.done} of {total} prompts; nothing is reported of them")
        raise


class _Watch:
    """The answers so far and when a line about them was last written."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self.done = 0
        self._total = total
        self._clock = clock
        self._said_at = clock()
        self._stats = AcceptanceStats()

    def count(self, answer: AnswerCount) -> None:
        self.done += 1
        self._stats = self._stats.merge(answer.stats)

    def count_and_say(self, answer: AnswerCount) -> None:
        self.count(answer)
        now = self._clock()
        if now - self._said_at >= SECONDS_BETWEEN_LINES and self.done < self._total:
            say(self.text())
            self._said_at = now

    def text(self) -> str:
        return f"{self.done} of {self._total} prompts, tau {figure(self._stats.tau)} so far"

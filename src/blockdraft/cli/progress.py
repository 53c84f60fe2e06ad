"""A progress bar on stderr for long runs.

It is shown only where someone watches and results on stdout can't run into it.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress_bar(total: int, noun: str) -> Generator[Callable[[], None], None, None]:
    """Gives the function that counts one more of `total`."""
    if total < 2 or not sys.stderr.isatty() or sys.stdout.isatty():
        yield _ignore
        return
    with Progress(console=Console(stderr=True), transient=True, refresh_per_second=2) as progress:
        task = progress.add_task(noun, total=total)
        yield lambda: progress.advance(task)


def _ignore() -> None:
    pass

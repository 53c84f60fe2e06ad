"""`Handover`: what the engine's thread has for event loops, passed on once a step.

It knows neither requests nor the engine.
"""

import asyncio
from collections.abc import Callable, Sequence

Call = Callable[[], None]


class Handover:
    """Calls collected for each event loop, in order. Used by one thread."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.AbstractEventLoop, list[Call]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, call: Call) -> None:
        """Have `loop` call something at the next `flush`; `call` must not raise."""
        self._calls.setdefault(loop, []).append(call)

    def flush(self) -> list[asyncio.AbstractEventLoop]:
        """Wake every loop that has calls, once; returns the loops that are closed."""
        closed: list[asyncio.AbstractEventLoop] = []
        calls_of, self._calls = self._calls, {}
        for loop, calls in calls_of.items():
            try:
                loop.call_soon_threadsafe(_run, calls)
            except RuntimeError:
                if not loop.is_closed():
                    raise
                closed.append(loop)
        return closed


def _run(calls: Sequence[Call]) -> None:
    for call in calls:
        call()

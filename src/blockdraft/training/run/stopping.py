"""`StopRequest`: SIGTERM and SIGINT turned into a flag that the training loop asks between steps.

It saves nothing itself; SIGKILL can't be caught, which is why checkpoints appear atomically.
"""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """While entered, the first SIGTERM or SIGINT sets `signal_name` and nothing more.

    The handlers that were there are put back by the first signal, so that a second one acts as if
    this object did not exist (at once), and on leaving. Outside of the main thread, where Python
    allows no handlers, it never asks to stop.
    """

    def __init__(self) -> None:
        self._signal_name: str | None = None
        self._previous: dict[signal.Signals, object] = {}

    @property
    def requested(self) -> bool:
        return self._signal_name is not None

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that asked to stop, such as "SIGTERM"; None as long as none did."""
        return self._signal_name

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        already = self.requested
        self._signal_name = signal.Signals(number).name
        self._restore()
        if already:
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            # None stands for a handler that was not installed from Python; it can't be put back.
            if callable(handler) or isinstance(handler, signal.Handlers):
                signal.signal(number, handler)

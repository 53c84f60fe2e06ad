"""`LogWriter`: lines to a file or to standard error, on a thread, come what may.

Whoever logs never waits for a disk and never sees it fail; what could not be written is counted and
told as soon as writing works again. It formats nothing.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

MOST_LINES = 10_000
"""Lines that may wait for a slow disk or a reader who has stopped reading."""


class Sink(Protocol):
    """Where bytes go. `write` writes all of them or raises OSError."""

    def write(self, data: bytes) -> None: ...


class StderrSink:
    """Standard error, past any buffer."""

    def write(self, data: bytes) -> None:
        _write_all(2, data)


class FileSink:
    """Appends to a file; one that was moved, deleted or lost its disk is opened again."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when it can't be opened now."""
        self._path = path
        self._is_torn = False
        self._file = self._open()

    def write(self, data: bytes) -> None:
        if self._file < 0 or self._was_replaced():
            self._close()
            self._file = self._open()
            self._is_torn = False
        try:
            # What a full disk cut off must not swallow the next line too.
            _write_all(self._file, b"\n" + data if self._is_torn else data)
            self._is_torn = False
        except OSError:
            self._is_torn = True
            raise

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, 0o640)

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _was_replaced(self) -> bool:
        """Whether the path leads elsewhere by now, as after log rotation."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        here = os.fstat(self._file)
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)


class LogWriter:
    """Writes what `put` is given, in order, on its own thread until `close`."""

    def __init__(self, sink: Sink, tell_lost: Callable[[int, str], str]) -> None:
        """`tell_lost` makes the line that says how many lines were lost, and why."""
        self._sink = sink
        self._tell_lost = tell_lost
        self._changed = threading.Condition(threading.Lock())
        self._lines: deque[str] = deque()
        self._num_lost = 0
        self._why = ""
        self._is_closing = False
        self._is_writing = False
        self._thread = threading.Thread(target=self._run, name="blockdraft-log", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Lines that were put and neither written nor lost yet."""
        with self._changed:
            return len(self._lines) + self._is_writing

    def put(self, line: str) -> None:
        """Have `line` written; it is lost when too many wait already."""
        with self._changed:
            if len(self._lines) >= MOST_LINES:
                self._num_lost += 1
                self._why = "lines came faster than they could be written"
                return
            self._lines.append(line)
            self._changed.notify()

    def close(self, seconds: float = 2.0) -> None:
        """Write what waits, for at most so long."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                while not self._lines and not self._is_closing:
                    self._changed.wait()
                if not self._lines:
                    return
                line = self._lines.popleft()
                self._is_writing = True
                num_lost, why = self._num_lost, self._why
                self._num_lost = 0
            self._write(line, num_lost, why)

    def _write(self, line: str, num_lost: int, why: str) -> None:
        notice = f"{self._tell_lost(num_lost, why)}\n" if num_lost else ""
        try:
            self._sink.write(f"{notice}{line}\n".encode("utf-8", errors="backslashreplace"))
        except OSError as error:
            with self._changed:
                self._num_lost += num_lost + 1
                self._why = error.strerror or type(error).__name__


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]

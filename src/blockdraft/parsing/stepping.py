"""`SteppedParser`: an `OutputParser` around a machine that reads one character at a time.

It knows no format. Reading by characters is what makes the result independent of the cuts.
"""

from collections import deque
from typing import Protocol

from blockdraft.parsing.parts import (
    Content,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
)

TextKind = type[Content] | type[Reasoning] | type[ToolCallArguments]


class Sink:
    """Where a machine puts its parts, and characters that it wants to read again."""

    def __init__(self) -> None:
        self.pending: deque[str] = deque()
        self._num_calls = 0
        self._parts: list[Part] = []
        self._kind: TextKind = Content
        self._texts: list[str] = []

    def content(self, text: str) -> None:
        self._write(Content, text)

    def reasoning(self, text: str) -> None:
        self._write(Reasoning, text)

    def arguments(self, text: str) -> None:
        """Of the call that was started last."""
        self._write(ToolCallArguments, text)

    def start(self, name: str) -> None:
        """Begin the next call."""
        self._join()
        self._parts.append(ToolCallStart(self._num_calls, name))
        self._num_calls += 1

    def read_again(self, text: str) -> None:
        """Put `text` before everything that was not read yet."""
        self.pending.extendleft(reversed(text))

    def take(self) -> list[Part]:
        """The parts since the last call, neighbors joined."""
        self._join()
        parts, self._parts = self._parts, []
        return parts

    def _write(self, kind: TextKind, text: str) -> None:
        if kind is not self._kind:
            self._join()
            self._kind = kind
        self._texts.append(text)

    def _join(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if not text:
            return
        if self._kind is ToolCallArguments:
            self._parts.append(ToolCallArguments(self._num_calls - 1, text))
        else:
            self._parts.append(Content(text) if self._kind is Content else Reasoning(text))


class Machine(Protocol):
    """The states of one format; it writes to the sink that it was made with."""

    def step(self, char: str) -> None:
        """Read one character. What it puts back has to lead on: no two states may pass it on."""
        ...

    def end(self) -> None:
        """Write what is held back; nothing is put back any more."""
        ...


class SteppedParser:
    """Feeds a machine and hands out what it wrote."""

    def __init__(self, machine: Machine, sink: Sink) -> None:
        self._machine = machine
        self._sink = sink

    def feed(self, text: str) -> list[Part]:
        pending = self._sink.pending
        pending.extend(text)
        while pending:
            self._machine.step(pending.popleft())
        return self._sink.take()

    def end(self) -> list[Part]:
        self._machine.end()
        return self._sink.take()

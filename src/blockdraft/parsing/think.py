"""Reasoning between <think> and </think>, at the beginning of an answer or of its continuation.

Whether the prompt has opened the tag is the caller's knowledge; tags later in the answer are text.
"""

from typing import Literal

from blockdraft.parsing.matching import WHITE_SPACE, Expect
from blockdraft.parsing.stepping import Sink

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


class ThinkMachine:
    """White space beside the tags belongs to them; all other text is passed on as it is."""

    def __init__(self, sink: Sink, *, starts_inside: bool) -> None:
        self._sink = sink
        self._starts_inside = starts_inside
        self._state: Literal["start", "inside", "behind", "content"] = "start"
        self._expect = Expect(THINK_OPEN)
        self._blanks: list[str] = []
        self._partial = ""
        self._is_empty = True

    def step(self, char: str) -> None:
        match self._state:
            case "start":
                self._step_start(char)
            case "inside":
                self._step_inside(char)
            case "behind":
                if char not in WHITE_SPACE:
                    self._state = "content"
                    self._sink.content(char)
            case "content":
                self._sink.content(char)

    def end(self) -> None:
        held = "".join(self._blanks) + (self._expect.partial if self._state == "start" else "")
        if self._state == "start" and not self._starts_inside:
            self._sink.content(held)
        elif self._state in ("start", "inside"):
            self._sink.reasoning(held.lstrip(WHITE_SPACE) if self._is_empty else held)
            self._sink.reasoning(self._partial)

    def _step_start(self, char: str) -> None:
        literal = self._expect.step(char)
        if literal:
            self._state, self._blanks = "inside", []
        elif literal is None:
            self._state = "inside" if self._starts_inside else "content"
            self._sink.read_again("".join(self._blanks) + self._expect.partial)
            self._blanks = []
        elif not self._expect.partial:
            self._blanks.append(char)

    def _step_inside(self, char: str) -> None:
        self._partial += char
        while self._partial and not THINK_CLOSE.startswith(self._partial):
            first, self._partial = self._partial[0], self._partial[1:]
            if first in WHITE_SPACE:
                self._blanks.append(first)
                continue
            blanks = "" if self._is_empty else "".join(self._blanks)
            self._sink.reasoning(blanks + first)
            self._blanks, self._is_empty = [], False
        if self._partial == THINK_CLOSE:
            self._state, self._blanks, self._partial = "behind", [], ""

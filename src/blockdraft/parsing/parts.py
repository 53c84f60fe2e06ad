"""What the text of an answer is taken apart into, and the protocol of the parsers that do it.

It parses nothing and knows no wire format; `serving` turns parts into messages and deltas.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Call number `index` (0, 1, ... in the order of the answer) of the tool `name`."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of the arguments of call `index`; the pieces joined are one JSON object.

    They are the beginning of one when the answer ended, or stopped being JSON, inside the call.
    """

    index: int
    text: str


Part = Content | Reasoning | ToolCallStart | ToolCallArguments


class OutputParser(Protocol):
    """Takes the text of one answer in any pieces; what comes out does not depend on the cuts."""

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain after `text`, as early as they can be."""
        ...

    def end(self) -> list[Part]:
        """What was held back; call it once, after the last `feed`."""
        ...


def merged(parts: Iterable[Part]) -> list[Part]:
    """The same parts with neighbors of one kind (and one call) joined, empty ones left out."""
    result: list[Part] = []
    for key, run in groupby(parts, _run_key):
        kind, index = key
        pieces = list(run)
        if kind is ToolCallStart:
            result += pieces
            continue
        text = "".join(part.text for part in pieces if not isinstance(part, ToolCallStart))
        if not text:
            continue
        if kind is ToolCallArguments:
            result.append(ToolCallArguments(index, text))
        else:
            result.append(Content(text) if kind is Content else Reasoning(text))
    return result


def _run_key(part: Part) -> tuple[type[Part], int]:
    return type(part), part.index if isinstance(part, ToolCallArguments) else 0

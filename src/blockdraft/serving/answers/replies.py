"""Replies: the deltas of an `Answer` as the chunks of a stream, or folded into one document.

Both go through the same choices; nothing is sent here.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from blockdraft.serving.answers.choice import Delta
from blockdraft.serving.answers.head import Head
from blockdraft.serving.answers.options import Shown
from blockdraft.serving.answers.running import Answer
from blockdraft.serving.answers.usage import extras, usage

Document = dict[str, object]


class ChoiceShape(Protocol):
    """One choice in the shape of its endpoint."""

    def add(self, delta: Delta) -> Document | None: ...

    def whole(self) -> Document: ...


class Opens(Protocol):
    """A shape whose stream begins with a chunk of its own."""

    def opening(self) -> Document: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer on its way out. `openings` is empty for shapes without an opening chunk.

    `root` are fields that only the whole document, and the first chunk, carry.
    """

    answer: Answer
    choices: Sequence[ChoiceShape]
    openings: Sequence[Opens]
    head: Head
    shown: Shown
    num_spec_tokens: int
    root: Document

    async def whole(self) -> Document:
        """The plain response, once everything has been said."""
        async for delta in self.answer.deltas():
            self.choices[delta.index].add(delta)
        document = self.head.document([choice.whole() for choice in self.choices])
        document["usage"] = usage(self.answer.asked)
        return {**document, **self.root, **self._extras()}

    async def chunks(self) -> AsyncIterator[Document]:
        """The chunks of a stream, the last one of usage and extras included."""
        root = self.root
        async for delta in self.answer.deltas():
            if delta.is_first and self.openings:
                opening = self.openings[delta.index].opening()
                yield {**self._chunk([opening]), **root}
                root = {}
            choice = self.choices[delta.index].add(delta)
            if choice is not None:
                yield {**self._chunk([choice]), **root}
                root = {}
        if self.shown.usage_at_end or self.shown.asked_extras:
            last = self.head.document([])
            if self.shown.usage_at_end:
                last["usage"] = usage(self.answer.asked)
            yield {**last, **self._extras()}

    def _chunk(self, choices: list[Document]) -> Document:
        document = self.head.document(choices)
        if self.shown.usage_always:
            document["usage"] = usage(self.answer.asked)
        elif self.shown.usage_at_end:
            document["usage"] = None
        return document

    def _extras(self) -> Document:
        return extras(self.answer.asked, self.shown, self.num_spec_tokens)

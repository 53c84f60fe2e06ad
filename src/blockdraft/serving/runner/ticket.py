"""`Ticket`: one accepted request as an asynchronous iterator of its commits.

It lives on the event loop that handed the request in and never touches the engine itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockdraft.decoding import Commit, SamplingParams
from blockdraft.decoding.text import DecodeText
from blockdraft.errors import Error, RequestError
from blockdraft.serving.runner.observer import RequestRecord


@dataclass(frozen=True, slots=True)
class Order:
    """What a client asks of the engine."""

    prompt_ids: Sequence[int]
    params: SamplingParams
    decode_text: DecodeText | None


class Ticket:
    """Commits in order; iteration ends after the one with a finish reason, or raises.

    It raises the request's own error, after the commits that came before it. One reader at a time.
    What is not read yet waits here, at most one commit for each token the request may emit.
    Everything but `order`, `record` and `key` belongs to the event loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        order: Order,
        record: RequestRecord,
        give_up: Callable[["Ticket"], None],
    ) -> None:
        self.loop = loop
        self.order = order
        self.record = record
        self.key = -1
        """The engine's name for the request; set by the engine's thread."""
        self.num_cached = 0
        """Prompt tokens that were reused; known with the first commit."""
        self.queue_seconds = 0.0
        """From submission to the step that gave it a slot; known with the first commit."""
        self._give_up = give_up
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._buffer: deque[Commit] = deque()
        self._error: Error | None = None
        self._ended = False
        self._reader: asyncio.Future[None] | None = None

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def prompt_len(self) -> int:
        return self.record.prompt_len

    def cancel(self) -> None:
        """Give the request up: its slot and rows are free before the next step begins.

        To be called on the ticket's own event loop, at any time; nothing happens to a request that
        has ended. What was not read is dropped, and whoever reads gets a RequestError.
        """
        if self._ended:
            self._buffer.clear()
            return
        self._give_up(self)
        self._buffer.clear()
        self._end(RequestError("this request was canceled by its own client"))

    def __aiter__(self) -> "Ticket":
        return self

    async def __anext__(self) -> Commit:
        while not self._buffer:
            if self._error is not None:
                # Several requests may share an error object: it must not collect all their frames.
                raise self._error.with_traceback(None)
            if self._ended:
                raise StopAsyncIteration
            assert self._reader is None, "a ticket has one reader at a time"
            self._reader = self.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._buffer.popleft()

    async def accepted(self) -> None:
        """Wait until the engine has taken the request; raises why it did not.

        Whoever stops waiting gives the request up.
        """
        try:
            await self._accepted
        except asyncio.CancelledError:
            if not self._accepted.cancelled():
                self._accepted.exception()  # nobody will ask for it any more
            self.cancel()
            raise

    # What the engine's thread has the event loop call:

    def accept(self) -> None:
        """The engine has taken it."""
        if not self._accepted.done():
            self._accepted.set_result(None)

    def arrive(self, commit: Commit, queue_seconds: float) -> None:
        """One more commit."""
        if self._ended:
            return
        self.num_cached = commit.num_cached
        self.queue_seconds = queue_seconds
        self._buffer.append(commit)
        self._ended = commit.finish_reason is not None
        self._wake()

    def fail(self, error: Error) -> None:
        """No more commits, and why; before `accept` it is a refusal."""
        if not self._ended:
            self._end(error)

    def _end(self, error: Error) -> None:
        self._ended = True
        if self._accepted.done():
            self._error = error
            self._wake()
        else:
            self._accepted.set_exception(error)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

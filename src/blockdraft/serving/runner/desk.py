"""`Desk`: where event loops leave requests and the engine's thread fetches them.

All that several threads touch is here, behind one lock that is never held for long. It neither
calls the engine nor wakes an event loop.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from blockdraft.errors import Draining, Error, Overloaded
from blockdraft.serving.runner.ticket import Ticket


class Notice(NamedTuple):
    """What an event loop is to call when no request is left."""

    loop: asyncio.AbstractEventLoop
    call: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`max_waiting` requests may wait beside those that free slots take in at the next step."""

    max_waiting: int
    num_slots: int


class Post(NamedTuple):
    """A new request, or the wish to give up one that was left before."""

    ticket: Ticket
    is_cancel: bool


class Closing(NamedTuple):
    """What a desk still held when it closed."""

    never_fetched: list[Ticket]
    notices: list[Notice]


class Desk:
    """Open until `close`; counts requests that wait for a slot and that run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition(threading.Lock())
        self._posts: list[Post] = []
        self._num_new = 0
        self._num_waiting = 0
        self._num_running = 0
        self._is_draining = False
        self._is_stopping = False
        self._closed_with: Error | None = None
        self._when_empty: list[Notice] = []

    @property
    def is_open(self) -> bool:
        return self._closed_with is None

    @property
    def takes_requests(self) -> bool:
        return self._closed_with is None and not (self._is_draining or self._is_stopping)

    @property
    def num_new(self) -> int:
        """Requests that the engine's thread has not fetched yet."""
        return self._num_new

    def leave(self, ticket: Ticket) -> None:
        """Leave a new request. Raises Draining, Overloaded or what the desk was closed with."""
        with self._changed:
            if self._closed_with is not None:
                raise self._closed_with.with_traceback(None)
            if self._is_draining or self._is_stopping:
                raise Draining("the server is shutting down; send the request to another one")
            num_free = max(0, self._limits.num_slots - self._num_running)
            if self._num_waiting >= self._limits.max_waiting + num_free:
                raise Overloaded(
                    f"{self._num_running} requests run and {self._num_waiting} wait, and no more "
                    "may wait; try again in a moment"
                )
            self._posts.append(Post(ticket, is_cancel=False))
            self._num_new += 1
            self._num_waiting += 1
            self._changed.notify()

    def give_up(self, ticket: Ticket) -> None:
        """Ask for a request to be given up; it may have ended meanwhile."""
        with self._changed:
            if self._closed_with is None:
                self._posts.append(Post(ticket, is_cancel=True))
                self._changed.notify()

    def fetch(self, *, may_sleep: bool) -> list[Post] | None:
        """Everything left since the last time, in order; None once the thread is to stop.

        With `may_sleep` it sleeps until there is something.
        """
        with self._changed:
            while may_sleep and not self._posts and not self._is_stopping:
                self._changed.wait()
            if self._is_stopping:
                return None
            posts, self._posts = self._posts, []
            self._num_new = 0
            return posts

    def started(self, num_requests: int) -> None:
        """So many of those that waited have a slot."""
        with self._changed:
            self._num_waiting -= num_requests
            self._num_running += num_requests

    def ended(self, *, num_waiting: int, num_running: int) -> list[Notice]:
        """So many ended while they waited, and while they ran; whom to tell that none is left."""
        with self._changed:
            self._num_waiting -= num_waiting
            self._num_running -= num_running
            return self._take_when_empty()

    def drain(self, when_empty: Notice) -> bool:
        """Take no more requests. True when none is left; else `when_empty` is told later."""
        with self._changed:
            self._is_draining = True
            if self._num_waiting + self._num_running == 0:
                return True
            self._when_empty.append(when_empty)
            return False

    def stop(self) -> None:
        """Take no more requests and have the thread stop at its next `fetch`."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def close(self, error: Error) -> Closing:
        """Refuse everything from now on with `error`; no request counts any more."""
        with self._changed:
            self._closed_with = error
            never_fetched = [post.ticket for post in self._posts if not post.is_cancel]
            self._posts.clear()
            self._num_new = self._num_waiting = self._num_running = 0
            return Closing(never_fetched, self._take_when_empty())

    def _take_when_empty(self) -> list[Notice]:
        if self._num_waiting + self._num_running:
            return []
        told, self._when_empty = self._when_empty, []
        return told

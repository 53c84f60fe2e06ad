"""The access log: one line for each HTTP request, with what the engine did for it.

`AccessLog` sees the request, `LoggedRunner` its tickets; they meet in a context variable, so a line
knows its own tokens however many requests run. No text of a request is kept unless asked for.
"""

import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockdraft.decoding import AcceptanceStats, Commit, SamplingParams
from blockdraft.decoding.text import DecodeText
from blockdraft.errors import Error
from blockdraft.serving.log_lines import FIELDS
from blockdraft.serving.service import Runner, Ticket

PROBES = frozenset({"/health", "/ready", "/ping", "/metrics"})
"""Asked every few seconds by machines; logged at level debug while they succeed."""

MOST_QUOTED = 64 * 1024
"""Bytes of a body that are logged, where they are."""

MOST_PATH = 200

_LOGGER = logging.getLogger("blockdraft.access")


@dataclass(slots=True, eq=False)
class WatchedTicket:
    """A ticket that remembers what came out of it."""

    ticket: Ticket
    prompt_len: int
    num_tokens: int = 0
    stats: AcceptanceStats = field(default_factory=AcceptanceStats)
    first_token: float | None = None
    ended_as: str | None = None

    @property
    def num_cached(self) -> int:
        return self.ticket.num_cached

    @property
    def queue_seconds(self) -> float | None:
        return self.ticket.queue_seconds

    def cancel(self) -> None:
        self.ended_as = self.ended_as or "canceled"
        self.ticket.cancel()

    async def __aiter__(self) -> AsyncIterator[Commit]:
        try:
            async for commit in self.ticket:
                if self.first_token is None:
                    self.first_token = time.perf_counter()
                self.num_tokens += len(commit.ids)
                self.stats = commit.stats
                self.ended_as = commit.finish_reason or self.ended_as
                yield commit
        except Error as error:
            self.ended_as = self.ended_as or type(error).__name__
            raise


@dataclass(slots=True, eq=False)
class Entry:
    """One HTTP request while it lasts."""

    began: float
    tickets: list[WatchedTicket] = field(default_factory=list[WatchedTicket])
    request_id: str = ""
    status: int | None = None
    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)

    def values(self, scope: Scope) -> dict[str, object]:
        """What its line tells."""
        client: tuple[str, int] | None = scope.get("client")
        now = time.perf_counter()
        values: dict[str, object] = {
            "id": self.request_id,
            "client": None if client is None else client[0],
            "method": scope["method"],
            "path": str(scope["path"])[:MOST_PATH],
            "status": self.status or 499,
            "ms": _milliseconds(now - self.began),
        }
        if not self.tickets:
            return values
        pooled = AcceptanceStats()
        for ticket in self.tickets:
            pooled = pooled.merge(ticket.stats)
        firsts = [t.first_token for t in self.tickets if t.first_token is not None]
        ends = dict.fromkeys(ticket.ended_as or "unread" for ticket in self.tickets)
        return values | {
            "first_ms": _milliseconds(min(firsts) - self.began) if firsts else None,
            "queue_ms": _milliseconds(max(t.queue_seconds or 0.0 for t in self.tickets)),
            "prompt_tokens": sum(ticket.prompt_len for ticket in self.tickets),
            "cached_tokens": sum(ticket.num_cached for ticket in self.tickets),
            "tokens": sum(ticket.num_tokens for ticket in self.tickets),
            "tau": None if pooled.tau is None else round(pooled.tau, 3),
            "end": ",".join(ends),
        }


_CURRENT: ContextVar[Entry | None] = ContextVar("blockdraft_request", default=None)


class LoggedRunner:
    """A runner whose tickets are told to the line of the HTTP request that they belong to."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def is_alive(self) -> bool:
        return self._runner.is_alive

    @property
    def is_ready(self) -> bool:
        return self._runner.is_ready

    async def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        decode_text: DecodeText | None = None,
        *,
        request_id: str = "",
    ) -> Ticket:
        ticket = await self._runner.submit(prompt_ids, params, decode_text, request_id=request_id)
        entry = _CURRENT.get()
        if entry is None:
            return ticket
        watched = WatchedTicket(ticket, len(prompt_ids))
        entry.tickets.append(watched)
        return watched


class AccessLog:
    """The outermost ASGI layer. Every response carries an X-Request-Id; `quotes` logs bodies."""

    def __init__(self, app: ASGIApp, *, quotes: bool = False) -> None:
        self._app = app
        self._quotes = quotes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = Entry(time.perf_counter())

        async def noted_send(message: Message) -> None:
            self._note_answer(entry, message)
            await send(message)

        async def noted_receive() -> Message:
            message = await receive()
            entry.asked += message.get("body", b"")[: MOST_QUOTED - len(entry.asked)]
            return message

        token = _CURRENT.set(entry)
        try:
            await self._app(scope, noted_receive if self._quotes else receive, noted_send)
        except Exception:
            entry.status = entry.status or 500  # what the HTTP server will say
            raise
        finally:
            _CURRENT.reset(token)
            self._log(entry, scope)

    def _note_answer(self, entry: Entry, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            entry.status = int(message["status"])
            entry.request_id = headers.get("x-request-id") or f"req-{secrets.token_hex(12)}"
            headers["X-Request-Id"] = entry.request_id
        elif self._quotes:
            entry.answered += message.get("body", b"")[: MOST_QUOTED - len(entry.answered)]

    def _log(self, entry: Entry, scope: Scope) -> None:
        status = entry.status or 499
        is_quiet = scope["path"] in PROBES and status < 400
        level = logging.DEBUG if is_quiet else logging.INFO
        if status >= 500 and status != 503:
            level = logging.ERROR
        if not _LOGGER.isEnabledFor(level):
            return
        values = entry.values(scope)
        if self._quotes:
            values["request"] = entry.asked.decode("utf-8", errors="replace")
            values["response"] = entry.answered.decode("utf-8", errors="replace")
        _LOGGER.log(level, "request", extra={FIELDS: values})


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)

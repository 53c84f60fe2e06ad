"""`Lifecycle`: from the first request to the last answer: signals, draining, a dead engine.

It knows no model and no route.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socket import socket
from types import FrameType
from typing import Literal, NamedTuple, Protocol

from blockdraft.errors import Error
from blockdraft.serving.log_lines import FIELDS
from blockdraft.serving.uvicorn_server import HttpServer

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOK_SECONDS = 0.25
"""How often the engine's thread is looked after."""

LAST_WORDS_SECONDS = 2.0
"""How long a server with a dead engine goes on telling clients and probes so."""

FLUSH_SECONDS = 5.0
"""For clients that are slow to read answers which are complete."""

_LOGGER = logging.getLogger("blockdraft")


class Runner(Protocol):
    """The part of an engine runner that ends it."""

    @property
    def is_alive(self) -> bool: ...

    @property
    def last_fault(self) -> Error | None: ...

    async def drain(self, timeout: float | None) -> bool: ...

    def stop(self) -> None: ...


class End(NamedTuple):
    """An exit code, and what the log's last line tells of the drain (None: there was none)."""

    code: int
    drained: Mapping[str, object] | None = None


@dataclass(slots=True, eq=False)
class Lifecycle:
    """Runs `server` on `bound` until a signal or the engine ends it.

    `drain_seconds` is what accepted requests get to finish after a signal. `on_up` is called once
    requests are answered.
    """

    server: HttpServer
    bound: socket
    runner: Runner
    drain_seconds: float
    on_up: Callable[[], None]

    async def run(self) -> int:
        """The exit code: 0 after a signal, 1 where the engine or the HTTP server died."""
        asked_to_end = asyncio.Event()
        with signals_to(asyncio.get_running_loop(), asked_to_end):
            serving = asyncio.create_task(self.server.serve(sockets=[self.bound]))
            try:
                await _first(serving, asyncio.create_task(self.server.up()))
                if not serving.done():
                    self.on_up()
                cause = await self._wait(serving, asked_to_end)
                end = await self._end(cause)
            finally:
                self.server.end(FLUSH_SECONDS)
                await serving
        # Last, when no response is left that could still write its own line.
        if end.drained is not None:
            _LOGGER.info("drained", extra={FIELDS: end.drained})
        return end.code

    async def _wait(
        self, serving: asyncio.Task[None], asked_to_end: asyncio.Event
    ) -> Literal["signal", "engine", "http"]:
        signaled = asyncio.create_task(asked_to_end.wait())
        try:
            while True:
                await asyncio.wait(
                    (serving, signaled),
                    timeout=LOOK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if signaled.done():
                    return "signal"
                if serving.done():
                    return "http"
                if not self.runner.is_alive:
                    return "engine"
        finally:
            signaled.cancel()

    async def _end(self, cause: Literal["signal", "engine", "http"]) -> End:
        if cause == "http":
            _LOGGER.error("the HTTP server ended by itself")
            return End(1)
        if cause == "engine":
            _LOGGER.critical("the engine is dead: telling clients, then ending with exit code 1")
            await asyncio.sleep(LAST_WORDS_SECONDS)
            return End(1)
        return await self._drain()

    async def _drain(self) -> End:
        began = time.monotonic()
        _LOGGER.info(
            "stopping: new requests are refused, accepted ones get time to finish; a second "
            "signal ends at once",
            extra={FIELDS: {"drain_timeout": self.drain_seconds}},
        )
        in_time = await self.runner.drain(self.drain_seconds)
        died = not self.runner.is_alive
        if not in_time:
            _LOGGER.warning("the time to finish is over: requests that are left fail now")
        await asyncio.to_thread(self.runner.stop)
        seconds = round(time.monotonic() - began, 3)
        return End(1 if died else 0, {"in_time": in_time, "seconds": seconds})


async def _first(*tasks: asyncio.Task[None]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    tasks[-1].cancel()


@contextmanager
def signals_to(
    loop: asyncio.AbstractEventLoop, asked_to_end: asyncio.Event
) -> Generator[None, None, None]:
    """SIGTERM and SIGINT set the event; the second one of either ends the process at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        if asked_to_end.is_set():
            end_at_once(number)
        loop.call_soon_threadsafe(asked_to_end.set)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(number: int) -> None:
    """Leave now, as a shell reports a death by this signal; nothing on disk needs repair."""
    # Not by the signal itself: it has no effect on the first process of a container.
    os._exit(128 + number)

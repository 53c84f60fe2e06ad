"""`EngineRunner`: the asynchronous front of an engine that runs on a thread of its own.

It decides nothing about requests but whether one more may wait.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from blockdraft.decoding import SamplingParams
from blockdraft.decoding.text import DecodeText
from blockdraft.engine import Engine, EngineStats
from blockdraft.errors import ConfigError, Draining, EngineFault, Error, Overloaded
from blockdraft.serving.runner.desk import Desk, Limits, Notice
from blockdraft.serving.runner.observer import Observer, RefusalReason, RequestRecord, Unobserved
from blockdraft.serving.runner.ticket import Order, Ticket
from blockdraft.serving.runner.worker import Worker


class EngineRunner:
    """Owns `engine` from `start` on: nobody else may call it.

    Requests may come from any number of event loops and threads. At most `max_waiting` wait beside
    those that free slots take in at the next step; `num_slots` says how many slots there are, and
    with 0 those count as waiting too. An idle engine's thread sleeps.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_waiting: int,
        observer: Observer | None = None,
        num_slots: int = 0,
    ) -> None:
        """Raises ConfigError for a queue that never takes a request in."""
        if min(max_waiting, num_slots) < 0 or max_waiting + num_slots < 1:
            raise ConfigError(
                f"max_waiting is {max_waiting} beside {num_slots} slots, so no request would ever "
                "be taken in; let at least 1 wait"
            )
        self._observer = Unobserved() if observer is None else observer
        self._desk = Desk(Limits(max_waiting=max_waiting, num_slots=num_slots))
        self._worker = Worker(engine, self._desk, self._observer, time.perf_counter)
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the engine's thread runs: False before `start`, after `stop`, after its death."""
        return self._thread is not None and self._desk.is_open

    @property
    def is_ready(self) -> bool:
        """Whether new requests are taken: alive, and neither draining nor stopping."""
        return self._thread is not None and self._desk.takes_requests

    @property
    def last_fault(self) -> Error | None:
        """The last fault of the engine that failed requests, or that ended its thread."""
        return self._worker.last_fault

    @property
    def thread_id(self) -> int | None:
        """`ident` of the engine's thread, for whoever measures it; None before `start`."""
        return None if self._thread is None else self._thread.ident

    def start(self) -> None:
        """Start the engine's thread; once."""
        assert self._thread is None, "a runner starts once"
        self._thread = threading.Thread(
            target=self._worker.run, name="blockdraft-engine", daemon=True
        )
        self._thread.start()

    async def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        decode_text: DecodeText | None = None,
        *,
        request_id: str = "",
    ) -> Ticket:
        """Hand a request in; returns once the engine has taken it, which may be a step later.

        Raises RequestError for one that can't be served, Overloaded when too many wait, Draining
        when the server shuts down, EngineFault when the engine's thread does not run. A caller that
        is canceled meanwhile gives the request up.
        """
        record = RequestRecord(
            request_id=request_id, prompt_len=len(prompt_ids), submitted=time.perf_counter()
        )
        order = Order(tuple(prompt_ids), params, decode_text)
        ticket = Ticket(asyncio.get_running_loop(), order, record, self._desk.give_up)
        try:
            if self._thread is None:
                raise EngineFault("the engine's thread was not started; call start() first")
            self._desk.leave(ticket)
        except Error as error:
            self._observer.refused(_refusal(error))
            raise
        await ticket.accepted()
        return ticket

    async def drain(self, timeout: float | None) -> bool:
        """Take no more requests and wait until all have ended; False when `timeout` s are over.

        Those that were not done in time go on until `stop`.
        """
        loop = asyncio.get_running_loop()
        empty = asyncio.Event()
        if self._desk.drain(Notice(loop, empty.set)):
            return True
        try:
            await asyncio.wait_for(empty.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """End the engine's thread after the step it is in; what is left fails with Draining.

        Returns when the thread has ended. Again, or without `start`, it does nothing.
        """
        self._desk.stop()
        if self._thread is not None:
            self._thread.join()

    def stats(self) -> EngineStats:
        """Figures as of the last step; safe from any thread, and never waits for the engine."""
        stats = self._worker.stats
        num_new = self._desk.num_new
        return replace(stats, num_waiting=stats.num_waiting + num_new) if num_new else stats


def _refusal(error: Error) -> RefusalReason:
    match error:
        case Overloaded():
            return "overloaded"
        case Draining():
            return "draining"
        case _:
            return "dead"

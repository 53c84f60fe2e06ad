"""`Worker`: the engine's thread: fetch what was left at the desk, step, pass on what came of it.

It alone touches the engine. It waits for nobody: what a slow reader has not read waits in its
ticket, and each event loop is woken once a step at most.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from blockdraft.decoding import Commit
from blockdraft.engine import Engine, EngineStats, Event
from blockdraft.errors import Draining, EngineFault, Error
from blockdraft.serving.runner.desk import Desk, Notice, Post
from blockdraft.serving.runner.handover import Handover
from blockdraft.serving.runner.observer import EndReason, Observer, StepRecord
from blockdraft.serving.runner.ticket import Ticket

_LOGGER = logging.getLogger("blockdraft")


class Worker:
    """`run` is the thread; `stats` and `last_fault` are replaced whole, so any thread may read."""

    def __init__(
        self, engine: Engine, desk: Desk, observer: Observer, clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._desk = desk
        self._observer = observer
        self._clock = clock
        self._handover = Handover()
        self._posts: deque[Post] = deque()
        """Fetched and not carried out yet."""
        self._tickets: dict[int, Ticket] = {}
        self._waiting: dict[int, Ticket] = {}
        """Those of them that never had a slot."""
        self._notices: list[Notice] = []
        self.stats: EngineStats = engine.stats()
        self.last_fault: Error | None = None

    def run(self) -> None:
        """Serve until the desk says stop. Whatever happens, every ticket comes to an end."""
        try:
            self._serve()
        except BaseException as death:  # the thread ends here, and its clients must know
            _LOGGER.critical("the engine's thread ended; nothing is served now", exc_info=death)
            fault = EngineFault(
                f"the engine's thread ended ({type(death).__name__}: {death}); restart the server, "
                "and report the traceback in its log"
            )
            self.last_fault = fault
            self.stats = replace(self.stats, num_running=0, num_waiting=0)
            self._close(fault)
        else:
            for key in self._tickets:
                self._engine.cancel(key)
            self.stats = self._engine.stats()
            self._close(
                Draining("the server was stopped before this request had ended; send it again")
            )

    def _serve(self) -> None:
        while True:
            posts = self._desk.fetch(may_sleep=not self._engine.has_work)
            if posts is None:
                return
            self._posts.extend(posts)
            self._take()
            if self._engine.has_work:
                self._step()
            self._pass_on()

    def _take(self) -> None:
        while self._posts:
            ticket, is_cancel = self._posts[0]
            if not is_cancel:
                self._open(ticket)
            elif self._tickets.get(ticket.key) is ticket:
                self._cancel(ticket)
            self._posts.popleft()

    def _open(self, ticket: Ticket) -> None:
        order = ticket.order
        try:
            key = self._engine.submit(order.prompt_ids, order.params, order.decode_text)
        except Error as error:
            self._refuse(ticket, error)
        except Exception as error:  # its processors may be anything
            _LOGGER.error("a request could not be set up", exc_info=error)
            what = f"{type(error).__name__}: {error}"
            self._refuse(
                ticket,
                EngineFault(f"the request could not be set up ({what}); look at its processors"),
            )
        else:
            ticket.key = key
            self._tickets[key] = self._waiting[key] = ticket
            self._observer.submitted(ticket.record)
            self._handover.add(ticket.loop, ticket.accept)

    def _refuse(self, ticket: Ticket, error: Error) -> None:
        self._notices += self._desk.ended(num_waiting=1, num_running=0)
        self._observer.refused("invalid")
        self._handover.add(ticket.loop, partial(ticket.fail, error))

    def _cancel(self, ticket: Ticket) -> None:
        self._engine.cancel(ticket.key)
        self._forget(ticket, "abort", self._clock())

    def _step(self) -> None:
        started = self._clock()
        events = self._engine.step()
        now = self._clock()
        self._note_admissions(events, started)
        num_prompt = num_new = 0
        for event in events:
            ticket = self._tickets[event.key]
            if isinstance(event.outcome, Commit):
                record = ticket.record
                num_prompt += record.prompt_len if record.first_token is None else 0
                num_new += len(event.outcome.ids)
                self._commit(ticket, event.outcome, now)
            else:
                self._fail(ticket, event.outcome.error, now)
        self._observer.stepped(StepRecord(num_prompt, num_new, now - started))

    def _note_admissions(self, events: Sequence[Event], started: float) -> None:
        """Who got a slot in a step: those that run now, and those that ended at once."""
        num_started = 0
        for key in (*self._engine.scheduler.running, *(event.key for event in events)):
            ticket = self._waiting.pop(key, None)
            if ticket is not None:
                num_started += 1
                ticket.record.admitted = started
                self._observer.admitted(ticket.record)
        if num_started:
            self._desk.started(num_started)

    def _commit(self, ticket: Ticket, commit: Commit, now: float) -> None:
        record = ticket.record
        assert record.admitted is not None
        self._observer.committed(record, commit, now)
        record.take(commit, now)
        queue_seconds = record.admitted - record.submitted
        self._handover.add(ticket.loop, partial(ticket.arrive, commit, queue_seconds))
        if commit.finish_reason is not None:
            self._forget(ticket, commit.finish_reason, now)

    def _fail(self, ticket: Ticket, error: Error, now: float) -> None:
        if isinstance(error, EngineFault):
            self.last_fault = error
        self._handover.add(ticket.loop, partial(ticket.fail, error))
        self._forget(ticket, "error", now)

    def _forget(self, ticket: Ticket, reason: EndReason, now: float) -> None:
        del self._tickets[ticket.key]
        waited = self._waiting.pop(ticket.key, None) is not None
        self._notices += self._desk.ended(num_waiting=waited, num_running=not waited)
        self._observer.ended(ticket.record, reason, now)

    def _pass_on(self) -> None:
        """Wake the event loops; requests whose loop is closed have nobody left to read them."""
        while True:
            self.stats = self._engine.stats()
            closed = self._flush()
            if not closed:
                return
            for ticket in [t for t in self._tickets.values() if t.loop in closed]:
                self._cancel(ticket)

    def _flush(self) -> Sequence[object]:
        for notice in self._notices:
            self._handover.add(notice.loop, notice.call)
        self._notices.clear()
        return self._handover.flush()

    def _close(self, error: Error) -> None:
        """End every ticket with `error`; clients come first, in case counting is what broke."""
        left = list(self._tickets.values())
        unopened = [p.ticket for p in self._posts if not p.is_cancel and p.ticket not in left]
        closing = self._desk.close(error)
        unopened += closing.never_fetched
        for ticket in (*left, *unopened):
            self._handover.add(ticket.loop, partial(ticket.fail, error))
        self._notices += closing.notices
        self._flush()
        now = self._clock()
        for ticket in left:
            self._observer.ended(ticket.record, "error", now)
        for _ in unopened:
            self._observer.refused("draining" if isinstance(error, Draining) else "dead")
        for gone in (self._tickets, self._waiting, self._posts):
            gone.clear()

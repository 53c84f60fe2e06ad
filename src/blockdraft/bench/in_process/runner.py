"""`run_requests`: requests through an engine, so many at a time or as they arrive, step by step.

One thread: the engine's steps and the arrivals take turns. It knows no lanes and writes nothing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blockdraft.bench.chunks import Usage
from blockdraft.bench.config import Arrival
from blockdraft.bench.in_process.jobs import EngineJob
from blockdraft.bench.in_process.step_clock import StepClock
from blockdraft.bench.records import Failure, FailureKind, RequestRecord, StepRecord
from blockdraft.bench.response_fields import ResponseCounts
from blockdraft.decoding import AcceptanceStats, Commit
from blockdraft.engine import Engine, Failed
from blockdraft.errors import Error, RequestError

OnRecord = Callable[[RequestRecord], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When requests are sent. `times` are the arrivals' seconds, one a job; None: a closed loop.

    `clock` gives seconds, `sleep` waits so many.
    """

    arrival: Arrival
    times: Sequence[float] | None = None
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class Pending:
    """A request that waits or runs, and what its steps did so far."""

    job: EngineJob
    sent_s: float
    ids: list[int] = field(default_factory=list[int])
    ends: list[float] = field(default_factory=list[float])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    stats: AcceptanceStats = field(default_factory=AcceptanceStats)
    cached: int = 0


def run_requests(
    engine: Engine, jobs: Sequence[EngineJob], pace: Pace, watch: StepClock, on_record: OnRecord
) -> None:
    """Answer all `jobs`; records come as requests end, seconds since the call.

    A request that arrives by its time was sent then, also when a step was running. An interrupt
    drops what is unfinished.
    """
    loop = _Loop(engine, jobs, pace, watch, on_record)
    try:
        loop.run()
    finally:
        loop.drop()


class _Loop:
    def __init__(
        self,
        engine: Engine,
        jobs: Sequence[EngineJob],
        pace: Pace,
        watch: StepClock,
        on_record: OnRecord,
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._pace = pace
        self._watch = watch
        self._on_record = on_record
        self._pending: dict[int, Pending] = {}
        self._next = 0
        self._start = pace.clock()

    def run(self) -> None:
        while self._next < len(self._jobs) or self._pending:
            self._send_due()
            if self._pending:
                self._step()
            elif self._next < len(self._jobs) and self._pace.times is not None:
                self._pace.sleep(max(0.0, self._pace.times[self._next] - self._now()))

    def drop(self) -> None:
        for key in self._pending:
            self._engine.cancel(key)

    def _now(self) -> float:
        return self._pace.clock() - self._start

    def _send_due(self) -> None:
        times, now = self._pace.times, self._now()
        while self._next < len(self._jobs):
            if times is None:
                if len(self._pending) >= (self._pace.arrival.concurrency or 1):
                    return
                sent = self._now()
            elif times[self._next] > now:
                return
            else:
                sent = times[self._next]
            job = self._jobs[self._next]
            self._next += 1
            self._send(job, sent)

    def _send(self, job: EngineJob, sent: float) -> None:
        pending = Pending(job, sent)
        try:
            self._pending[self._engine.submit(job.prompt_ids, job.params)] = pending
        except RequestError as error:
            self._on_record(self._failed(pending, error))

    def _step(self) -> None:
        began = self._pace.clock()
        events = self._engine.step()
        ended = self._pace.clock()
        self._watch.end_step(ended - began)
        for event in events:
            pending = self._pending[event.key]
            if isinstance(event.outcome, Failed):
                del self._pending[event.key]
                self._on_record(self._failed(pending, event.outcome.error))
                continue
            take_commit(pending, event.outcome, ended - self._start)
            if event.outcome.finish_reason is not None:
                del self._pending[event.key]
                self._on_record(answered(pending, event.outcome.finish_reason))

    def _failed(self, pending: Pending, error: Error) -> RequestRecord:
        kind: FailureKind = "failed"
        if isinstance(error, RequestError):
            kind = "prompt too long" if "context" in str(error) else "refused"
        return _record(pending, max(self._now(), pending.sent_s), None, Failure(kind, str(error)))


def take_commit(pending: Pending, commit: Commit, at: float) -> None:
    """Add what a step did. The first commit is the prefill's token, which is no step."""
    if pending.ids:
        before, after = pending.stats, commit.stats
        accepted = sum(after.accepted) - sum(before.accepted)
        drafted = sum(after.drafted) - sum(before.drafted)
        if len(commit.ids) == accepted:
            drafted = accepted  # a stop among them: what lies behind it was not judged
        pending.steps.append(StepRecord(len(commit.ids), drafted, accepted, at))
    pending.ids += commit.ids
    pending.ends.append(at)
    pending.stats = commit.stats
    pending.cached = commit.num_cached


def answered(pending: Pending, finish_reason: str) -> RequestRecord:
    """The record of a request that has its answer."""
    return _record(pending, pending.ends[-1], finish_reason, None)


def _record(
    pending: Pending, end_s: float, finish_reason: str | None, failure: Failure | None
) -> RequestRecord:
    job, stats = pending.job, pending.stats
    return RequestRecord(
        number=job.number,
        id=job.id,
        category=job.category,
        sent_s=pending.sent_s,
        first_s=pending.ends[0] if pending.ends else None,
        end_s=end_s,
        chunks_s=tuple(pending.ends),
        usage=Usage(len(job.prompt_ids), pending.cached, len(pending.ids)),
        finish_reason=finish_reason,
        counts=ResponseCounts(
            source="engine",
            accepted=sum(stats.accepted),
            drafted=sum(stats.drafted),
            steps=stats.drafted_steps,
            histogram=stats.histogram or None,
        ),
        failure=failure,
        steps=tuple(pending.steps),
        token_ids=tuple(pending.ids),
    )

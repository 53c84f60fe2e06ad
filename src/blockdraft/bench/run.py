"""`Bench`: connects to an endpoint and measures one level of load after the other.

It prints and writes nothing; figures are made in `latency.py` and `acceptance.py`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import TracebackType
from typing import Self, TypeVar

from blockdraft.bench.acceptance import Acceptance, MetricsRead, acceptance_of, counts_differ
from blockdraft.bench.arrivals import arrival_times, run_arrivals
from blockdraft.bench.closed_loop import OnRecord, run_closed_loop
from blockdraft.bench.config import Arrival, Endpoint, RequestSettings
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.probe import Found, fetch_metrics, key_wanted, probe, wrong_path
from blockdraft.bench.records import Failure, RequestRecord
from blockdraft.bench.stream import send_request
from blockdraft.bench.wire import request_body, request_path
from blockdraft.bench.workload import Job, Workload, make_jobs, warm_up_prompt
from blockdraft.errors import ConfigError

KEEPALIVE_SECONDS = 2.0
"""Servers close connections that were idle for 5 s; one of ours must not be sent into that."""
SETTLE_TRIES = 3
SETTLE_SECONDS = 0.3
UNREAD = MetricsRead(None, "the engine's counters were not read, since the level has not ended")
ENDPOINT_LANE = "endpoint"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOrder:
    """Everything that a bench is asked to do. `num_requests` is for each level (see make_jobs).

    `lane` is what the endpoint is called beside others.
    """

    endpoint: Endpoint
    settings: RequestSettings
    workload: Workload
    model: str | None = None
    num_requests: int | None = None
    num_warm_ups: int = 1
    lane: str = ENDPOINT_LANE

    def __post_init__(self) -> None:
        if self.num_warm_ups < 0:
            raise ConfigError(f"--warmup is {self.num_warm_ups}; give 0 or more requests")


@dataclass(slots=True)
class Level:
    """One arrival pattern; `records` grow by each request that ends, in that order."""

    lane: str
    repeat: int
    arrival: Arrival
    num_planned: int
    num_distinct: int
    started: float
    records: list[RequestRecord] = field(default_factory=list[RequestRecord])
    measured: Acceptance | None = None
    is_complete: bool = False

    @property
    def acceptance(self) -> Acceptance:
        """With the engine's counters once the level is over, from its answers alone before."""
        return self.measured or acceptance_of(self.records, UNREAD, UNREAD)

    @property
    def num_failed(self) -> int:
        return sum(not record.is_ok for record in self.records)

    @property
    def ended_by(self) -> Failure | None:
        """The failure that made the rest not worth sending."""
        failures = (record.failure for record in self.records)
        return next((f for f in failures if f is not None and f.ends_run), None)

    def result(self) -> LevelResult:
        """What there is of it by now."""
        return LevelResult(
            lane=self.lane,
            repeat=self.repeat,
            arrival=self.arrival,
            num_planned=self.num_planned,
            num_distinct=self.num_distinct,
            started=self.started,
            records=tuple(self.records),
            acceptance=self.acceptance,
            is_complete=self.is_complete,
        )


class Bench:
    """A connection to an endpoint for the length of a `with` block. `levels` holds what was done,
    an interrupted level too.
    """

    def __init__(self, order: BenchOrder) -> None:
        """Raises ConfigError when httpx is missing."""
        if find_spec("httpx") is None:
            raise ConfigError("bench --endpoint needs httpx: pip install 'blockdraft[bench]'")
        import httpx

        self.order = order
        self.levels: list[Level] = []
        self.found = Found(order.model or "", "unknown")
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(
            headers=order.endpoint.headers,
            timeout=order.endpoint.timeout,
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=None,
                keepalive_expiry=KEEPALIVE_SECONDS,
            ),
            trust_env=not order.endpoint.is_local,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._client.aclose())
        self._runner.close()

    def connect(self) -> Found:
        """See what is there and warm it up. Raises ConfigError when it can't be measured."""
        self.found = self._run(probe(self._client, self.order.endpoint, self.order.model))
        prompts = self.order.workload.prompts
        for number in range(self.order.num_warm_ups):
            job = Job(number, warm_up_prompt(prompts, number))
            record = self._run(self._send(job, time.perf_counter))
            if record.failure is not None:
                raise ConfigError(self._refusal(record.failure))
        return self.found

    def measure(self, arrival: Arrival, on_record: OnRecord, *, repeat: int = 0) -> Level:
        """Send the workload once in this pattern. An interrupt leaves the level incomplete."""
        order = self.order
        jobs = make_jobs(order.workload.prompts, arrival, order.num_requests)
        level = Level(
            lane=order.lane,
            repeat=repeat,
            arrival=arrival,
            num_planned=len(jobs),
            num_distinct=min(len(jobs), len(order.workload.prompts)),
            started=time.time(),
        )
        self.levels.append(level)
        before = self._run(self._metrics())
        start = time.perf_counter()

        def clock() -> float:
            return time.perf_counter() - start

        async def send(job: Job) -> RequestRecord:
            return await self._send(job, clock)

        def take(record: RequestRecord) -> None:
            level.records.append(record)
            on_record(record)

        if arrival.concurrency is not None:
            self._run(run_closed_loop(jobs, arrival.concurrency, send, take))
        else:
            assert arrival.rate is not None
            times = arrival.times or arrival_times(len(jobs), arrival.rate, order.settings.seed)
            self._run(run_arrivals(jobs, times, send, take))
        level.measured = self._settled(level, before)
        level.is_complete = len(level.records) == len(jobs)
        return level

    def _settled(self, level: Level, before: MetricsRead) -> Acceptance:
        """With counters that have caught up: some engines update theirs a moment later."""
        acceptance = acceptance_of(level.records, before, self._run(self._metrics()))
        for _ in range(SETTLE_TRIES):
            if not counts_differ(acceptance):
                break
            time.sleep(SETTLE_SECONDS)
            acceptance = acceptance_of(level.records, before, self._run(self._metrics()))
        return acceptance

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(work)

    async def _metrics(self) -> MetricsRead:
        return await fetch_metrics(self._client, self.order.endpoint, self.found)

    async def _send(self, job: Job, clock: Callable[[], float]) -> RequestRecord:
        settings, endpoint = self.order.settings, self.order.endpoint
        return await send_request(
            self._client,
            f"{endpoint.api}/{request_path(job, settings)}",
            request_body(job, settings, self.found.model, self.found.engine),
            job,
            timeout=endpoint.timeout,
            clock=clock,
        )

    def _refusal(self, failure: Failure) -> str:
        endpoint = self.order.endpoint
        status = failure.message.partition(":")[0].removeprefix("status ")
        if status in ("401", "403"):
            return key_wanted(endpoint, int(status))
        if status == "404" and self.found.model not in failure.message:
            return wrong_path(endpoint, f"the warm-up request has {failure.message}")
        return (
            f"{endpoint.shown} has no answer to the warm-up request ({failure.kind}): "
            f"{failure.message}; correct what was asked, or leave it out with --warmup 0"
        )

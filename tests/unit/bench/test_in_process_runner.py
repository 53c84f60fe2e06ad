"""Poisson arrivals and closed loops under a clock that the test turns."""

from itertools import pairwise

import pytest
import torch

from blockdraft.bench.arrivals import arrival_times
from blockdraft.bench.config import Arrival
from blockdraft.bench.in_process.jobs import EngineJob
from blockdraft.bench.in_process.runner import Pace, run_requests
from blockdraft.bench.in_process.step_clock import StepClock
from blockdraft.bench.records import RequestRecord
from blockdraft.decoding import NoDrafter, SamplingParams
from blockdraft.engine import Engine, EngineConfig, WidthMode, build_engine
from blockdraft.testing.tiny import tiny_target


class FakeTime:
    """Each look at the clock takes `tick` seconds; sleeping takes what it is told."""

    def __init__(self, tick: float) -> None:
        self.now = 100.0
        self.tick = tick
        self.slept: list[float] = []

    def clock(self) -> float:
        self.now += self.tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture(scope="module")
def engine() -> Engine:
    torch.set_num_threads(1)
    config = EngineConfig(slots=8, kv_memory=4_000_000, width=WidthMode("off"), max_context=64)
    return build_engine(tiny_target(), NoDrafter(), config).engine


def jobs(number: int, num_tokens: int = 4) -> list[EngineJob]:
    params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)
    return [EngineJob(n, f"p{n}", "", (5, 6 + n, 7), params) for n in range(number)]


def run(engine: Engine, order: list[EngineJob], pace: Pace) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    run_requests(engine, order, pace, StepClock(), records.append)
    return sorted(records, key=lambda record: record.number)


def test_requests_are_sent_when_they_arrive(engine: Engine) -> None:
    fake = FakeTime(0.001)
    times = arrival_times(5, rate=2.0, seed=3)
    pace = Pace(arrival=Arrival(rate=2.0), times=times, clock=fake.clock, sleep=fake.sleep)
    records = run(engine, jobs(5), pace)
    assert [record.sent_s for record in records] == times
    assert all(record.first_s is not None and record.first_s > record.sent_s for record in records)
    assert fake.slept and sum(fake.slept) < times[-1]
    assert not engine.has_work


def test_a_request_that_waits_for_a_step_was_sent_at_its_time(engine: Engine) -> None:
    """P16: latencies count from the arrival, also where a long step keeps the engine busy."""
    fake = FakeTime(1.0)
    pace = Pace(
        arrival=Arrival(rate=10.0), times=[0.0, 0.1, 0.2], clock=fake.clock, sleep=fake.sleep
    )
    records = run(engine, jobs(3), pace)
    assert [record.sent_s for record in records] == [0.0, 0.1, 0.2]
    assert all(record.first_token_seconds or 0 > 1 for record in records)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_so_many_running(engine: Engine, concurrency: int) -> None:
    fake = FakeTime(0.01)
    pace = Pace(arrival=Arrival(concurrency=concurrency), clock=fake.clock, sleep=fake.sleep)
    records = run(engine, jobs(7), pace)
    spans = [(record.sent_s, record.end_s) for record in records]
    running = [sum(sent < at <= end for sent, end in spans) for _, at in spans]
    assert max(running) == concurrency and not fake.slept
    assert all(record.usage == (3, 0, 4) for record in records)
    assert all(len(record.steps or ()) == 3 for record in records)


def test_arrivals_are_poisson() -> None:
    times = arrival_times(4000, rate=5.0, seed=0)
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.05)
    assert variance == pytest.approx(mean**2, rel=0.1)

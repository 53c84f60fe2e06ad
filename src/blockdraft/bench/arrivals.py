"""Sends requests at random times of a mean rate, whether or not earlier ones are answered.

It knows nothing of HTTP.
"""

import asyncio
import random
from collections.abc import Sequence
from itertools import accumulate

from blockdraft.bench.closed_loop import OnRecord, Send
from blockdraft.bench.workload import Job


def arrival_times(num_requests: int, rate: float, seed: int) -> list[float]:
    """Seconds from the beginning; the first is 0, distances are exponential with mean 1 / rate."""
    if num_requests == 0:
        return []
    source = random.Random(seed)
    gaps = [source.expovariate(rate) for _ in range(num_requests - 1)]
    return list(accumulate(gaps, initial=0.0))


async def run_arrivals(
    jobs: Sequence[Job], times: Sequence[float], send: Send, on_record: OnRecord
) -> None:
    """Send each job at its time; none further once a failure `ends_run`. Records come by end."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    is_over = asyncio.Event()

    async def one(job: Job) -> None:
        record = await send(job)
        if record.failure is not None and record.failure.ends_run:
            is_over.set()
        on_record(record)

    async with asyncio.TaskGroup() as group:
        for job, at in zip(jobs, times, strict=True):
            delay = start + at - loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            if is_over.is_set():
                break
            group.create_task(one(job))

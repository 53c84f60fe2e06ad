"""Sends requests so many at a time: each user waits for an answer before asking again.

It knows nothing of HTTP.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from blockdraft.bench.records import RequestRecord
from blockdraft.bench.workload import Job

Send = Callable[[Job], Awaitable[RequestRecord]]
OnRecord = Callable[[RequestRecord], None]


async def run_closed_loop(
    jobs: Iterable[Job], concurrency: int, send: Send, on_record: OnRecord
) -> None:
    """Send `jobs` in their order; none further once a failure `ends_run`. Records come by end."""
    waiting = iter(jobs)
    is_over = False

    async def user() -> None:
        nonlocal is_over
        while not is_over and (job := next(waiting, None)) is not None:
            record = await send(job)
            is_over = is_over or (record.failure is not None and record.failure.ends_run)
            on_record(record)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(user())

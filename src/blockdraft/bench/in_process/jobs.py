"""Prompts of a workload as requests of an engine, and the room that they need.

It runs nothing; `runner.py` does.
"""

from collections.abc import Sequence
from typing import NamedTuple

from blockdraft.bench.config import RequestSettings
from blockdraft.bench.sampling import sampling_of
from blockdraft.bench.workload import Job
from blockdraft.decoding import SamplingParams

LEAST_ROOM = 64


class EngineJob(NamedTuple):
    """One request as the engine takes it; `number` counts from 0 within a level."""

    number: int
    id: str
    category: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams


def engine_job(job: Job, prompt_ids: tuple[int, ...], settings: RequestSettings) -> EngineJob:
    """With the row's own settings where the user gave none. Raises RequestError."""
    prompt = job.prompt
    params = sampling_of(settings.of(prompt.asks), prompt.asks, job.number)
    return EngineJob(job.number, prompt.id, prompt.category, prompt_ids, params)


def room_for(jobs: Sequence[EngineJob], limit: int | None) -> int:
    """Tokens of the longest prompt with its answer, within what the target was made for."""
    longest = max(len(job.prompt_ids) + job.params.max_new_tokens for job in jobs)
    return min(max(longest, LEAST_ROOM), limit or longest + LEAST_ROOM)

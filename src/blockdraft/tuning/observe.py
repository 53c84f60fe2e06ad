"""Runs prompts through an engine, so many at a time, and keeps what each step was made of.

It chooses no settings and fits nothing. Seconds are those of the engine's steps alone.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from statistics import fmean

from blockdraft.bench.in_process.jobs import EngineJob
from blockdraft.decoding import AcceptanceStats, Commit
from blockdraft.engine import Engine, Event, Failed
from blockdraft.errors import ConfigError
from blockdraft.tuning.observed import Observed
from blockdraft.tuning.replay import ReplayRequest
from blockdraft.tuning.samples import StepSample

Clock = Callable[[], float]
OnAnswer = Callable[[], None]


def observe(
    engine: Engine,
    jobs: Sequence[EngineJob],
    *,
    width: int | None,
    clock: Clock = time.perf_counter,
    on_answer: OnAnswer | None = None,
) -> Observed:
    """Answer all jobs; as many run at a time as the engine has slots.

    `width` is what every step drafts (1 = plain decoding), None where the engine chooses. Raises
    the error of a request that fails, and ConfigError without jobs. An interrupt drops what runs.
    """
    if not jobs:
        raise ConfigError("nothing to measure: there are no prompts; give at least one")
    run = _Running(engine, jobs, width)
    seconds = 0.0
    while engine.has_work:
        run.before()
        started = clock()
        events = engine.step()
        took = clock() - started
        seconds += took
        for event in events:
            if isinstance(event.outcome, Failed):
                raise event.outcome.error
        num_ended = run.after(events, took)
        for _ in range(num_ended if on_answer is not None else 0):
            assert on_answer is not None
            on_answer()
    return run.result(seconds)


class _Running:
    """Follows the requests of a run through the engine's own books."""

    def __init__(
        self,
        engine: Engine,
        jobs: Sequence[EngineJob],
        width: int | None,
    ) -> None:
        self._scheduler = engine.scheduler
        self._width = width
        self._keys: list[int] = []
        self._prompt_len: dict[int, int] = {}
        self._max_tokens: dict[int, int] = {}
        for job in jobs:
            limit = self._scheduler.limit(len(job.prompt_ids))
            key = engine.submit(job.prompt_ids, job.params)
            self._keys.append(key)
            self._prompt_len[key] = len(job.prompt_ids)
            self._max_tokens[key] = min(job.params.max_new_tokens, limit)
        self._commits: dict[int, list[Commit]] = {key: [] for key in self._keys}
        self._waiting = dict.fromkeys(self._keys, 0)
        self._fed = dict.fromkeys(self._keys, 0)
        self._decoding: list[int] = []
        self._samples: list[StepSample] = []

    def before(self) -> None:
        scheduler = self._scheduler
        self._decoding = [key for key in scheduler.running if scheduler.num_emitted(key)]

    def after(self, events: Sequence[Event], seconds: float) -> int:
        """Take in a step; how many requests it ended."""
        num_prompts, prompt_rows = self._prompt_rows(events)
        self._sample(num_prompts, prompt_rows, seconds)
        num_ended = 0
        for event in events:
            assert isinstance(event.outcome, Commit), "failures were raised"
            commit = event.outcome
            if self._commits[event.key]:
                self._waiting[event.key] += len(commit.ids)
            self._commits[event.key].append(commit)
            num_ended += commit.finish_reason is not None
        return num_ended

    def _prompt_rows(self, events: Sequence[Event]) -> tuple[int, int]:
        """How many prompts the step fed rows of, and how many rows."""
        num = total = 0
        first = [event.key for event in events if not self._commits[event.key]]
        running = [k for k in self._scheduler.running if not self._scheduler.num_emitted(k)]
        for key in (*first, *running):
            fed = self._prompt_len[key]
            if key not in first:
                fed = self._scheduler.context_len(key)
            num += fed > self._fed[key]
            total += max(fed - self._fed[key], 0)
            self._waiting[key] += max(fed - self._fed[key], 0)
            self._fed[key] = fed
        return num, total

    def _sample(self, num_prompts: int, prompt_rows: int, seconds: float) -> None:
        if self._width is None or seconds <= 0:
            return
        rows = {
            key: min(self._width, self._max_tokens[key] - self._num_emitted(key))
            for key in self._decoding
        }
        drafting = [key for key, verify in rows.items() if verify > 1]
        sample = StepSample(
            num_requests=len(rows) + num_prompts,
            prompt_rows=prompt_rows,
            decode_rows=sum(rows.values()),
            num_drafting=len(drafting),
            draft_width=self._width if drafting else 1,
            num_taken_in=sum(self._waiting[key] for key in drafting),
            seconds=seconds,
        )
        for key in drafting:
            self._waiting[key] = 0
        if sample.prompt_rows or sample.decode_rows:
            self._samples.append(sample)

    def _num_emitted(self, key: int) -> int:
        return self._commits[key][-1].stats.tokens

    def result(self, seconds: float) -> Observed:
        last = [self._commits[key][-1].stats for key in self._keys]
        stats = AcceptanceStats()
        for one in last:
            stats = stats.merge(one)
        answers = [[i for commit in self._commits[key] for i in commit.ids] for key in self._keys]
        return Observed(
            seconds=seconds,
            latency_seconds=fmean(one.seconds for one in last),
            requests=tuple(
                ReplayRequest(self._prompt_len[key], one.tokens, self._max_tokens[key])
                for key, one in zip(self._keys, last, strict=True)
            ),
            steps=tuple(one.steps for one in last),
            drafted=stats.drafted,
            accepted=stats.accepted,
            digests=tuple(hashlib.sha256(repr(ids).encode()).hexdigest()[:16] for ids in answers),
            samples=tuple(self._samples),
        )

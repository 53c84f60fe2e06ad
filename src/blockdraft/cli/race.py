"""Timed runs of one prompt, plain and drafted, interleaved so that both meet the same machine.

It shows nothing itself: a watcher sees every step, and its time is not counted.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Literal

from blockdraft.cli.comparison import Difference, find_difference
from blockdraft.cli.engines import Lanes
from blockdraft.cli.pair import Pair
from blockdraft.decoding import Commit, Completion, SamplingParams, collect
from blockdraft.engine import Session

Lane = Literal["plain", "drafted"]
Watch = Callable[[Lane, Commit], None]

LONGEST_RUN = 20
"""More equal tokens in a row than this count as an answer that repeats itself."""

LEAST_DISTINCT = 0.5
"""Fewer distinct 4-grams than this share count as one too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """One prompt answered both ways; `seconds` in the stats are medians over the repeats."""

    plain: Completion
    drafted: Completion
    difference: Difference | None


class Stopwatch:
    """A clock that stands still while it is paused."""

    def __init__(self) -> None:
        self._paused = 0.0

    def __call__(self) -> float:
        return time.perf_counter() - self._paused

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        began = time.perf_counter()
        yield
        self._paused += time.perf_counter() - began


def run_race(
    pair: Pair,
    lanes: Lanes,
    prompt_ids: tuple[int, ...],
    params: SamplingParams,
    *,
    num_repeats: int,
    watch: Watch,
    epsilon: float,
) -> Race:
    """Plain, drafted, and again `num_repeats` times; `watch` sees the first time."""
    runs: dict[Lane, list[Completion]] = {"plain": [], "drafted": []}
    sessions: dict[Lane, Session] = {"plain": lanes.plain, "drafted": lanes.drafted}
    for repeat in range(num_repeats):
        for lane, session in sessions.items():
            seen = None if repeat else partial(watch, lane)
            runs[lane].append(run_lane(session, prompt_ids, params, seen))
    plain, drafted = _typical(runs["plain"]), _typical(runs["drafted"])
    difference = find_difference(pair, plain, drafted, params, epsilon)
    return Race(plain=plain, drafted=drafted, difference=difference)


def run_lane(
    session: Session,
    prompt_ids: tuple[int, ...],
    params: SamplingParams,
    watch: Callable[[Commit], None] | None = None,
) -> Completion:
    """One answer, timed from its request on, without what `watch` takes."""
    stopwatch = Stopwatch()
    started = stopwatch()
    prefill_seconds: float | None = None
    commits: list[Commit] = []
    for commit in session.stream(prompt_ids, params):
        seconds = stopwatch() - started
        with stopwatch.paused():
            prefill_seconds = seconds if prefill_seconds is None else prefill_seconds
            stats = commit.stats.with_time(seconds=seconds, prefill_seconds=prefill_seconds)
            commits.append(replace(commit, stats=stats))
            if watch is not None:
                watch(commits[-1])
    return collect(prompt_ids, commits)


def time_plain(
    session: Session, prompt_ids: tuple[int, ...], params: SamplingParams, num_repeats: int
) -> Completion:
    """One lane alone, with median times."""
    return _typical([run_lane(session, prompt_ids, params) for _ in range(num_repeats)])


def _typical(runs: list[Completion]) -> Completion:
    """The first run, with the median times of all."""
    stats = runs[0].stats.with_time(
        seconds=median(run.stats.seconds for run in runs),
        prefill_seconds=median(run.stats.prefill_seconds for run in runs),
    )
    return replace(runs[0], stats=stats)


def repeats_itself(ids: tuple[int, ...]) -> bool:
    """Whether an answer runs in circles, which makes drafting look better than it is."""
    run_len = longest = 1
    for left, right in pairwise(ids):
        run_len = run_len + 1 if left == right else 1
        longest = max(longest, run_len)
    grams = [ids[start : start + 4] for start in range(len(ids) - 3)]
    return longest > LONGEST_RUN or (
        len(grams) >= 40 and len(set(grams)) < LEAST_DISTINCT * len(grams)
    )

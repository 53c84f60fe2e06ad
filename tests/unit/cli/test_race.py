"""Timed races: fair order, time of the display taken out, medians."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from blockdraft.cli.engines import Lanes, open_lanes
from blockdraft.cli.pair import Pair
from blockdraft.cli.race import Lane, Stopwatch, repeats_itself, run_lane, run_race
from blockdraft.decoding import Commit, SamplingParams
from blockdraft.engine import EngineConfig, WidthMode
from blockdraft.testing import OracleDrafter, hashed_logits
from blockdraft.testing.laws import LogitsOf

PARAMS = SamplingParams(max_new_tokens=9)


@pytest.fixture
def pair(make_pair: Callable[[LogitsOf, int], Pair]) -> Pair:
    made = make_pair(hashed_logits(16), 16)
    return replace(made, drafter=OracleDrafter(made.target, 4))


@pytest.fixture
def lanes(pair: Pair) -> Lanes:
    return open_lanes(pair, EngineConfig(slots=1, kv_memory=10**6, width=WidthMode("fixed", 4)))


def test_a_stopwatch_stands_still_while_paused() -> None:
    stopwatch = Stopwatch()
    began = stopwatch()
    with stopwatch.paused():
        time.sleep(0.05)
    assert stopwatch() - began < 0.03


def test_what_the_watcher_takes_is_not_counted(lanes: Lanes) -> None:
    def slow(commit: Commit) -> None:
        time.sleep(0.05)

    watched = run_lane(lanes.plain, (1, 2), PARAMS, slow)
    assert watched.stats.seconds < 0.05 * PARAMS.max_new_tokens
    assert watched.stats.tokens == PARAMS.max_new_tokens


def test_a_race_interleaves_and_is_watched_once(pair: Pair, lanes: Lanes) -> None:
    seen: list[Lane] = []
    race = run_race(
        pair,
        lanes,
        (1, 2),
        PARAMS,
        num_repeats=3,
        watch=lambda lane, commit: seen.append(lane),
        epsilon=0.0,
    )
    assert seen == ["plain"] * 9 + ["drafted"] * 3
    assert race.difference is None
    assert race.plain.token_ids == race.drafted.token_ids
    assert race.plain.stats.tau == 1.0
    assert race.drafted.stats.tau == 4.0
    assert race.plain.stats.steps == 8


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (tuple(range(100)), False),
        ((), False),
        ((5,) * 21, True),
        ((5,) * 20, False),
        ((1, 2, 3) * 20, True),
        ((1, 2, 3) * 10, False),
    ],
)
def test_answers_that_run_in_circles_are_found(ids: tuple[int, ...], expected: bool) -> None:
    """C15: repetition gives near-total acceptance, so a benchmark must say so."""
    assert repeats_itself(ids) is expected

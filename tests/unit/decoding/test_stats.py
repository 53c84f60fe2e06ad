"""The one definition of acceptance, against hand counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding.stats import AcceptanceStats, StepCount


def step(drafted: int, accepted: int, cut: int = 0, committed: int | None = None) -> StepCount:
    return StepCount(
        num_committed=accepted + 1 if committed is None else committed,
        num_drafted=drafted,
        num_accepted=accepted,
        num_cut=cut,
    )


def stats_of(*steps: StepCount) -> AcceptanceStats:
    stats = AcceptanceStats().with_prefill_token()
    for count in steps:
        stats = stats.with_step(count)
    return stats


def test_plain_decoding_has_an_acceptance_length_of_one() -> None:
    assert stats_of(*[step(0, 0)] * 9).tau == 1.0


def test_nothing_verified_means_no_acceptance_length() -> None:
    assert stats_of().tau is None
    assert stats_of().tau_drafted is None
    assert AcceptanceStats().tokens_per_second is None


def test_runs_of_3_2_1_0_have_a_mean_of_one_and_a_half() -> None:
    """T06: pooled over all steps, so the mean does not depend on how they are batched."""
    steps = [step(3, accepted) for accepted in (3, 2, 1, 0)]
    stats = stats_of(*steps)
    assert stats.tau == 1 + 1.5
    assert stats.acceptance_by_position == (3 / 4, 2 / 4, 1 / 4)
    assert stats.histogram == (1, 1, 1, 1)
    halves = stats_of(*steps[:1]).merge(stats_of(*steps[1:]))
    assert (halves.tau, halves.histogram) == (stats.tau, stats.histogram)


def test_accepted_drafts_cut_off_by_a_stop_count_nowhere() -> None:
    cut = stats_of(step(4, accepted=1, cut=2, committed=1))
    assert cut.tokens == 2
    assert cut.tau == 1.0
    assert cut.accepted == (1, 0, 0, 0)
    assert cut.drafted == (1, 0, 0, 1)
    assert cut.acceptance_by_position == (1.0, 0.0, 0.0, 0.0)
    assert cut.histogram == (0, 1)


def test_plain_steps_lower_tau_but_not_tau_drafted() -> None:
    stats = stats_of(step(3, 3), step(0, 0))
    assert stats.tau == 2.5
    assert stats.tau_drafted == 4.0


counts = st.integers(0, 5).flatmap(
    lambda drafted: st.builds(step, st.just(drafted), st.integers(0, drafted))
)


@given(st.lists(st.lists(counts, max_size=6), min_size=1, max_size=4))
def test_merging_requests_pools_them(requests: list[list[StepCount]]) -> None:
    merged = AcceptanceStats()
    for request in requests:
        merged = merged.merge(stats_of(*request))
    flat = [count for request in requests for count in request]
    assert merged.steps == len(flat)
    assert merged.tokens == len(requests) + sum(count.num_committed for count in flat)
    for position, accepted in enumerate(merged.accepted):
        assert accepted == sum(count.num_accepted > position for count in flat)
        assert merged.drafted[position] == sum(count.num_drafted > position for count in flat)


def test_seconds_are_pooled_too() -> None:
    timed = stats_of(step(0, 0)).with_time(seconds=2.0, prefill_seconds=0.5)
    both = timed.merge(timed)
    assert (both.seconds, both.prefill_seconds) == (4.0, 1.0)
    assert both.tokens_per_second == pytest.approx(1.0)

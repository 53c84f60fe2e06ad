"""The acceptance estimate against known acceptance processes."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.engine.acceptance import AcceptanceEstimate, acceptance_from_tau

BLOCK = 8


def run_length(rng: random.Random, prob: float, num_verified: int) -> int:
    for k in range(num_verified):
        if rng.random() >= prob:
            return k
    return num_verified


def feed(
    estimate: AcceptanceEstimate, probs: dict[str, float], num_steps: int, width: int = BLOCK
) -> None:
    rng = random.Random(num_steps + width)
    for _ in range(num_steps):
        estimate.observe(
            width, [(key, width - 1, run_length(rng, p, width - 1)) for key, p in probs.items()]
        )


@pytest.mark.parametrize("tau", [1.0, 1.5, 2.47, 6.0, 8.0])
def test_acceptance_from_tau_inverts_the_geometric_sum(tau: float) -> None:
    prob = acceptance_from_tau(tau, BLOCK)
    assert sum(prob**k for k in range(BLOCK)) == pytest.approx(tau, abs=1e-6)


def test_acceptance_from_tau_cuts_what_can_not_be() -> None:
    assert acceptance_from_tau(0.5, BLOCK) == 0.0
    assert acceptance_from_tau(3.0, 1) == 0.0
    assert acceptance_from_tau(30.0, BLOCK) == pytest.approx(1.0)


def test_nothing_observed_gives_the_prior() -> None:
    estimate = AcceptanceEstimate(4, prior=(0.8, 0.5))
    assert estimate.survival("new", 3) == pytest.approx((0.8, 0.8 * 0.5), abs=0.15)
    assert len(estimate.survival("new", 4)) == 3
    assert AcceptanceEstimate(1).survival("new", 1) == ()


def test_estimate_finds_constant_acceptance() -> None:
    estimate = AcceptanceEstimate(BLOCK)
    feed(estimate, {"a": 0.8}, 400)
    for k, survival in enumerate(estimate.survival("a", BLOCK), start=1):
        assert survival == pytest.approx(0.8**k, abs=0.1)


def test_zero_acceptance_is_believed_after_few_steps() -> None:
    estimate = AcceptanceEstimate(BLOCK, prior=(0.8,) * 7)
    feed(estimate, {"a": 0.0}, 20)
    assert estimate.survival("a", BLOCK)[0] < 0.15
    assert estimate.survival("another", BLOCK)[0] < 0.25


def test_requests_are_told_apart_and_a_new_one_starts_from_the_pool() -> None:
    estimate = AcceptanceEstimate(BLOCK)
    feed(estimate, {"easy": 0.9, "hard": 0.1}, 40)
    easy, hard = estimate.survival("easy", BLOCK)[0], estimate.survival("hard", BLOCK)[0]
    assert hard < 0.3 < estimate.survival("new", BLOCK)[0] < 0.8 < easy


def test_narrow_draft_that_is_worse_does_not_spoil_the_wide_one() -> None:
    estimate = AcceptanceEstimate(BLOCK)
    for num_steps in range(5, 25):
        feed(estimate, {"a": 0.9}, num_steps)
        feed(estimate, {"a": 0.4}, num_steps, width=3)
    assert estimate.conditional(BLOCK)[0] > 0.8
    assert estimate.conditional(3)[0] < 0.5


def test_only_positions_that_were_reached_count() -> None:
    estimate = AcceptanceEstimate(4, prior=(0.5, 0.9, 0.9))
    for _ in range(50):
        estimate.observe(4, [("a", 3, 0)])
    # Position 2 was never seen: it follows its prior and position 1, not its own misses.
    assert estimate.conditional(4)[0] < 0.1
    assert estimate.conditional(4)[1] == pytest.approx((0.9 + estimate.conditional(4)[0]) / 2)


def test_belief_follows_text_that_gets_easier() -> None:
    estimate = AcceptanceEstimate(BLOCK)
    feed(estimate, {"a": 0.05}, 200)
    feed(estimate, {"a": 0.95}, 60)
    assert estimate.survival("a", BLOCK)[0] > 0.7


def test_forgotten_requests_leave_no_memory() -> None:
    estimate = AcceptanceEstimate(BLOCK)
    for number in range(1000):
        estimate.observe(BLOCK, [(number, 7, 3)])
        estimate.forget(number)
    estimate.forget("never seen")
    assert estimate.num_requests == 0


@given(
    st.lists(st.tuples(st.integers(2, BLOCK), st.integers(0, 9), st.integers(0, 9)), max_size=60)
)
def test_survival_is_a_probability_that_never_rises(steps: list[tuple[int, int, int]]) -> None:
    estimate = AcceptanceEstimate(BLOCK)
    for width, num_verified, num_accepted in steps:
        estimate.observe(width, [("a", num_verified, min(num_accepted, num_verified))])
    for width in range(2, BLOCK + 1):
        survival = (1.0, *estimate.survival("a", width))
        assert len(survival) == width
        assert all(0 <= b <= a for a, b in pairwise(survival))

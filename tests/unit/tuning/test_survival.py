"""Acceptance by position and width, from taus, shares and counts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.errors import ConfigError
from blockdraft.tuning.survival import Survival


def test_tau_is_reached_by_one_rate() -> None:
    survival = Survival.of_tau(3.0, 8)
    assert survival.tau(8) == pytest.approx(3.0)
    rates = survival.conditional(8)
    assert len(set(rates)) == 1
    assert survival.conditional(3) == rates[:2]


def test_shares_become_conditional() -> None:
    survival = Survival.of_positions((0.8, 0.6, 0.3))
    assert survival.widest == 4
    assert survival.conditional(4) == pytest.approx((0.8, 0.75, 0.5))
    assert survival.at(4) == pytest.approx((0.8, 0.6, 0.3))
    assert survival.at(2) == pytest.approx((0.8,))
    assert survival.tau(4) == pytest.approx(2.7)


def test_counts_give_what_was_seen() -> None:
    survival = Survival.of_counts({4: ((10, 10, 8), (8, 6, 2))})
    assert survival.at(4) == pytest.approx((0.8, 0.6, 0.25))


def test_a_position_that_nobody_reached_takes_after_the_one_before() -> None:
    survival = Survival.of_counts({5: ((10, 10), (5, 0))})
    assert survival.conditional(5) == pytest.approx((0.5, 0.0, 0.0, 0.0))
    assert Survival.of_counts({3: ((4,), (3,))}).conditional(3) == pytest.approx((0.75, 0.75))


def test_widths_between_are_interpolated() -> None:
    survival = Survival(((2, (0.6,)), (6, (0.8, 0.4, 0.4, 0.4, 0.4))))
    assert survival.conditional(4) == pytest.approx((0.7, 0.5, 0.5))
    assert survival.conditional(8) == pytest.approx((0.8, *(0.4,) * 6))


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((), "empty"),
        ((0.5, 0.6), "more than the one before"),
        ((1.2,), "no share"),
        ((float("nan"),), "no share"),
    ],
)
def test_impossible_shares(shares: tuple[float, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Survival.of_positions(shares)


@pytest.mark.parametrize("tau", [0.9, 8.1, float("nan"), float("inf")])
def test_impossible_taus(tau: float) -> None:
    with pytest.raises(ConfigError, match="--tau"):
        Survival.of_tau(tau, 8)


def test_nothing_counted() -> None:
    with pytest.raises(ConfigError, match="no drafts were counted"):
        Survival.of_counts({})
    with pytest.raises(ConfigError, match="drafts nothing"):
        Survival.of_tau(1.0, 1)


@given(st.floats(1.0, 16.0), st.integers(2, 16))
def test_survival_never_rises(tau: float, width: int) -> None:
    shares = Survival.of_tau(tau, 16).at(width)
    assert all(0 <= right <= left <= 1 for left, right in pairwise(shares))

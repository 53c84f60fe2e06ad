"""The healing of cost tables that are wrong or stale."""

import math
import random

import pytest

from blockdraft.engine.cost_correction import CostCorrection, LiveCosts
from blockdraft.engine.costs import CostModel

MODEL = CostModel.fit(
    {1: 0.017, 8: 0.020, 16: 0.026}, {(1, 8): 0.006, (4, 8): 0.010}, overhead_seconds=0.001
)


def test_correction_heals_a_table_that_is_ten_times_off() -> None:
    rng = random.Random(0)
    correction = CostCorrection()
    for _ in range(200):
        correction.observe(8, predicted=0.02, measured=0.2 * rng.lognormvariate(0, 0.1))
    assert correction.ratio(8) == pytest.approx(10, rel=0.1)
    # A size never seen follows the others, since all were measured on the same machine.
    assert correction.ratio(1) == pytest.approx(10, rel=0.1)


def test_correction_follows_a_machine_that_turns_slow() -> None:
    correction = CostCorrection()
    for _ in range(500):
        correction.observe(8, predicted=0.02, measured=0.02)
    for _ in range(1500):
        correction.observe(8, predicted=0.02, measured=0.08)
    assert correction.ratio(8) == pytest.approx(4, rel=0.2)


def test_correction_keeps_sizes_apart() -> None:
    correction = CostCorrection()
    for _ in range(500):
        correction.observe(1, predicted=0.02, measured=0.02)
        correction.observe(32, predicted=0.02, measured=0.06)
    assert correction.ratio(1) == pytest.approx(1, abs=0.15)
    assert correction.ratio(32) == pytest.approx(3, abs=0.3)
    assert correction.ratio(1) < correction.ratio(6) < correction.ratio(32)


def test_correction_shrugs_off_one_stall() -> None:
    correction = CostCorrection()
    for _ in range(100):
        correction.observe(8, predicted=0.02, measured=0.02)
    correction.observe(8, predicted=0.02, measured=5.0)
    assert correction.ratio(8) < 1.05


@pytest.mark.parametrize("measured", [0.0, -1.0, math.inf, math.nan])
def test_correction_ignores_times_that_can_not_be(measured: float) -> None:
    correction = CostCorrection()
    correction.observe(8, predicted=0.02, measured=measured)
    assert correction.ratio(8) == 1.0


def test_live_costs_are_the_table_times_the_correction() -> None:
    live = LiveCosts(MODEL)
    assert live.verify_seconds(8) == 0.020
    for _ in range(LiveCosts.REFRESH * 8):
        live.observe_verify(8, 0.060)
        live.observe_draft(1, 8, 0.003)
    assert live.verify_seconds(8) == pytest.approx(0.060)
    assert live.draft_seconds(1, 8) == pytest.approx(0.003)
    assert live.overhead_seconds == 0.001

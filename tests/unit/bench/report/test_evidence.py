"""Noise, step costs and the crossing point, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_bench import make_document, parts, set_speedups

from blockdraft.bench.report.evidence import (
    Estimate,
    best_lane,
    crossing_point,
    drafted_lanes,
    noisy,
    step_cost,
)
from blockdraft.bench.report.reading import parse_document


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        # Halfway between 1.2 and 0.8, so at the geometric mean of the loads.
        ([(4, 1.2), (8, 0.8)], math.sqrt(32)),
        ([(1, 1.5), (2, 1.3), (4, 1.1), (8, 0.7)], 4 * 2**0.25),
        ([(1, 1.5), (2, 1.0), (4, 0.5)], 2.0),
        ([(1, 1.5), (2, 0.9), (4, 1.2), (8, 0.9)], 2 ** (5 / 6)),
        ([(1, 1.5), (8, 1.01)], None),
        ([(1, 0.9), (2, 0.8)], None),
        ([(1, 1.0)], None),
        ([], None),
    ],
)
def test_crossing_point(points: list[tuple[float, float]], expected: float | None) -> None:
    found = crossing_point(points)
    assert found == (None if expected is None else pytest.approx(expected))


@given(
    st.floats(1.0, 4.0),
    st.floats(0.1, 0.99),
    st.floats(1.0, 64.0),
    st.floats(1.1, 8.0),
)
def test_the_crossing_lies_between_its_loads(
    before: float, after: float, load: float, factor: float
) -> None:
    found = crossing_point([(load, before), (load * factor, after)])
    assert found is not None
    assert load * (1 - 1e-9) <= found <= load * factor * (1 + 1e-9)


def test_noise_of_repeats() -> None:
    assert noisy(1.5, (1.4, 1.6), 3, 0.1) == Estimate(1.5, 1.4, 1.6)
    assert noisy(1.5, (1.49, 1.6), 2, 0.1) == pytest.approx((1.5, 1.47, 1.6))
    assert noisy(1.5, (1.5, 1.5), 1, 0.05) == pytest.approx((1.5, 1.425, 1.575))
    assert noisy(1.5, (1.5, 1.5), 1, 0.1) == pytest.approx((1.5, 1.35, 1.65))
    # One ratio only, though the lane was measured twice: plain decoding was broken off.
    assert noisy(1.5, (1.5, 1.5), 2, 0.05) == pytest.approx((1.5, 1.425, 1.575))
    assert noisy(1.5, None, 4, 0.05) == pytest.approx((1.5, 1.425, 1.575))


def test_sides() -> None:
    estimate = Estimate(1.5, 1.2, 1.8)
    assert estimate.side_of(1.1) == "above"
    assert estimate.side_of(1.2) == estimate.side_of(1.8) == "covers"
    assert estimate.side_of(1.9) == "below"


def test_step_costs_pool_the_steps_of_all_repeats() -> None:
    """100 steps of 1 s and 300 of 2 s against plain steps of 1 s: 1.75."""
    raw = make_document((1,), ("plain", "dflash auto"))
    plain, auto = parts(raw, "levels")
    plain["step_time"] = {
        "steps": 10,
        "draft_seconds": 0.0,
        "verify_seconds": 9.0,
        "other_seconds": 1.0,
    }
    auto["step_time"] = {
        "steps": 100,
        "draft_seconds": 20.0,
        "verify_seconds": 70.0,
        "other_seconds": 10.0,
    }
    again = auto | {
        "repeat": 1,
        "step_time": {
            "steps": 300,
            "draft_seconds": 100.0,
            "verify_seconds": 450.0,
            "other_seconds": 50.0,
        },
    }
    raw["levels"] = [plain, auto, again]
    document = parse_document(raw)
    cost = step_cost(document, document.lanes[1], document.loads[0])
    assert cost is not None
    assert (cost.ratio, cost.source) == (pytest.approx(1.75), "step times")


def test_step_times_of_arrivals_by_rate_are_not_compared() -> None:
    """Plain steps hold more requests there, so their ratio is no price of drafting."""
    raw = make_document((1,), ("plain", "dflash fixed:8"))
    for one in parts(raw, "figures") + parts(raw, "levels"):
        one["arrival"] = {"concurrency": None, "rate": 2.0}
    document = parse_document(raw)
    cost = step_cost(document, document.lanes[1], document.loads[0])
    assert cost is not None and cost.source == "costs of passes"


def test_in_a_part_of_a_run_the_lane_with_more_loads_goes_first() -> None:
    """One that was measured alone, where drafting gains most, must not win by that."""
    raw = make_document()
    raw["figures"] = [
        one
        for one in parts(raw, "figures")
        if one["lane"] != "dflash fixed:4" or one["arrival"] == {"concurrency": 1, "rate": None}
    ]
    set_speedups(raw, "dflash fixed:4", 9.0)
    document = parse_document(raw)
    best = best_lane(document, drafted_lanes(document), document.loads)
    assert best is not None and best.name == "dflash auto"


def test_the_best_lane_is_best_over_all_loads() -> None:
    document = parse_document(make_document())
    lanes = drafted_lanes(document)
    best = best_lane(document, lanes, document.loads)
    assert best is not None and best.name == "dflash auto"
    assert best_lane(document, [], document.loads) is None
    assert best_lane(document, lanes, []) is None

"""Cost tables against hand computations."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.engine.costs import CostCurve, CostModel, nominal_costs
from blockdraft.errors import ConfigError

MODEL = CostModel.fit(
    {1: 0.017, 8: 0.020, 16: 0.026, 32: 0.040, 64: 0.070},
    {(1, 8): 0.006, (4, 8): 0.010},
    overhead_seconds=0.001,
)
SECONDS = st.floats(1e-6, 10.0)


def test_curve_is_linear_between_points_and_beyond_them() -> None:
    assert MODEL.verify_seconds(0) == 0.0
    assert MODEL.verify_seconds(1) == 0.017
    assert MODEL.verify_seconds(12) == pytest.approx(0.023)
    assert MODEL.verify_seconds(96) == pytest.approx(0.070 + 32 * 0.030 / 32)
    assert MODEL.draft_seconds(0, 8) == 0.0
    assert MODEL.draft_seconds(2, 8) == pytest.approx(0.006 + 0.004 / 3)


def test_pass_that_measured_faster_than_a_narrower_one_is_pooled_with_it() -> None:
    curve = CostCurve.fit([(1, 1.0), (2, 5.0), (3, 3.0), (4, 9.0)])
    assert curve.points == ((1, 1.0), (2, 4.0), (3, 4.0), (4, 9.0))


def test_beyond_a_flat_end_the_mean_slope_goes_on() -> None:
    assert CostCurve.fit([(1, 1.0), (5, 5.0), (9, 5.0)]).at(17) == pytest.approx(9.0)


def test_one_point_is_constant_below_and_proportional_above() -> None:
    curve = CostCurve.fit([(4, 2.0)])
    assert (curve.at(1), curve.at(4), curve.at(8)) == (2.0, 2.0, 4.0)


@given(st.dictionaries(st.integers(1, 200), SECONDS, min_size=1, max_size=8))
def test_curves_never_fall(points: dict[int, float]) -> None:
    curve = CostCurve.fit(points.items())
    times = [curve.at(size) for size in range(1, 260)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(times))
    assert all(time > 0 for time in times)


def test_draft_width_between_measured_ones_is_interpolated() -> None:
    model = CostModel.fit({1: 1.0}, {(1, 4): 2.0, (1, 8): 4.0})
    assert model.draft_seconds(1, 6) == pytest.approx(3.0)
    assert model.draft_seconds(1, 4) == 2.0


def test_unmeasured_draft_width_costs_as_much_as_equal_rows() -> None:
    model = CostModel.fit({1: 1.0}, {(1, 8): 1.0, (4, 8): 2.0})
    assert model.draft_seconds(4, 4) == pytest.approx(1 + 1 / 3)
    by_rows = CostModel.fit({1: 1.0}, {(8, 1): 1.0, (32, 1): 2.0})
    assert by_rows.draft_seconds(4, 8) == 2.0


def test_without_a_drafter_drafting_is_never_worth_it() -> None:
    assert CostModel.fit({1: 1.0}, {}).draft_seconds(1, 8) == math.inf


def test_json_round_trip() -> None:
    assert CostModel.from_json(MODEL.to_json()) == MODEL
    assert nominal_costs() == CostModel.from_json(nominal_costs().to_json())


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        '{"format": 2, "verify": [[1, 1.0]], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": 3, "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[1]], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[1, true]], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[1.5, 1.0]], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[0, 1.0]], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[1, NaN]], "draft": [], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[1, 1.0]], "draft": [[1, 0, 1.0]], "overhead_seconds": 0}',
        '{"format": 1, "verify": [[1, 1.0]], "draft": [], "overhead_seconds": -1}',
    ],
)
def test_damaged_tables_are_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ConfigError, match="cost table"):
        CostModel.from_json(text)

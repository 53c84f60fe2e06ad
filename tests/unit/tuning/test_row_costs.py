"""Passes by requests and rows: what stands between and beyond the measured ones."""

import pytest

from blockdraft.tuning.passes import PassTable, at_one_pace
from blockdraft.tuning.row_costs import RowCosts

COSTS = RowCosts.of_shapes(
    {(1, 1): 1.0, (1, 3): 1.6, (1, 4): 1.4, (1, 16): 3.8, (4, 4): 2.0, (4, 16): 4.4}
)


def test_measured_passes_stay_as_they_are_also_where_they_fall() -> None:
    for requests, points in COSTS.curves:
        for rows, seconds in points:
            assert COSTS.at(requests, rows) == pytest.approx(seconds)
    assert COSTS.at(1, 3.5) == pytest.approx(1.5)


def test_between_requests_as_many_rows_of_each_count() -> None:
    assert COSTS.at(2, 2) == pytest.approx(1.0 + (2.0 - 1.0) / 3)
    assert COSTS.at(3, 12) == pytest.approx(1.4 + (4.4 - 1.4) * 2 / 3)


def test_shorter_curves_go_on_as_the_longest_does() -> None:
    costs = RowCosts.of_shapes({(1, 1): 1.0, (1, 8): 2.0, (1, 16): 4.0, (4, 4): 3.0, (4, 8): 3.5})
    assert costs.at(4, 16) == pytest.approx(5.5)
    assert costs.at(1, 18) == pytest.approx(4.5)
    assert costs.prolonged(0.1).at(1, 26) == pytest.approx(5.0)


def test_by_rows_alone_it_never_falls() -> None:
    curve = COSTS.for_requests(1)
    assert curve.at(3) == pytest.approx(1.5)
    assert curve.at(4) == pytest.approx(1.5)


def test_a_slow_round_does_not_move_what_passes_are_to_each_other() -> None:
    """The second round ran on a machine that had half the pace; one pass of the third stalled."""
    rounds = [{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 4.0}, {"a": 1.0, "b": 2.0}]
    found = at_one_pace(rounds)
    assert found == pytest.approx({"a": 1.0, "b": 2.0})


def test_a_table_comes_back_from_its_text() -> None:
    table = PassTable(verify={(1, 1): 0.02, (2, 4): 0.03}, draft={(1, 2): 0.004})
    assert PassTable.of_json(table.to_json()) == table

"""The order of rows and the held-out part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.data.split import num_heldout, shuffled, split
from blockdraft.errors import ConfigError

IDS = [f"row-{number}" for number in range(200)]


def test_the_order_depends_on_the_seed_alone() -> None:
    rows = list(range(200))
    order = shuffled(IDS, rows, seed=0)
    assert sorted(order) == rows and order != rows
    assert shuffled(IDS, rows[::-1], seed=0) == order
    assert shuffled(IDS, rows, seed=1) != order


def test_other_rows_change_no_order() -> None:
    some = list(range(0, 200, 3))
    order = shuffled(IDS, list(range(200)), seed=0)
    assert shuffled(IDS, some, seed=0) == [row for row in order if row % 3 == 0]


@pytest.mark.parametrize(
    ("holdout", "rows", "wanted"), [(5, 20, 5), (0.1, 20, 2), (0.99, 200, 198)]
)
def test_number_of_heldout_rows(holdout: int | float, rows: int, wanted: int) -> None:
    assert num_heldout(holdout, rows) == wanted


@pytest.mark.parametrize(("holdout", "rows"), [(20, 20), (21, 20), (0.001, 20), (0.99, 20)])
def test_a_part_may_not_be_empty(holdout: int | float, rows: int) -> None:
    with pytest.raises(ConfigError, match="leave some to train on"):
        num_heldout(holdout, rows)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=30), st.data())
def test_groups_are_never_divided(group_of: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, len(group_of) - 1))
    rows = data.draw(st.permutations(range(len(group_of))))
    parts = split(rows, group_of, wanted)
    assert len(parts.heldout) <= wanted
    assert parts.train == [row for row in rows if row in parts.train]
    assert sorted([*parts.train, *parts.heldout]) == sorted(rows)
    assert not {group_of[row] for row in parts.train} & {group_of[row] for row in parts.heldout}
    if len(set(group_of)) == len(group_of):
        assert parts.heldout == list(rows[:wanted])

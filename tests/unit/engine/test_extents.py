"""Extents against a model that writes a name into every row."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.engine.extents import Extent, Move, TokenBudget


def execute(pool: list[int | None], moves: list[Move]) -> None:
    for move in moves:
        rows = pool[move.source : move.source + move.count]
        pool[move.destination : move.destination + move.count] = rows


def test_allocation_is_first_fit_in_whole_pages() -> None:
    budget = TokenBudget(70, page_rows=16)
    assert (budget.num_rows, budget.num_free) == (64, 64)
    assert budget.allocate(1, 17) and budget.allocate(2, 16)
    assert budget.extent(1) == Extent(0, 32) and budget.extent(2) == Extent(32, 16)
    budget.free(1)
    assert budget.allocate(3, 1) and budget.extent(3) == Extent(0, 16)
    assert (budget.num_used, budget.num_free, len(budget)) == (32, 32, 2)
    assert not budget.allocate(4, 17)  # two holes of one page each
    assert not budget.allocate(4, 33)
    assert 4 not in budget
    budget.audit()


def test_more_than_needed_is_taken_only_where_it_is_free() -> None:
    budget = TokenBudget(10, page_rows=1)
    assert budget.allocate(1, 2, 4) and budget.extent(1) == Extent(0, 4)
    assert budget.allocate(2, 3, 100) and budget.extent(2) == Extent(4, 6)


def test_growth_in_place_by_a_move_or_not_at_all() -> None:
    budget = TokenBudget(16, page_rows=1)
    assert budget.allocate(1, 3) and budget.allocate(2, 3)
    assert budget.grow(1, 3, used_rows=3) == []
    assert budget.grow(2, 4, used_rows=3) == [] and budget.extent(2) == Extent(3, 6)
    assert budget.grow(1, 4, used_rows=2) == [Move(0, 9, 2)] and budget.extent(1) == Extent(9, 6)
    assert budget.allocate(3, 3) and budget.extent(3) == Extent(0, 3)
    assert budget.grow(3, 4, used_rows=3) is None and budget.extent(3) == Extent(0, 3)
    budget.shrink(2, 4)  # two free rows behind it, one more at the end of the pool
    assert budget.grow(3, 6, used_rows=3) is None
    assert budget.grow(2, 5, used_rows=4, wanted=5) == [] and budget.extent(2) == Extent(3, 5)
    budget.audit()


def test_an_empty_extent_moves_without_a_copy() -> None:
    budget = TokenBudget(8, page_rows=1)
    assert budget.allocate(1, 1) and budget.allocate(2, 1)
    assert budget.grow(1, 2, used_rows=0) == [] and budget.extent(1) == Extent(2, 2)


def test_a_renamed_extent_keeps_its_rows() -> None:
    budget = TokenBudget(8, page_rows=2)
    assert budget.allocate(1, 3)
    budget.rename(1, 9)
    assert budget.extent(9) == Extent(0, 4) and 1 not in budget
    with pytest.raises(KeyError):
        budget.free(1)


def test_repack_moves_left_and_right_safely() -> None:
    budget = TokenBudget(12, page_rows=1)
    for key, rows in ((0, 1), (1, 3), (2, 2), (3, 3), (4, 3)):
        assert budget.allocate(key, rows)
    budget.free(0)
    pool: list[int | None] = [None, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, None]
    moves = budget.repack({1: 3, 2: 5, 3: 3, 4: 1}, {1: 3, 2: 2, 3: 2, 4: 1})
    execute(pool, moves)
    assert pool[:3] == [1, 1, 1] and pool[3:5] == [2, 2] and pool[8:10] == [3, 3] and pool[11] == 4
    budget.audit()


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(("allocate", "grow", "free", "shrink", "repack")), st.integers(0, 8)),
    max_size=60,
)


@given(st.integers(1, 40), st.integers(1, 4), OPERATIONS, st.integers(0, 9999))
def test_no_row_is_lost_or_shared(
    num_rows: int, page_rows: int, operations: list[tuple[str, int]], seed: int
) -> None:
    """B28: whatever is done, each extent still holds its own rows and the counts add up."""
    choose = random.Random(seed)
    budget = TokenBudget(num_rows, page_rows)
    pool: list[int | None] = [None] * num_rows
    used: dict[int, int] = {}
    for operation, key in operations:
        moves: list[Move] | None = []
        rows = choose.randint(1, 12)
        if operation == "allocate" and key not in used:
            if budget.allocate(key, rows, choose.choice((None, 2 * rows))):
                used[key] = rows
        elif operation == "repack" and used:
            sizes = {k: choose.randint(max(1, n), max(1, n) + 3) for k, n in used.items()}
            if sum(budget.whole_pages(size) for size in sizes.values()) <= budget.num_rows:
                moves = budget.repack(sizes, used)
        elif key in used:
            if operation == "grow":
                moves = budget.grow(key, rows, used_rows=used[key])
            elif operation == "shrink":
                used[key] = min(rows, used[key])
                budget.shrink(key, rows)
            else:
                budget.free(key)
                del used[key]
        execute(pool, moves or [])
        budget.audit()
        assert budget.num_free + budget.num_used == budget.num_rows
        for k, n in used.items():
            extent = budget.extent(k)
            if operation != "allocate" or k != key:
                assert pool[extent.base : extent.base + n] == [k] * n
            pool[extent.base : extent.end] = [k] * extent.capacity
    for key in used:
        budget.free(key)
    assert budget.num_free == budget.num_rows

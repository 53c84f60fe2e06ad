"""The prefix index against a scan of everything it holds."""

import time

from hypothesis import given
from hypothesis import strategies as st

from blockdraft.engine.prefixes import PrefixIndex, PrefixMatch

IDS = st.lists(st.integers(0, 1), max_size=14)


def common_len(left: list[int], right: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


@given(
    st.integers(1, 4),
    st.lists(st.tuples(IDS, st.booleans()), max_size=12),
    IDS,
    st.none() | st.integers(0, 11),
)
def test_the_longest_match_is_that_of_a_scan(
    page_rows: int, contents: list[tuple[list[int], bool]], wanted: list[int], skip: int | None
) -> None:
    index = PrefixIndex(page_rows)
    held: dict[int, list[int]] = {}
    for key, (ids, stays) in enumerate(contents):
        for length in range(0, len(ids) + 1, 3):
            index.extend(key, ids, length)
        index.extend(key, ids, len(ids))
        held[key] = ids
        if not stays:
            index.remove(key // 2)
            held.pop(key // 2, None)
        index.audit()
    best = max((common_len(i, wanted) for k, i in held.items() if k != skip), default=0)
    match = index.longest(wanted, skip=skip)
    assert (0 if match is None else match.length) == (best if best >= page_rows else 0)
    if match is not None:
        assert match.key != skip and common_len(held[match.key], wanted) == match.length
    assert len(index) == len(held)
    assert all(index.length(key) == len(ids) for key, ids in held.items())
    assert index.length(99) == 0
    for key in held:
        index.remove(key)
    index.audit()


def test_less_than_a_page_is_no_match() -> None:
    index = PrefixIndex(4)
    index.extend(1, [1, 2, 3, 4, 5], 5)
    assert index.longest([1, 2, 3]) is None
    assert index.longest([1, 2, 3, 4]) == PrefixMatch(1, 4)
    assert index.longest([1, 2, 3, 4, 5, 6]) == PrefixMatch(1, 5)


def test_many_long_contents_with_one_start_are_no_burden() -> None:
    index = PrefixIndex(16)
    system = list(range(4000))
    for key in range(100):
        index.extend(key, [*system, key, *system], 4001)
    started = time.process_time()
    assert index.longest([*system, 77, 5]) == PrefixMatch(77, 4001)
    assert time.process_time() - started < 0.5

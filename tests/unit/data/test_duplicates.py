"""Near duplicates against the definition, applied to every pair."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from blockdraft.data.duplicates import (
    KnownTexts,
    ShingleTable,
    find_near,
    group_near,
    overlap,
    share_most,
)
from blockdraft.data.words import shingles_of

# Few different shingles, so that sets overlap in all ways.
SETS = st.lists(st.sets(st.integers(-3, 8), min_size=1, max_size=9), max_size=14)
WORDS = st.lists(st.sampled_from("abc"), max_size=24)
TEXTS = st.lists(WORDS, max_size=10)


def table_of(sets: Sequence[set[int]]) -> ShingleTable:
    table = ShingleTable()
    for shingles in sets:
        table.append(shingles)
    table.close()
    return table


def near_by_force(sets: Sequence[set[int]]) -> dict[int, int]:
    kept: list[int] = []
    repeated: dict[int, int] = {}
    for row, shingles in enumerate(sets):
        hits = [other for other in kept if share_most(shingles, sets[other])]
        if hits:
            repeated[row] = hits[0]
        else:
            kept.append(row)
    return repeated


def groups_by_force(sets: Sequence[set[int]]) -> list[int]:
    """Labels that spread to near duplicates until nothing changes."""
    labels = list(range(len(sets)))
    changed = True
    while changed:
        changed = False
        for a in range(len(sets)):
            for b in range(len(sets)):
                if labels[b] < labels[a] and share_most(sets[a], sets[b]):
                    labels[a] = labels[b]
                    changed = True
    return labels


def test_more_than_half() -> None:
    small, large = {1, 2, 3}, {2, 3, 4, 5, 6, 7}
    assert overlap(small, large) and not share_most(small, large)
    assert not overlap({1, 2, 3, 4}, {3, 4, 5, 6})
    assert share_most({1, 2, 3, 4}, {2, 3, 4, 5})
    assert not overlap({1}, {2})


@given(SETS)
def test_dropped_rows_are_those_of_the_definition(sets: list[set[int]]) -> None:
    assert find_near(table_of(sets)) == near_by_force(sets)


@given(TEXTS)
def test_the_same_on_texts(texts: list[list[str]]) -> None:
    sets = [shingles_of(words) for words in texts]
    assert find_near(table_of(sets)) == near_by_force(sets)


@given(SETS)
def test_groups_are_those_of_the_definition(sets: list[set[int]]) -> None:
    assert group_near(table_of(sets)) == groups_by_force(sets)


@given(SETS, st.sets(st.integers(-3, 8), min_size=1, max_size=9))
def test_known_texts_are_found(sets: list[set[int]], asked: set[int]) -> None:
    hits = [row for row, shingles in enumerate(sets) if overlap(asked, shingles)]
    found = KnownTexts([list(shingles) for shingles in sets]).find(list(asked))
    assert found == (hits[0] if hits else None)


def with_instruction(num_rows: int) -> list[set[int]]:
    """Rows that share 5 shingles of an instruction, beside 1 to 7 of their own."""
    return [{*range(5), *range(100 + 7 * n, 101 + 7 * n + n % 7)} for n in range(num_rows)]


def test_an_instruction_in_every_row_makes_no_duplicates() -> None:
    assert find_near(table_of(with_instruction(3_000))) == {}
    assert find_near(table_of(with_instruction(6))) == near_by_force(with_instruction(6)) != {}


def test_an_instruction_in_every_known_text_makes_no_repetition() -> None:
    """Prompts in the form of an evaluation set are no leaks, however short its prompts are."""
    sets = with_instruction(50)
    known = KnownTexts([list(shingles) for shingles in sets])
    assert known.find([*range(5), -1]) is None
    assert [known.find(list(shingles)) for shingles in sets] == list(range(50))


def test_a_text_that_is_known_many_times_is_still_found() -> None:
    assert KnownTexts([[1, 2, 3]] * 100).find([1, 2, 4]) == 0


def test_rows_of_common_phrases_only_are_compared_by_them() -> None:
    sets = [set(range(5))] * 50 + [{*range(5), 9}]
    assert sorted(find_near(table_of(sets))) == list(range(1, 50))


def test_nothing() -> None:
    assert find_near(table_of([])) == {}
    assert KnownTexts([]).find([1]) is None

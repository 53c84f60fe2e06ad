"""Tests of how another engine's answers are laid beside ours: partings, prefixes, pooled counts."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_answers import (
    EngineAnswer,
    Prefix,
    common_prefixes,
    first_difference,
    partings,
    pooled_tau,
    tokens_per_second,
    within,
)


def answer(*accepted: int, num_tokens: int | None = None, seconds: float = 1.0) -> EngineAnswer:
    """An answer of ascending ids, as long as its verifications make it unless it was cut."""
    length = 1 + sum(count + 1 for count in accepted) if num_tokens is None else num_tokens
    return EngineAnswer(token_ids=tuple(range(length)), seconds=seconds, accepted=accepted)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 5, 3], 1),
        ([1, 2], [1, 2, 3], 2),
        ([], [7], 0),
        ([], [], None),
    ],
)
def test_first_difference(left: list[int], right: list[int], expected: int | None) -> None:
    assert first_difference(left, right) == expected
    assert first_difference(right, left) == expected


def test_within_counts_whole_verifications_only() -> None:
    # Token 0 is the prefill's; the verifications cover tokens 1-3, 4 and 5-9.
    accepted = (2, 0, 4)
    assert within(accepted, 10) == Prefix(3, 6)
    assert within(accepted, 9) == Prefix(2, 2)
    assert within(accepted, 4) == Prefix(1, 2)
    assert within(accepted, 3) == Prefix(0, 0)
    assert within((), 1) == Prefix(0, 0)


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(0, 100))
def test_within_never_leaves_the_prefix(accepted: list[int], num_tokens: int) -> None:
    steps, total = within(accepted, num_tokens)
    assert total == sum(accepted[:steps])
    assert steps == 0 or 1 + total + steps <= num_tokens
    if steps < len(accepted):
        assert 1 + total + steps + accepted[steps] + 1 > num_tokens


def test_steps_come_from_the_list_or_from_the_sum() -> None:
    assert answer(3, 1).steps == 2
    told = EngineAnswer(token_ids=tuple(range(8)), seconds=1.0, num_accepted=4)
    assert told.steps == 3
    assert EngineAnswer(token_ids=(1, 2), seconds=1.0).steps is None


def test_pooled_figures() -> None:
    answers = [answer(3, 1, seconds=1.0), answer(0, seconds=3.0)]
    assert pooled_tau(answers) == 7 / 3
    assert tokens_per_second(answers) == 9 / 4
    assert pooled_tau([answer(), EngineAnswer(token_ids=(1,), seconds=1.0)]) is None
    assert pooled_tau([answer()]) is None


def test_partings_name_place_and_margin() -> None:
    seen: list[tuple[Sequence[int], Sequence[int]]] = []

    def margin(prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> float:
        seen.append((prompt_ids, answer_ids))
        return 0.25

    same = EngineAnswer(token_ids=(1, 2), seconds=1.0)
    other = EngineAnswer(token_ids=(1, 9), seconds=1.0)
    found = partings(["a", "b"], [(5,), (6,)], [same, same], [same, other], margin)
    assert [(p.prompt, p.position, p.margin) for p in found] == [("b", 1, 0.25)]
    assert seen == [((6,), (1,))]


def test_common_prefixes_end_where_answers_part() -> None:
    ours = [answer(2, 0, 4), answer(1)]
    parted = EngineAnswer(token_ids=(0, 1, 2, 3, 99, 5), seconds=1.0, accepted=(2, 1))
    # The second is cut by the limit inside its last verification, as other engines report it.
    theirs = [parted, answer(1, 3, num_tokens=3)]
    assert common_prefixes(ours, theirs, 9) == (Prefix(2, 3), Prefix(2, 3))
    assert common_prefixes(ours, theirs, 3) == (Prefix(1, 1), Prefix(1, 1))
    assert common_prefixes(ours, [EngineAnswer(token_ids=(0,), seconds=1.0)] * 2, 9) is None

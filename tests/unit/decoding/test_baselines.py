"""Prompt lookup against a brute-force search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding import NoDrafter, PromptLookupDrafter
from blockdraft.decoding.interfaces import DraftIds
from blockdraft.errors import ConfigError


def search(history: list[int], max_ngram: int, count: int) -> tuple[int, ...]:
    """What followed the latest earlier occurrence of the longest possible n-gram."""
    for length in range(min(max_ngram, len(history)), 0, -1):
        gram = history[-length:]
        for end in range(len(history) - 1, length - 1, -1):
            if history[end - length : end] == gram:
                return tuple(history[end : end + count])
    return ()


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 2),
    st.integers(1, 6),
    st.integers(2, 9),
)
def test_lookup_equals_a_brute_force_search(
    parts: list[list[int]], anchor: int, max_ngram: int, width: int
) -> None:
    state = PromptLookupDrafter(9, max_ngram).open()
    for part in parts:
        state.extend(part, None)
    history = [*(i for part in parts for i in part), anchor]
    assert state.context_len == len(history) - 1
    assert state.propose(anchor, width) == DraftIds(search(history, max_ngram, width - 1))
    assert state.propose(anchor, width) == DraftIds(search(history, max_ngram, width - 1))


def test_no_drafter_counts_and_proposes_nothing() -> None:
    state = NoDrafter().open()
    state.extend([1, 2, 3], None)
    assert (state.context_len, state.propose(4, 8)) == (3, DraftIds(()))


@pytest.mark.parametrize(("block_size", "max_ngram"), [(1, 3), (8, 0)])
def test_useless_settings_are_refused(block_size: int, max_ngram: int) -> None:
    with pytest.raises(ConfigError, match="prompt lookup"):
        PromptLookupDrafter(block_size, max_ngram)

"""Cutting a cache back, on every transformers version that is claimed."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.target.hf_call import ModelCall
from blockdraft.target.rollback import KVCache, cut_to, keep_rows
from blockdraft.testing.tiny import tiny_model

CALL = ModelCall(tiny_model("qwen3"))


def filled(num_rows: int) -> KVCache:
    cache = CALL.new_cache()
    CALL(torch.arange(1, num_rows + 1), cache)
    return cache


def contents(cache: KVCache) -> list[tuple[Tensor, Tensor]]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def assert_rows(cache: KVCache, full: KVCache, rows: Sequence[int]) -> None:
    assert cache.get_seq_length() == len(rows)
    assert len(contents(cache)) == len(contents(full)) == 3
    for (keys, values), (all_keys, all_values) in zip(contents(cache), contents(full), strict=True):
        assert torch.equal(keys, all_keys[:, :, list(rows)])
        assert torch.equal(values, all_values[:, :, list(rows)])


@pytest.mark.parametrize("num_dropped", [0, 1, 5, 9])
def test_cut_to_leaves_the_beginning(num_dropped: int) -> None:
    """By a count, never a length: 5.17 takes both spellings, 5.24 this one only."""
    cache = filled(10)
    cut_to(cache, 10 - num_dropped)
    assert_rows(cache, filled(10), range(10 - num_dropped))


@given(
    context_len=st.integers(0, 5),
    rows=st.lists(st.integers(0, 4), unique=True).map(sorted),
)
def test_keep_rows_is_a_gather(context_len: int, rows: list[int]) -> None:
    cache = filled(context_len + 5)
    keep_rows(cache, context_len, rows)
    kept = [*range(context_len), *(context_len + row for row in rows)]
    assert_rows(cache, filled(context_len + 5), kept)


def test_a_cut_cache_grows_on_like_one_that_was_never_longer() -> None:
    cache = filled(10)
    cut_to(cache, 6)
    logits = CALL(torch.tensor([70, 71]), cache)
    fresh = CALL.new_cache()
    CALL(torch.arange(1, 7), fresh)
    torch.testing.assert_close(logits, CALL(torch.tensor([70, 71]), fresh))

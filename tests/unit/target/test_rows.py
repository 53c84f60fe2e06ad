"""Which ids may be fed, and who sees whom in a tree."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import RequestError
from blockdraft.target.rows import (
    chain_parents,
    check_fed,
    check_path,
    depths,
    is_chain,
    path_to,
    resolve_parents,
    visible,
)

SPEC = TargetSpec(name="toy", vocab_size=8, hidden_size=4, num_layers=2, max_context_len=6)

trees = st.integers(1, 10).flatmap(
    lambda num_rows: st.tuples(*(st.integers(-1, row - 1) for row in range(num_rows)))
)


@pytest.mark.parametrize("token_id", [-1, 8, 10**6])
def test_ids_outside_the_vocabulary_are_refused_r07(token_id: int) -> None:
    with pytest.raises(RequestError, match="outside the vocabulary"):
        check_fed(torch.tensor([1, token_id, 2]), 0, SPEC)


def test_no_ids_and_too_many_are_refused() -> None:
    with pytest.raises(RequestError, match="empty prompt"):
        check_fed(torch.tensor([], dtype=torch.long), 0, SPEC)
    check_fed(torch.tensor([7, 0]), 4, SPEC)
    with pytest.raises(RequestError, match="exceed the context"):
        check_fed(torch.tensor([7, 0, 1]), 4, SPEC)


@given(trees)
def test_mask_equals_walking_up_the_tree(parents: tuple[int, ...]) -> None:
    mask = visible(parents, context_len=3)
    for row in range(len(parents)):
        ancestors: set[int] = set()
        at = row
        while at != -1:
            ancestors.add(at)
            at = parents[at]
        assert mask[row, :3].all()
        seen = {int(key) for key in mask[row, 3:].nonzero()}
        assert seen == ancestors
        assert depths(parents)[row] == len(ancestors) - 1
        check_path(path_to(row, parents), parents)


def test_a_chain_is_the_tree_where_each_row_follows_the_last() -> None:
    assert resolve_parents(3, None) == (-1, 0, 1) == chain_parents(3)
    assert is_chain((-1, 0, 1))
    assert not is_chain((-1, -1))
    assert torch.equal(visible(chain_parents(4), 0), torch.ones(4, 4).tril().bool())


@pytest.mark.parametrize("parents", [(-1,), (-1, 1), (-2, 0), (0, 0)])
def test_parents_that_are_no_tree_are_our_own_mistake(parents: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        resolve_parents(2, parents)


@pytest.mark.parametrize("rows", [(1,), (0, 2), (0, 1, 2), (3,), (0, 0)])
def test_commit_takes_paths_only(rows: tuple[int, ...]) -> None:
    check_path((0, 1), (-1, 0, -1))
    with pytest.raises(AssertionError):
        check_path(rows, (-1, 0, -1))

"""The drafter's contexts: nothing is lost, nothing taken in twice, and what waits is bounded."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding import Draft
from blockdraft.engine.context import DrafterContexts
from blockdraft.engine.extents import Move
from blockdraft.engine.features import MOST_WAITING, ContextBacklog
from blockdraft.engine.sides import DraftRequest, Extension


class Recorder:
    """A `DraftSide` that keeps what it is told; raises while `fails` is set."""

    can_copy = True
    block_size = 4
    taps = (0,)
    bytes_per_token = 0

    def __init__(self) -> None:
        self.ids: dict[int, list[int]] = {}
        self.features: dict[int, list[float]] = {}
        self.num_calls = 0
        self.forgotten: list[int] = []
        self.fails = False

    def move(self, moves: Sequence[Move]) -> None:
        pass

    def extend(self, extensions: Sequence[Extension]) -> None:
        self.num_calls += bool(extensions)
        if self.fails:
            raise RuntimeError("no")
        for extension in extensions:
            ids = self.ids.setdefault(extension.key, [])
            assert extension.start == len(ids) and extension.base == 100 * extension.key
            ids += extension.ids
            assert extension.features is not None
            rows = self.features.setdefault(extension.key, [])
            rows += [float(value) for value in extension.features[:, 0]]

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        raise NotImplementedError

    def forget(self, key: int) -> None:
        self.forgotten.append(key)


def base_of(key: int) -> int:
    return 100 * key


def features_of(ids: Sequence[int]) -> torch.Tensor:
    return torch.tensor([[float(token_id)] for token_id in ids])


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans(), st.booleans()), max_size=40
    )
)
def test_every_token_is_handed_over_once_and_in_order(
    steps: list[tuple[int, int, bool, bool]],
) -> None:
    """Random adds, catch-ups and requests that end and come again under another key."""
    side = Recorder()
    contexts = DrafterContexts(side)
    known: dict[int, list[int]] = {}
    number = 0
    for slot, count, catches_up, ends in steps:
        key = slot
        if key not in known:
            contexts.open(key, 0)
            known[key] = []
            side.ids.pop(key, None)
            side.features.pop(key, None)
        ids = tuple(range(number, number + count))
        number += count
        if ids:
            contexts.add(key, ids, features_of(ids))
        known[key] += ids
        if catches_up:
            waiting = sum(len(known[k]) - contexts.complete(k) for k in known)
            assert contexts.catch_up(list(known), base_of) == waiting
            for k, all_ids in known.items():
                assert side.ids.get(k, []) == all_ids
                assert side.features.get(k, []) == [float(i) for i in all_ids]
                assert contexts.complete(k) == len(all_ids)
        if ends:
            contexts.forget(key)
            del known[key]


def test_a_reused_prefix_counts_as_complete() -> None:
    side = Recorder()
    side.ids[1] = [0] * 7
    contexts = DrafterContexts(side)
    contexts.open(1, 7)
    assert contexts.complete(1) == 7
    contexts.add(1, (5, 6), features_of((5, 6)))
    assert contexts.complete(1) == 7
    assert contexts.catch_up([1], base_of) == 2
    assert contexts.complete(1) == 9


def test_all_requests_are_taken_in_by_one_call() -> None:
    side = Recorder()
    contexts = DrafterContexts(side)
    for key in range(5):
        contexts.open(key, 0)
        contexts.add(key, (key,), features_of((key,)))
    contexts.catch_up(range(5), base_of)
    assert side.num_calls == 1
    assert contexts.catch_up(range(5), base_of) == 0


def test_after_a_failure_a_request_is_given_up_and_another_may_take_its_key() -> None:
    side = Recorder()
    contexts = DrafterContexts(side)
    for key in (1, 2):
        contexts.open(key, 0)
    contexts.add(1, (7,), features_of((7,)))
    side.fails = True
    with pytest.raises(RuntimeError, match="no"):
        contexts.catch_up([1, 2], base_of)
    side.fails = False
    assert not contexts.can_draft(1) and contexts.can_draft(2)
    assert contexts.complete(1) == 0
    contexts.add(1, (8,), features_of((8,)))
    contexts.add(2, (9,), features_of((9,)))
    assert contexts.catch_up([1, 2], base_of) == 1
    assert side.ids == {2: [9]}
    contexts.forget(1)
    contexts.open(1, 0)
    assert contexts.can_draft(1)
    assert side.forgotten == [1]


def test_what_waits_is_handed_on_when_it_reaches_its_bound() -> None:
    """R11: a request that never speculates keeps a bounded number of features."""
    side = Recorder()
    contexts = DrafterContexts(side)
    contexts.open(1, 0)
    contexts.open(2, 0)
    contexts.add(2, (0,), features_of((0,)))
    for i in range(3 * MOST_WAITING):
        contexts.add(1, (i,), features_of((i,)))
        contexts.catch_up_full((1, 2), base_of)
        assert len(side.ids.get(1, [])) >= i + 2 - MOST_WAITING
    assert side.num_calls == 3 and 2 not in side.ids


def test_a_waiting_row_does_not_keep_its_whole_pass_alive() -> None:
    """R11: one row of a pass of many costs one row of memory."""
    backlog = ContextBacklog()
    backlog.open(1, 0)
    for i in range(4):
        whole = torch.full((1000, 8), float(i))
        backlog.add(1, (i,), whole[i : i + 1])
    extension = backlog.take(1, 0)
    assert extension is not None and extension.features is not None
    assert extension.features[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    backlog.add(1, (5,), torch.zeros(1000, 8)[:1])
    one = backlog.take(1, 0)
    assert one is not None and one.features is not None
    assert one.features.untyped_storage().nbytes() <= 2 * 8 * 4
    assert backlog.take(1, 0) is None


def test_drafters_without_taps_get_ids_alone() -> None:
    backlog = ContextBacklog()
    backlog.open(3, 2)
    backlog.add(3, (1, 2), None)
    backlog.add(3, (4,), None)
    assert backlog.take(3, 50) == Extension(3, 50, 2, (1, 2, 4), None)
    assert backlog.complete(3) == 5

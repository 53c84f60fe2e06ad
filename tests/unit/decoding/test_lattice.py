"""Drafts that are paths: the greedy walk, constraints on it, and the known law of a drawn path."""

from itertools import product
from typing import cast, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding import DraftLattice, Law, SamplingParams
from blockdraft.decoding.chain import build_chain
from blockdraft.decoding.choose import Chooser
from blockdraft.decoding.interfaces import DraftLogits
from blockdraft.decoding.lattice import likeliest_path, row_after
from blockdraft.decoding.rows import Stateless
from blockdraft.errors import DrafterError
from blockdraft.testing import random_lattice

VOCAB = 9
GREEDY = SamplingParams()


def chooser_of(params: SamplingParams, seed: int = 0) -> Chooser:
    return Chooser(params, build_chain(params, (1, 2), ()), seed, VOCAB)


def scores_after(lattice: DraftLattice, slot: int, previous: int | None) -> dict[int, float]:
    """Candidates and scores of a slot, by the definition of the lattice."""
    ids = cast(list[int], lattice.candidates[slot].tolist())
    scores = lattice.first
    if previous is not None:
        rank = cast(list[int], lattice.candidates[slot - 1].tolist()).index(previous)
        scores = lattice.pairs[slot - 1, rank]
    return dict(zip(ids, cast(list[float], scores.tolist()), strict=True))


def law_of(scores: dict[int, float], temperature: float) -> Tensor:
    return torch.tensor(list(scores.values()), dtype=torch.float64).div(temperature).softmax(-1)


@given(slots=st.integers(0, 6), k=st.integers(1, VOCAB), seed=st.integers(0, 999))
def test_the_likeliest_path_goes_left_to_right(slots: int, k: int, seed: int) -> None:
    lattice = random_lattice(VOCAB, slots, k, seed=seed)
    path: list[int] = []
    for slot in range(slots):
        scores = scores_after(lattice, slot, path[-1] if path else None)
        path.append(max(scores, key=scores.__getitem__))
    assert likeliest_path(lattice) == tuple(path)
    for most in range(slots + 2):
        block = chooser_of(GREEDY).decide_draft(lattice, 0, most)
        assert block.ids == tuple(path[:most])
        assert (block.probs, block.num_slots) == (None, min(slots, most))


def test_the_argmax_law_with_a_temperature_drafts_the_same_path() -> None:
    lattice = random_lattice(VOCAB, 5, 4, seed=1)
    params = SamplingParams(temperature=0.7, top_k=3, seed=5)
    assert chooser_of(params).decide_draft(lattice, 3, 5).ids == likeliest_path(lattice)


@given(banned=st.integers(0, VOCAB - 1), seed=st.integers(0, 99))
def test_constraints_turn_the_path(banned: int, seed: int) -> None:
    """What the request forbids is not drafted, and the walk goes on from what is chosen instead."""
    lattice = random_lattice(VOCAB, 4, 3, seed=seed)
    params = SamplingParams(banned_ids=(banned,))
    path: list[int] = []
    for slot in range(4):
        scores = scores_after(lattice, slot, path[-1] if path else None)
        scores.pop(banned, None)
        path.append(max(scores, key=scores.__getitem__))
    assert chooser_of(params).decide_draft(lattice, 0, 4).ids == tuple(path)


@pytest.mark.parametrize("law", get_args(Law))
def test_a_slot_without_an_allowed_candidate_ends_the_draft(law: Law) -> None:
    """Its slots do not count as unusable: nothing is wrong with the drafter's weights."""
    lattice = random_lattice(VOCAB, 4, 2, seed=3)
    ids = cast(list[int], lattice.candidates[1].tolist())
    params = SamplingParams(temperature=1.0, banned_ids=tuple(ids), law=law, seed=0)
    block = chooser_of(params).decide_draft(lattice, 0, 4)
    assert len(block.ids) == block.num_slots <= 1


@pytest.mark.parametrize("law", get_args(Law))
def test_logits_of_a_reduced_vocabulary_end_where_nothing_is_allowed(law: Law) -> None:
    """The same for drafts of the first version that know some ids only."""
    logits = torch.full((3, VOCAB), -torch.inf, dtype=torch.float64)
    logits[:, 2:4] = 1.0
    logits[2] = torch.nan
    for banned, slots in (((2, 3), 0), ((2,), 3)):
        params = SamplingParams(temperature=1.0, banned_ids=banned, law=law, seed=0)
        block = chooser_of(params).decide_draft(DraftLogits(logits), 0, 3)
        assert (block.ids, block.num_slots) == ((3, 3)[:slots], slots), "NaN stays unusable"


def test_a_forced_token_that_is_no_candidate_is_drafted_and_ends_the_path() -> None:
    """A processor may want an id of which the lattice knows nothing."""
    lattice = random_lattice(VOCAB, 4, 2, seed=3)
    outside = next(i for i in range(VOCAB) if i not in lattice.candidates[0])

    def force(row: Tensor) -> Tensor:
        return torch.full_like(row, -torch.inf).index_fill(0, torch.tensor([outside]), 0.0)

    params = SamplingParams(processors=(lambda: Stateless(force),))
    block = chooser_of(params).decide_draft(lattice, 0, 4)
    assert (block.ids, block.num_slots) == ((outside,), 1)
    assert row_after(lattice, 1, outside, VOCAB) is None


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1.0, law="sampled", seed=1)])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_not_finite_end_the_draft(params: SamplingParams, bad: float) -> None:
    lattice = random_lattice(VOCAB, 4, 3, seed=4)
    broken = lattice._replace(pairs=lattice.pairs.index_fill(0, torch.tensor([1]), bad))
    block = chooser_of(params).decide_draft(broken, 0, 4)
    assert (len(block.ids), block.num_slots) == (2, 4)
    none = lattice._replace(first=torch.full((3,), bad, dtype=torch.float64))
    assert chooser_of(params).decide_draft(none, 0, 4).ids == ()


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=1.0, law="sampled", seed=1)])
def test_slots_without_candidates_are_not_drafted(params: SamplingParams) -> None:
    empty = DraftLattice(
        torch.empty((2, 0), dtype=torch.long), torch.empty(0), torch.empty((1, 0, 0))
    )
    block = chooser_of(params).decide_draft(empty, 0, 2)
    assert (block.ids, block.num_slots) == ((), 2)


@pytest.mark.parametrize("bad", [-1, VOCAB])
def test_candidates_outside_the_vocabulary_break_the_contract(bad: int) -> None:
    lattice = random_lattice(VOCAB, 3, 3, seed=4)
    broken = lattice._replace(candidates=lattice.candidates.index_fill(0, torch.tensor([2]), bad))
    with pytest.raises(DrafterError, match="candidates must be ids of the target"):
        chooser_of(GREEDY).decide_draft(broken, 0, 3)
    assert len(chooser_of(GREEDY).decide_draft(broken, 0, 2).ids) == 2, "a slot that is not wanted"


def test_a_drawn_path_has_the_law_that_it_says() -> None:
    """Each slot is drawn from exactly the row of `probs`: softmax of its scores at temperature, as
    the public reference does. Whole paths against products of the definition, by chi-square."""
    lattice = random_lattice(VOCAB, 2, 3, seed=6, scale=1.0)
    temperature, num_trials = 0.8, 500
    params = SamplingParams(temperature=temperature, law="sampled", seed=0)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(num_trials):
        block = chooser_of(params, seed).decide_draft(lattice, 0, 2)
        counts[block.ids] = counts.get(block.ids, 0) + 1
        assert block.probs is not None
        if seed < 20:
            for slot in range(2):
                scores = scores_after(lattice, slot, block.ids[0] if slot else None)
                kept = block.probs[slot][list(scores)]
                torch.testing.assert_close(kept, law_of(scores, temperature))
                assert float(block.probs[slot].sum()) == pytest.approx(1)
    statistic = 0.0
    firsts = scores_after(lattice, 0, None)
    top = law_of(firsts, temperature)
    for (i, first), j in product(enumerate(firsts), range(3)):
        scores = scores_after(lattice, 1, first)
        expected = num_trials * float(top[i] * law_of(scores, temperature)[j])
        seen = counts.get((first, list(scores)[j]), 0)
        statistic += abs(seen - expected) ** 2 / expected
    half = torch.tensor([(9 - 1) / 2, statistic / 2], dtype=torch.float64)
    assert float(cast(Tensor, torch.special.gammaincc(half[0], half[1]))) > 1e-4

"""The draft vocabulary: the most frequent tokens of answers, and what it covers (gate 8)."""

from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import Sample
from blockdraft.training.batches.layout import Labels
from blockdraft.training.frozen_head import FrozenHead
from blockdraft.training.loss import LossConfig
from blockdraft.training.objective import Objective
from blockdraft.training.simulate import leading_hits
from blockdraft.training.vocabulary import DraftVocabulary, choose_vocabulary, count_answer_tokens

VOCAB = 12


def sample(prompt: list[int], text: list[int]) -> Sample:
    return Sample(row=0, ids=(*prompt, *text), answer_start=len(prompt))


SAMPLES = [sample([9, 9, 9], [5, 5, 5, 7]), sample([9], [7, 2, 5, 11])]


def test_counts_answers_without_prompts() -> None:
    counts = count_answer_tokens(SAMPLES, VOCAB)
    assert counts.tolist() == [0, 0, 1, 0, 0, 4, 0, 2, 0, 0, 0, 1]


def test_chooses_the_most_frequent_ones_and_the_stop_ids() -> None:
    assert choose_vocabulary(SAMPLES, VOCAB, 2).ids.tolist() == [5, 7]
    assert choose_vocabulary(SAMPLES, VOCAB, 3).ids.tolist() == [2, 5, 7], "ties: the lower id"
    assert choose_vocabulary(SAMPLES, VOCAB, 3, always=[8, 10]).ids.tolist() == [5, 8, 10]
    assert choose_vocabulary(SAMPLES, VOCAB, VOCAB).ids.tolist() == list(range(VOCAB))


@pytest.mark.parametrize(("size", "always"), [(0, ()), (13, ()), (2, (1, 2))])
def test_sizes_that_do_not_fit(size: int, always: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"draft vocabulary of {size} tokens"):
        choose_vocabulary(SAMPLES, VOCAB, size, always=always)


def test_coverage() -> None:
    vocabulary = choose_vocabulary(SAMPLES, VOCAB, 2)
    assert vocabulary.coverage(SAMPLES) == 6 / 8
    assert vocabulary.coverage([sample([5], [2, 11])]) == 0.0
    assert vocabulary.coverage([]) == 1.0


@given(st.sets(st.integers(0, VOCAB - 1), min_size=1))
def test_round_trip(ids: set[int]) -> None:
    vocabulary = DraftVocabulary(torch.tensor(sorted(ids)), VOCAB)
    assert len(vocabulary) == len(ids)
    assert (torch.arange(len(ids)) + vocabulary.d2t).tolist() == sorted(ids)
    table = vocabulary.to_draft()
    assert table[vocabulary.ids].tolist() == list(range(len(ids)))
    assert (table >= 0).sum() == len(ids)


def test_uncovered_labels_are_misses_in_training_and_in_simulation() -> None:
    """One hot states: the head says token t for state t. Token 3 is outside the vocabulary."""
    vocabulary = DraftVocabulary(torch.tensor([1, 2, 4]), 5)
    head = FrozenHead(50 * torch.eye(5)[vocabulary.ids], None)
    objective = Objective(LossConfig(), head, 4, vocabulary=vocabulary)
    ids = torch.tensor([[1, 3, 2], [4, 2, 1]])
    labels = Labels(ids, torch.zeros_like(ids))
    states = torch.eye(5)[ids].requires_grad_()
    scores = objective(states, labels)
    assert scores.hits.tolist() == [[True, False, True], [True, True, True]]
    assert scores.scored.all(), "an uncovered label counts in the accuracy"
    scores.loss.backward()
    assert states.grad is not None
    assert states.grad[0, 1].eq(0).all(), "and teaches nothing"
    drafts = objective.draft(states.detach())
    assert set(cast("list[int]", drafts.flatten().tolist())) <= {1, 2, 4}
    assert leading_hits(drafts, labels).tolist() == [1, 3]

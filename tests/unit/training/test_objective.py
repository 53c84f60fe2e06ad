"""The chunked objective against plain autograd over all logits at once."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import blockdraft.training.objective as objective_module
from blockdraft.training.batches.layout import NO_LABEL, Labels
from blockdraft.training.frozen_head import FrozenHead
from blockdraft.training.loss import LossConfig, TargetProbs, slot_losses, slot_weights
from blockdraft.training.objective import Objective
from blockdraft.training.vocabulary import DraftVocabulary

HIDDEN, VOCAB, BLOCKS, SLOTS = 6, 11, 9, 4


def head() -> FrozenHead:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(VOCAB, HIDDEN, generator=generator, dtype=torch.float64)
    return FrozenHead(weight, torch.randn(VOCAB, generator=generator, dtype=torch.float64))


def labels() -> Labels:
    ids = torch.randint(VOCAB, (BLOCKS, SLOTS), generator=torch.Generator().manual_seed(1))
    ids[2, 2:] = NO_LABEL
    ids[5, 1:] = NO_LABEL
    rows = torch.arange(BLOCKS)[:, None] + torch.arange(SLOTS)
    return Labels(ids, rows)


def states() -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(BLOCKS, SLOTS, HIDDEN, generator=generator, dtype=torch.float64)


def final() -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(BLOCKS + SLOTS, HIDDEN, generator=generator, dtype=torch.float64)


CONFIGS = [
    LossConfig(),
    LossConfig(weighting="dpace"),
    LossConfig(weighting="uniform"),
    LossConfig(name="kl"),
    LossConfig(name="tv", weighting="dpace"),
    LossConfig(name="lk"),
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("reduced", [False, True])
def test_equals_plain_autograd(
    config: LossConfig, reduced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective_module, "CHUNK_SLOTS", 8)  # several chunks, the last one short
    whole = head()
    kept = torch.tensor([0, 2, 3, 5, 8, 9])
    vocabulary = DraftVocabulary(kept, VOCAB) if reduced else None
    used = FrozenHead(whole.weight[kept], _bias(whole)[kept]) if reduced else whole
    made = Objective(
        config, used, SLOTS + 1, vocabulary=vocabulary, target_head=whole, softcap=30.0
    )
    given = states().requires_grad_()
    scores = made(given, labels(), final())
    scores.loss.backward()

    leaf = states().requires_grad_()
    logits = 30.0 * torch.tanh((leaf @ used.weight.T + _bias(used)) / 30.0)
    known = labels().ids
    if vocabulary is not None:
        table = vocabulary.to_draft()
        known = torch.where(known >= 0, table[known.clamp(min=0)], -1)
    target = (final() @ whole.weight.T + _bias(whole)).softmax(-1)[labels().rows]
    if reduced:
        target = target[..., kept]
    slots = slot_losses(logits, known, config, TargetProbs(target))
    weights = slot_weights(labels().ids >= 0, slots.probs, config, SLOTS + 1)
    if config.name == "ce":
        weights = weights * (known >= 0)
    expected = (weights * slots.losses).sum()
    expected.backward()
    torch.testing.assert_close(scores.loss, expected)
    torch.testing.assert_close(scores.weight, weights.sum())
    assert given.grad is not None and leaf.grad is not None
    torch.testing.assert_close(given.grad, leaf.grad)
    assert torch.equal(scores.hits, slots.hits)
    assert torch.equal(scores.scored, labels().ids >= 0)


def _bias(one: FrozenHead) -> Tensor:
    assert one.bias is not None
    return one.bias


def test_slots_without_a_label_weigh_nothing() -> None:
    made = Objective(LossConfig(), head(), SLOTS + 1)
    given = states().requires_grad_()
    nothing = replace_ids(labels(), torch.full((BLOCKS, SLOTS), NO_LABEL))
    scores = made(given, nothing)
    scores.loss.backward()
    assert float(scores.weight) == 0
    assert given.grad is not None and not bool(given.grad.any())


def replace_ids(given: Labels, ids: Tensor) -> Labels:
    return Labels(ids, given.rows)


def test_drafts_are_target_ids() -> None:
    kept = torch.tensor([1, 4, 7])
    whole = head()
    vocabulary = DraftVocabulary(kept, VOCAB)
    reduced = FrozenHead(whole.weight[kept], _bias(whole)[kept])
    drafted = Objective(LossConfig(), reduced, 5, vocabulary=vocabulary).draft(states())
    logits = states() @ whole.weight.T + _bias(whole)
    hidden = torch.ones(VOCAB, dtype=torch.bool)
    hidden[kept] = False
    assert torch.equal(drafted, logits.masked_fill(hidden, -torch.inf).argmax(-1))


def test_without_gradients_nothing_is_differentiated() -> None:
    made = Objective(replace(LossConfig(), weighting="dpace"), head(), SLOTS + 1)
    with torch.no_grad():
        scores = made(states(), labels())
    assert not scores.loss.requires_grad

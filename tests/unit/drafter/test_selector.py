"""The candidate selector of DFlash 2: its scores, a worked example, padded vocabularies."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding import DraftLattice
from blockdraft.decoding.interfaces import LMHead, TargetSpec, TargetState
from blockdraft.decoding.lattice import likeliest_path
from blockdraft.drafter import BlockDrafter, DFlash2Config, DFlashDrafter, DrafterConfig
from blockdraft.drafter.selector import CandidateSelector
from blockdraft.errors import CheckpointError, ConfigError

MakeModel = Callable[[DrafterConfig], BlockDrafter]
SECOND = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=5)


def selector_of(hidden: int, vocab: int, rank: int, top_k: int) -> CandidateSelector:
    second = replace(SECOND, selector_rank=rank, selector_top_k=top_k)
    selector = CandidateSelector(hidden, vocab, second).double().requires_grad_(False)
    for parameter in selector.parameters():
        parameter.normal_()
    return selector


def reference_path(
    selector: CandidateSelector, hidden: Tensor, logits: Tensor, anchor: int
) -> list[int]:
    """The walk as the paper's authors tell it: one slot after the other, the chosen id fed in."""
    path: list[int] = []
    previous = anchor
    for slot in range(len(hidden)):
        candidates = cast(list[int], logits[slot].topk(selector.top_k).indices.tolist())
        wanted = selector.predecessor_codebook[previous] * selector.hidden_projection(hidden[slot])
        scores = {
            b: float(logits[slot, b] + wanted @ selector.successor_codebook[b]) for b in candidates
        }
        previous = max(scores, key=scores.__getitem__)
        path.append(previous)
    return path


@given(
    slots=st.integers(1, 6),
    requests=st.integers(1, 3),
    rank=st.integers(1, 4),
    top_k=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_the_likeliest_path_is_the_slow_walk(
    slots: int, requests: int, rank: int, top_k: int, seed: int
) -> None:
    torch.manual_seed(seed)
    selector = selector_of(6, 9, rank, top_k)
    hidden = torch.randn(requests, slots, 6, dtype=torch.float64)
    logits = torch.randn(requests, slots, 9, dtype=torch.float64)
    anchors = torch.randint(9, (requests,))
    lattices = selector.lattices(hidden, logits, anchors)
    for i, lattice in enumerate(lattices):
        assert lattice.candidates.shape == (slots, top_k)
        assert lattice.pairs.shape == (slots - 1, top_k, top_k)
        expected = reference_path(selector, hidden[i], logits[i], int(anchors[i]))
        assert list(likeliest_path(lattice)) == expected


def test_the_worked_example() -> None:
    """docs/algorithm.md: two slots, the likeliest ids alone would say "the the"."""
    the, cat, sat, anchor = 0, 1, 2, 3
    selector = CandidateSelector(1, 4, replace(SECOND, selector_rank=1, selector_top_k=2))
    selector.requires_grad_(False)
    selector.hidden_projection.weight.fill_(1)
    selector.predecessor_codebook[:, 0] = torch.tensor([1.0, 0.5, 0.0, 0.0])
    selector.successor_codebook[:, 0] = torch.tensor([-1.0, 2.0, 0.0, 0.0])
    logits = torch.tensor([[[2.0, 1.0, 0.0, -9.0], [1.5, 1.0, 0.0, -9.0]]])
    hidden = torch.ones(1, 2, 1)
    (lattice,) = selector.lattices(hidden, logits, torch.tensor([anchor]))
    assert lattice.candidates.tolist() == [[the, cat], [the, cat]]
    assert lattice.first.tolist() == [2.0, 1.0]
    assert lattice.pairs.tolist() == [[[0.5, 3.0], [1.0, 2.0]]]
    assert logits[0].argmax(-1).tolist() == [the, the]
    assert likeliest_path(lattice) == (the, cat)
    assert sat not in lattice.candidates


def test_padding_of_the_target_s_vocabulary_is_no_candidate() -> None:
    """The codebooks have 9 rows, the target's head 12: its last rows stand for no token."""
    selector = selector_of(6, 9, 2, 4)
    logits = torch.randn(1, 3, 12, dtype=torch.float64)
    logits[..., 9:] = 50.0
    hidden = torch.randn(1, 3, 6, dtype=torch.float64)
    for anchor in (3, 11):
        (lattice,) = selector.lattices(hidden, logits, torch.tensor([anchor]))
        assert int(lattice.candidates.max()) < 9
        assert bool(lattice.first.isfinite().all())


def test_logits_that_are_not_numbers_end_the_path() -> None:
    selector = selector_of(6, 9, 2, 4)
    logits = torch.randn(1, 4, 9, dtype=torch.float64)
    hidden = torch.randn(1, 4, 6, dtype=torch.float64)
    logits[0, 2, 5] = torch.nan
    (lattice,) = selector.lattices(hidden, logits, torch.tensor([1]))
    assert len(likeliest_path(lattice)) == 2
    (lattice,) = selector.lattices(torch.full_like(hidden, torch.nan), logits, torch.tensor([1]))
    assert likeliest_path(lattice) == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_never_narrower_than_fp32(dtype: torch.dtype) -> None:
    selector = selector_of(6, 9, 2, 4).to(dtype)
    made = selector.lattices(
        torch.randn(1, 3, 6), torch.randn(1, 3, 9).to(dtype), torch.tensor([1])
    )
    assert made[0].first.dtype == made[0].pairs.dtype == torch.float32


class TableTarget:
    """An embedding table and a head; it can't decode, which a drafter never asks for."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        self.table = torch.randn(vocab_size, hidden_size)
        self.weight = torch.randn(vocab_size, hidden_size)
        self.spec = TargetSpec(
            name="table", vocab_size=vocab_size, hidden_size=hidden_size, num_layers=6
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.table[ids]

    def head(self, vocab_ids: Tensor | None = None) -> LMHead:
        weight = self.weight if vocab_ids is None else self.weight[vocab_ids]
        return lambda hidden: hidden @ weight.T

    def open(self, taps: Sequence[int] = ()) -> TargetState:
        raise NotImplementedError


@pytest.mark.parametrize("width", [2, 3, 5, 9])
def test_a_drafter_proposes_lattices_of_any_width_up_to_the_trained_one(
    config: DrafterConfig, make_model: MakeModel, width: int
) -> None:
    """The block is drafted anew with its width; scale and cap are part of the scores."""
    second = replace(config, dflash2=SECOND, output_multiplier=0.5, final_logit_softcapping=1.5)
    model = make_model(second)
    target = TableTarget(config.vocab_size, config.hidden_size)
    state = DFlashDrafter(model, target).open()
    features = torch.randn(6, 32)
    state.extend((1,) * 6, features)
    draft = state.propose(9, width)
    assert isinstance(draft, DraftLattice)
    usable = min(width, config.block_size)
    assert len(draft.candidates) == usable - 1
    cache = model.new_cache()
    model.extend(cache, features[None])
    ids = torch.tensor([[9, *[config.mask_token_id] * (usable - 1)]])
    hidden = model.hidden(target.embed(ids), cache)
    logits = 1.5 * torch.tanh(0.5 * (hidden[0, 1:] @ target.weight.T) / 1.5)
    assert model.candidate_selector is not None
    expected = reference_path(model.candidate_selector, hidden[0, 1:], logits, 9)
    assert list(likeliest_path(draft)) == expected
    narrow = DFlashDrafter(model, target, block_size=3).open()
    narrow.extend((1,) * 6, features)
    cut = narrow.propose(9, width)
    assert isinstance(cut, DraftLattice) and len(cut.candidates) == min(width, 3) - 1


def test_a_reduced_vocabulary_is_refused(config: DrafterConfig, make_model: MakeModel) -> None:
    with pytest.raises(ConfigError, match="draft_vocab_size is 5, expected none beside the cand"):
        replace(config, dflash2=SECOND, draft_vocab_size=5)
    target = TableTarget(config.vocab_size, config.hidden_size)
    with pytest.raises(CheckpointError, match=r"a reduced draft vocabulary .* and a candidate sel"):
        DFlashDrafter(make_model(replace(config, dflash2=SECOND)), target, d2t=torch.arange(4))

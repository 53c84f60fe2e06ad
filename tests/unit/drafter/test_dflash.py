"""The `Drafter` over the block model: context bookkeeping, vocabularies, limits."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding.interfaces import Drafter, TargetModel
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DFlashState, DrafterConfig
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.testing import logits_of

MakeModel = Callable[[DrafterConfig], BlockDrafter]

_REUSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def _fed(drafter: DFlashDrafter, features: Tensor) -> DFlashState:
    state = drafter.open()
    state.extend([1] * len(features), features)
    return state


@_REUSED
@given(counts=st.lists(st.integers(0, 7), min_size=1, max_size=8), width=st.integers(1, 9))
def test_cache_length_equals_the_anchor_position(
    model: BlockDrafter, target: TargetModel, counts: Sequence[int], width: int
) -> None:
    drafter = DFlashDrafter(model, target)
    state = drafter.open()
    committed = 0
    for count in counts:
        state.extend(list(range(count)), torch.randn(count, 32))
        committed += count
        draft = state.propose(anchor=5, width=width)
        assert logits_of(draft).shape == (min(width, 5) - 1, 40)
        assert state.context_len == committed
        assert state.cache.lengths == (committed,)


def test_is_a_drafter(model: BlockDrafter, target: TargetModel) -> None:
    drafter: Drafter = DFlashDrafter(model, target)
    assert (drafter.taps, drafter.block_size) == ((1, 3), 5)


def test_proposal_is_the_models_over_anchor_and_masks(
    config: DrafterConfig, make_model: MakeModel, target: TargetModel
) -> None:
    """C10: the embedding scale is applied to the raw rows of the table, anchor included."""
    model = make_model(replace(config, input_embedding_scale=4.0))
    features = torch.randn(6, 32)
    state = _fed(DFlashDrafter(model, target), features)
    cache = model.new_cache()
    model.extend(cache, features[None])
    embeddings = 4.0 * target.embed(torch.tensor([[9, 3, 3, 3]]))
    expected = target.head()(model.hidden(embeddings, cache)[0, 1:])
    torch.testing.assert_close(logits_of(state.propose(9, 4)), expected)
    unscaled = _fed(DFlashDrafter(make_model(config), target), features)
    assert not torch.allclose(logits_of(unscaled.propose(9, 4)), expected, atol=1e-2)


def test_a_long_prompt_in_chunks_equals_one_pass(
    config: DrafterConfig, make_model: MakeModel, target: TargetModel
) -> None:
    """R12: a prompt longer than the projection's chunk and than the window."""
    model = make_model(replace(config, max_position_embeddings=4096))
    features = torch.randn(1100, 32)
    state = _fed(DFlashDrafter(model, target), features)
    cache = model.new_cache()
    model.extend(cache, features[None])
    assert state.cache.lengths == (1100,)
    torch.testing.assert_close(state.cache.context(1).keys, cache.context(1).keys)


def test_states_do_not_disturb_each_other(model: BlockDrafter, target: TargetModel) -> None:
    """C07: long, short and the long request again, interleaved, equal fresh drafters."""
    drafter = DFlashDrafter(model, target)
    long, short = torch.randn(30, 32), torch.randn(3, 32)
    expected = [
        logits_of(_fed(DFlashDrafter(model, target), f).propose(2, 5)) for f in (long, short)
    ]
    first, second = _fed(drafter, long), _fed(drafter, short)
    third = _fed(drafter, long)
    for state, index in ((first, 0), (second, 1), (first, 0), (third, 0), (second, 1)):
        assert torch.equal(logits_of(state.propose(2, 5)), expected[index])


def test_reduced_vocabulary_maps_through_d2t(model: BlockDrafter, target: TargetModel) -> None:
    """L05: target id = i + d2t[i]; every other id is impossible."""
    d2t = torch.tensor([2, 4, 7, 36])  # target ids 2, 5, 9, 39
    features = torch.randn(6, 32)
    full = logits_of(_fed(DFlashDrafter(model, target), features).propose(1, 4))
    reduced = logits_of(_fed(DFlashDrafter(model, target, d2t=d2t), features).propose(1, 4))
    ids = [2, 5, 9, 39]
    torch.testing.assert_close(reduced[:, ids], full[:, ids])
    others = [i for i in range(40) if i not in ids]
    assert (reduced[:, others] == -torch.inf).all()


def test_a_head_of_its_own_is_used_instead_of_the_targets(
    model: BlockDrafter, target: TargetModel
) -> None:
    """L05: a drafter's own reduced head was once replaced by the target's in silence."""
    d2t, lm_head = torch.tensor([2, 4, 7, 36]), torch.randn(4, 16)
    drafter = DFlashDrafter(model, target, d2t=d2t, lm_head=lm_head)
    features = torch.randn(6, 32)
    logits = logits_of(_fed(drafter, features).propose(1, 3))
    cache = model.new_cache()
    model.extend(cache, features[None])
    hidden = model.hidden(target.embed(torch.tensor([[1, 3, 3]])), cache)[0, 1:]
    torch.testing.assert_close(logits[:, [2, 5, 9, 39]], hidden @ lm_head.T)
    assert int(torch.isfinite(logits).sum()) == 2 * 4


@pytest.mark.parametrize("rows", [38, 40, 43])
def test_an_own_head_may_be_padded_otherwise_than_the_target(
    model: BlockDrafter, target: TargetModel, rows: int
) -> None:
    """L17: same vocabulary, another number of padding rows."""
    lm_head = torch.randn(rows, 16)
    state = _fed(DFlashDrafter(model, target, lm_head=lm_head), torch.randn(2, 32))
    logits = logits_of(state.propose(1, 3))
    assert logits.shape == (2, 40)
    assert int(torch.isfinite(logits).sum()) == 2 * min(rows, 40)


def test_d2t_beyond_the_target_is_refused(model: BlockDrafter, target: TargetModel) -> None:
    with pytest.raises(CheckpointError, match=r"d2t maps to target ids 2\.\.40, expected 0\.\.39"):
        DFlashDrafter(model, target, d2t=torch.tensor([2, 39]))


def test_learned_mask_embedding_replaces_the_mask_row(
    model: BlockDrafter, target: TargetModel
) -> None:
    row = target.embed(torch.tensor(17))
    features = torch.randn(4, 32)
    learned = _fed(DFlashDrafter(model, target, mask_embedding=row), features)
    other = BlockDrafter(replace(model.config, mask_token_id=17)).requires_grad_(False)
    other.load_state_dict(model.state_dict())
    expected = logits_of(_fed(DFlashDrafter(other, target), features).propose(3, 5))
    # The anchor has the mask token's id here: only the masked slots are replaced.
    torch.testing.assert_close(logits_of(learned.propose(3, 5)), expected)


def test_smaller_blocks_are_fine_and_larger_ones_are_reduced_with_a_warning(
    model: BlockDrafter, target: TargetModel, caplog: pytest.LogCaptureFixture
) -> None:
    """L09: asked for more than trained, it warns and never reads garbage."""
    with caplog.at_level(logging.WARNING, logger="blockdraft"):
        assert DFlashDrafter(model, target, block_size=3).block_size == 3
        assert DFlashDrafter(model, target, block_size=1).block_size == 1
        assert not caplog.records
        drafter = DFlashDrafter(model, target, block_size=16)
    assert drafter.block_size == 5
    assert [record.getMessage() for record in caplog.records] == [
        "block size 16 is larger than the drafter was trained for; using 5"
    ]
    state = _fed(drafter, torch.randn(3, 32))
    assert torch.equal(logits_of(state.propose(1, 16)), logits_of(state.propose(1, 5)))
    with pytest.raises(ConfigError, match="at least 1"):
        DFlashDrafter(model, target, block_size=0)


def test_beyond_the_position_limit_nothing_is_drafted_or_kept(
    config: DrafterConfig,
    make_model: MakeModel,
    target: TargetModel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """L13, R11: a request longer than the drafter's positions goes on, with one warning."""
    drafter = DFlashDrafter(make_model(replace(config, max_position_embeddings=20)), target)
    with caplog.at_level(logging.WARNING, logger="blockdraft"):
        state = _fed(drafter, torch.randn(15, 32))
        assert len(logits_of(state.propose(1, 5))) == 4
        assert not caplog.records
        widths: list[int] = []
        for _ in range(8):
            state.extend([1], torch.randn(1, 32))
            widths.append(1 + len(logits_of(state.propose(1, 5))))
        assert widths == [4, 3, 2, 1, 1, 1, 1, 1]
        assert state.context_len == 23
        assert state.cache.lengths == (0,) and state.cache.capacity == 0
        assert len(logits_of(_fed(drafter, torch.randn(100, 32)).propose(1, 5))) == 0
    assert len(caplog.records) == 1
    assert "position limit of 20" in caplog.records[0].getMessage()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes_are_cast_at_the_seam(
    model: BlockDrafter, target: TargetModel, dtype: torch.dtype
) -> None:
    """A 16-bit drafter with an fp32 target: features and embeddings go in, hidden states out."""
    features = torch.randn(4, 32)
    exact = logits_of(_fed(DFlashDrafter(model, target), features).propose(1, 5))
    rounded = logits_of(_fed(DFlashDrafter(model.to(dtype), target), features).propose(1, 5))
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0.1, atol=0.5)


def test_overflow_in_fp16_is_handed_on(model: BlockDrafter, target: TargetModel) -> None:
    """L10: non-finite logits are returned as they are; the decoder reports them."""
    model.layers[0].get_parameter("mlp.down_proj.weight").fill_(30000.0)
    state = _fed(DFlashDrafter(model.half(), target), torch.randn(4, 32))
    logits = logits_of(state.propose(1, 5))
    assert logits.shape == (4, 40)
    assert not torch.isfinite(logits).all()


def test_drafts_may_be_changed_in_place(model: BlockDrafter, target: TargetModel) -> None:
    """Results are plain tensors, whatever mode the caller runs in."""
    with torch.inference_mode():
        features = torch.randn(4, 32)
    logits = logits_of(_fed(DFlashDrafter(model, target), features).propose(1, 5))
    assert not logits.requires_grad and not logits.is_inference()
    logits.add_(1.0)

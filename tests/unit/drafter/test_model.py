"""The block drafter: caching, batching, and that every parameter counts."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.drafter import BlockDrafter, DrafterConfig

MakeModel = Callable[[DrafterConfig], BlockDrafter]

_REUSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def _hidden(model: BlockDrafter, features: Tensor, embeddings: Tensor) -> Tensor:
    cache = model.new_cache(len(features))
    model.extend(cache, features)
    return model.hidden(embeddings, cache)


@_REUSED
@given(
    cuts=st.lists(st.integers(0, 12), max_size=4),
    is_causal=st.sampled_from([None, True, False]),
    window=st.integers(1, 16),
    width=st.integers(1, 5),
)
def test_cached_equals_uncached(
    config: DrafterConfig,
    make_model: MakeModel,
    cuts: list[int],
    is_causal: bool | None,
    window: int,
    width: int,
) -> None:
    """The context taken in bit by bit, with blocks run in between, or all at once."""
    model = make_model(replace(config, is_causal=is_causal, sliding_window=window)).double()
    features, embeddings = torch.randn(1, 12, 32).double(), torch.randn(1, width, 16).double()
    cache = model.new_cache()
    edges = [0, *sorted(cuts), 12]
    for start, end in pairwise(edges):
        model.extend(cache, features[:, start:end])
        before = [cache.context(i).keys.clone() for i in range(2)]
        model.hidden(torch.randn(1, 5, 16).double(), cache)
        assert cache.lengths == (end,)
        assert all(torch.equal(cache.context(i).keys, before[i]) for i in range(2))
    whole = _hidden(model, features, embeddings)
    torch.testing.assert_close(model.hidden(embeddings, cache), whole, rtol=1e-10, atol=1e-10)


@_REUSED
@given(
    lengths=st.lists(st.integers(0, 9), min_size=2, max_size=4),
    later=st.integers(0, 3),
    is_causal=st.sampled_from([None, True, False]),
)
def test_batched_rows_of_different_lengths_equal_single_rows(
    config: DrafterConfig,
    make_model: MakeModel,
    lengths: list[int],
    later: int,
    is_causal: bool | None,
) -> None:
    """C10: rows of one batch accept different numbers of tokens."""
    model = make_model(replace(config, is_causal=is_causal)).double()
    batch = len(lengths)
    first, second = torch.randn(batch, 9, 32).double(), torch.randn(batch, 3, 32).double()
    counts = [(later + row) % 4 for row in range(batch)]
    embeddings = torch.randn(batch, 5, 16).double()
    cache = model.new_cache(batch)
    model.extend(cache, first, lengths)
    model.extend(cache, second, counts)
    together = model.hidden(embeddings, cache)
    for row in range(batch):
        features = torch.cat((first[row, : lengths[row]], second[row, : counts[row]]))[None]
        alone = _hidden(model, features, embeddings[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-10, atol=1e-10)


def test_the_mask_free_path_equals_the_masked_one(
    config: DrafterConfig, make_model: MakeModel
) -> None:
    """A window that reaches everything needs no mask; so does a full layer at batch 1."""
    wide = make_model(replace(config, is_causal=False, sliding_window=50)).double()
    full = make_model(
        replace(config, is_causal=False, layer_types=("full_attention",) * 2)
    ).double()
    features, embeddings = torch.randn(1, 7, 32).double(), torch.randn(1, 5, 16).double()
    alone = _hidden(full, features, embeddings)
    assert torch.equal(_hidden(wide, features, embeddings), alone)
    cache = full.new_cache(2)  # a longer second row forces a mask on the first
    padded = torch.cat((features, torch.randn(1, 4, 32).double()), 1)
    model_input = torch.cat((padded, torch.randn(1, 11, 32).double()))
    full.extend(cache, model_input, [7, 11])
    masked = full.hidden(embeddings.expand(2, -1, -1).contiguous(), cache)
    torch.testing.assert_close(masked[:1], alone, rtol=1e-10, atol=1e-10)


def test_every_parameter_changes_the_output(config: DrafterConfig, make_model: MakeModel) -> None:
    """L04: norm weights that were loaded but not applied cost most of the acceptance."""
    model = make_model(replace(config, attention_bias=True)).double()
    features, embeddings = torch.randn(1, 6, 32).double(), torch.randn(1, 5, 16).double()
    before = _hidden(model, features, embeddings)
    for name, parameter in model.named_parameters():
        saved = parameter.clone()
        parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
        assert not torch.allclose(_hidden(model, features, embeddings), before, atol=1e-6), name
        parameter.copy_(saved)
    assert torch.equal(_hidden(model, features, embeddings), before)


def test_positions_count(config: DrafterConfig, make_model: MakeModel) -> None:
    """The same features in another order give another result: keys carry absolute positions."""
    model = make_model(replace(config, layer_types=("full_attention",) * 2, sliding_window=None))
    features, embeddings = torch.randn(1, 6, 32), torch.randn(1, 5, 16)
    flipped = _hidden(model, features.flip(1), embeddings)
    assert not torch.allclose(_hidden(model, features, embeddings), flipped, atol=1e-3)


@pytest.mark.parametrize("cap", [None, 2.0])
def test_scale_and_softcap_equal_a_hand_computation(
    config: DrafterConfig, make_model: MakeModel, cap: float | None
) -> None:
    """C10: cap * tanh(multiplier * head(h) / cap), on all slots but the anchor's."""
    model = make_model(replace(config, output_multiplier=0.25, final_logit_softcapping=cap))
    hidden = torch.tensor([[[9.0] * 16, [1.0] * 16, [-2.0] * 16]])
    logits = model.logits(hidden, lambda states: states.sum(-1, keepdim=True))
    plain = [0.25 * 16, -0.25 * 32]
    if cap is None:
        assert logits[0, :, 0].tolist() == plain
    else:
        expected = [2.0 * float(torch.tanh(torch.tensor(x / 2.0))) for x in plain]
        assert logits[0, :, 0].tolist() == pytest.approx(expected)


def test_fp16_overflow_gives_non_finite_states(config: DrafterConfig, model: BlockDrafter) -> None:
    """L10: numbers too large for fp16 come out as they are; the decoder counts them as rejected."""
    features, embeddings = torch.randn(1, 4, 32), torch.randn(1, 5, 16)
    model.layers[0].get_parameter("mlp.down_proj.weight").fill_(30000.0)
    assert torch.isfinite(_hidden(model, features, embeddings)).all()
    half = model.to(torch.float16)
    hidden = _hidden(half, features.half(), embeddings.half())
    assert not torch.isfinite(hidden).all()
    assert hidden.shape == (1, 5, config.hidden_size)


def test_a_moved_model_takes_its_frequencies_along(model: BlockDrafter) -> None:
    """The meta device stands in for an accelerator: it refuses operands from elsewhere."""
    moved = model.to("meta")
    hidden = _hidden(moved, torch.empty(1, 4, 32, device="meta"), torch.empty(1, 5, 16).to("meta"))
    assert hidden.device.type == "meta" and hidden.shape == (1, 5, 16)


def test_gradients_reach_the_parameters(config: DrafterConfig) -> None:
    """The passes are usable for training: nothing inside switches gradients off."""
    model = BlockDrafter(config)
    context = model.fuse(torch.randn(1, 4, 32))
    context.sum().backward()
    assert model.fc.weight.grad is not None and model.fc.weight.grad.any()

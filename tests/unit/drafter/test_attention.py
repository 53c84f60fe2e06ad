"""The mask, element by element, and the attention of a block."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.drafter import DrafterConfig, MaskRule
from blockdraft.drafter.attention import BlockAttention, KeyValues, block_mask, sees_everything
from blockdraft.drafter.rope import Rotation, inverse_frequencies, rotation

_RULES = st.builds(
    MaskRule, causal=st.booleans(), window=st.none() | st.integers(min_value=1, max_value=12)
)


def _visible(length: int, query_slot: int, column: int, context_len: int, rule: MaskRule) -> bool:
    """The rule of docs/algorithm.md, said once more, for one pair."""
    if column < context_len:
        if column >= length:
            return False
        key_position = column
    else:
        key_position = length + column - context_len
    query_position = length + query_slot
    if rule.causal and key_position > query_position:
        return False
    if rule.window is None:
        return True
    if query_position - key_position >= rule.window:
        return False
    return rule.causal or key_position - query_position < rule.window


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    extra=st.integers(0, 3),
    width=st.integers(1, 6),
    rule=_RULES,
)
def test_mask_equals_brute_force(
    lengths: list[int], extra: int, width: int, rule: MaskRule
) -> None:
    context_len = max(lengths) + extra
    mask = block_mask(torch.tensor(lengths), context_len, width, rule)
    expected = [
        [
            [_visible(length, slot, column, context_len, rule) for column in range(mask.shape[2])]
            for slot in range(width)
        ]
        for length in lengths
    ]
    assert mask.tolist() == expected


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    width=st.integers(1, 5),
    rule=_RULES,
)
def test_no_mask_is_built_only_where_it_would_be_all_true(
    lengths: list[int], width: int, rule: MaskRule
) -> None:
    all_true = bool(block_mask(torch.tensor(lengths), max(lengths), width, rule).all())
    assert sees_everything(lengths, width, rule) <= all_true
    if len(set(lengths)) == 1:
        assert sees_everything(lengths, width, rule) == all_true


@pytest.mark.parametrize("bias", [False, True])
def test_attention_equals_a_sum_over_heads(config: DrafterConfig, bias: bool) -> None:
    """Grouped heads, q/k norms and the shared projections, written as plain loops."""
    from dataclasses import replace

    config = replace(config, attention_bias=bias)
    attention = BlockAttention(config).double().requires_grad_(False)
    for parameter in attention.parameters():
        parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    frequencies = inverse_frequencies(config.rope, config.head_dim)

    def at(start: int, rows: int) -> Rotation:
        return rotation(frequencies, torch.arange(start, start + rows)[None], torch.float64)

    features, states = torch.randn(1, 6, 16).double(), torch.randn(1, 3, 16).double()
    context = attention.key_values(features, at(0, 6))
    mask = block_mask(torch.tensor([6]), 6, 3, MaskRule(True, 4))
    output = attention(states, at(6, 3), context, mask)

    everything = attention.key_values(torch.cat((features, states), 1), at(0, 9))
    queries = attention.q_norm(attention.q_proj(states).view(1, 3, 4, 8)).transpose(1, 2)
    by = at(6, 3)
    half = torch.cat((-queries[..., 4:], queries[..., :4]), -1)
    queries = queries * by.cos + half * by.sin
    heads: list[torch.Tensor] = []
    for head in range(4):
        kv: KeyValues = KeyValues(everything.keys[:, head // 2], everything.values[:, head // 2])
        scores = queries[:, head] @ kv.keys.transpose(1, 2) / 8**0.5
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        heads.append(weights @ kv.values)
    expected = attention.o_proj(torch.cat(heads, -1))
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)

"""Norm and feed-forward against transformers' Qwen3 modules."""

import pytest
import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm

from blockdraft.drafter.layers import GatedMLP, RMSNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norm_equals_qwen3_bit_for_bit(dtype: torch.dtype) -> None:
    ours, theirs = RMSNorm(24, 1e-5).to(dtype), Qwen3RMSNorm(24, 1e-5).to(dtype)
    weight = torch.randn(24).to(dtype)
    for norm in (ours, theirs):
        norm.load_state_dict({"weight": weight})
    states = torch.randn(2, 5, 24).to(dtype)
    assert torch.equal(ours(states), theirs(states))


def test_norm_keeps_fp64() -> None:
    states = torch.randn(3, 8, dtype=torch.float64)
    expected = states / (states.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(RMSNorm(8, 1e-6).double()(states), expected, rtol=1e-14, atol=1e-14)


def test_mlp_equals_qwen3() -> None:
    theirs = Qwen3MLP(Qwen3Config(hidden_size=12, intermediate_size=20))
    ours = GatedMLP(12, 20)
    ours.load_state_dict(theirs.state_dict())
    states = torch.randn(2, 3, 12)
    torch.testing.assert_close(ours(states), theirs(states))

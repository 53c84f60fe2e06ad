"""A tiny drafter and the embedding and head of a tiny target, for the drafter's tests.

It also makes the shared modules of this folder importable under every import mode.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from blockdraft.decoding.interfaces import LMHead, TargetSpec, TargetState
from blockdraft.drafter import BlockDrafter, DrafterConfig

sys.path.insert(0, str(Path(__file__).parent))

MakeModel = Callable[[DrafterConfig], BlockDrafter]


class TableTarget:
    """An embedding table and a head; it can't decode, which a drafter never asks for."""

    def __init__(self, vocab_size: int, hidden_size: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(7)
        self.table = torch.randn(vocab_size, hidden_size, generator=generator).to(dtype)
        self.weight = torch.randn(vocab_size, hidden_size, generator=generator).to(dtype)
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


@pytest.fixture
def make_model() -> MakeModel:
    """A drafter with random weights, its norms away from 1, in fp32."""

    def make(config: DrafterConfig) -> BlockDrafter:
        generator = torch.Generator().manual_seed(11)
        model = BlockDrafter(config).requires_grad_(False)
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.3 if parameter.ndim == 2 else 1 + 0.3 * noise)
        return model

    return make


@pytest.fixture
def model(config: DrafterConfig, make_model: MakeModel) -> BlockDrafter:
    return make_model(config)


@pytest.fixture
def target(config: DrafterConfig) -> TableTarget:
    return TableTarget(config.vocab_size, config.hidden_size, torch.float32)

"""Checkpoints become models that use every tensor of theirs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from blockdraft.checkpoint import (
    DrafterCheckpoint,
    build_drafter,
    load_dflash,
    load_drafter_model,
    save_checkpoint,
)
from blockdraft.decoding.interfaces import LMHead, TargetSpec, TargetState
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.testing import logits_of

MakeCheckpoint = Callable[[DrafterConfig], DrafterCheckpoint]


class _TableTarget:
    """An embedding table and a head, which is all that building asks of a target."""

    def __init__(self, hidden_size: int = 16, dtype: torch.dtype = torch.float32) -> None:
        self.spec = TargetSpec(name="t", vocab_size=40, hidden_size=hidden_size, num_layers=6)
        self.table = torch.randn(40, hidden_size).to(dtype)

    def embed(self, ids: Tensor) -> Tensor:
        return self.table[ids]

    def head(self, vocab_ids: Tensor | None = None) -> LMHead:
        rows = self.table if vocab_ids is None else self.table[vocab_ids]
        return lambda hidden: hidden @ rows.T

    def open(self, taps: Sequence[int] = ()) -> TargetState:
        raise NotImplementedError


def test_the_model_has_the_weights_and_is_frozen(
    config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    checkpoint = make_checkpoint(config)
    model = load_drafter_model(checkpoint)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, checkpoint.state[name])
        assert not parameter.requires_grad
    assert not model.training
    cache = model.new_cache()
    model.extend(cache, torch.randn(1, 3, 32))
    assert model.hidden(torch.randn(1, 5, 16), cache).shape == (1, 5, 16)


def test_every_optional_part_reaches_the_drafter(
    config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    """L05: each of d2t, own head and mask embedding changes what is drafted."""
    target = _TableTarget()
    features = torch.randn(4, 32)
    plain = make_checkpoint(replace(config, draft_vocab_size=3))
    plain = replace(plain, d2t=torch.tensor([0, 9, 9]))

    def logits(checkpoint: DrafterCheckpoint) -> Tensor:
        state = build_drafter(checkpoint, target, block_size=4).open()
        state.extend([1, 2, 3, 4], features)
        return logits_of(state.propose(1, 5))

    before = logits(plain)
    assert before.shape == (3, 40) and torch.isfinite(before).sum() == 9
    for changed in (
        replace(plain, d2t=torch.tensor([0, 9, 10])),
        replace(plain, lm_head=torch.randn(3, 16)),
        replace(plain, mask_embedding=torch.randn(16)),
    ):
        assert not torch.allclose(logits(changed), before)


def test_a_target_that_does_not_fit_is_refused(
    config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    with pytest.raises(CheckpointError, match="hidden size is 16, but target t has 8"):
        build_drafter(make_checkpoint(config), _TableTarget(hidden_size=8))


def test_loading_for_a_target_takes_its_dtype(
    tmp_path: Path, config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    save_checkpoint(tmp_path / "drafter", make_checkpoint(config))
    target = _TableTarget(dtype=torch.bfloat16)
    drafter = load_dflash(tmp_path / "drafter", target, block_size=3, taps=(0, 2))
    assert drafter.model.dtype == torch.bfloat16
    assert (drafter.block_size, drafter.taps) == (3, (0, 2))
    assert load_dflash(tmp_path / "drafter", target, dtype="float64").model.dtype == torch.float64
    with pytest.raises(ConfigError, match="'int8', expected one of float16, bfloat16"):
        load_dflash(tmp_path / "drafter", target, dtype="int8")

"""Checkpoints to models: the drafter's modules with their weights, alone or joined to a target.

It knows no file format; `store.py` reads and checks.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from blockdraft.checkpoint.contents import FLOAT_DTYPES, DrafterCheckpoint
from blockdraft.checkpoint.pairing import check_pair
from blockdraft.checkpoint.store import load_checkpoint
from blockdraft.decoding.interfaces import TargetModel
from blockdraft.drafter.dflash import DFlashDrafter
from blockdraft.drafter.model import BlockDrafter
from blockdraft.errors import ConfigError


def load_drafter_model(
    checkpoint: DrafterCheckpoint, *, device: torch.device | str = "cpu"
) -> BlockDrafter:
    """The transformer with the checkpoint's weights (shared with it on the CPU), frozen."""
    with torch.device("meta"):  # no random initialization that would be thrown away
        model = BlockDrafter(checkpoint.config)
    model.load_state_dict(dict(checkpoint.state), strict=True, assign=True)
    return model.to(device).eval().requires_grad_(False)


def build_drafter(
    checkpoint: DrafterCheckpoint,
    target: TargetModel,
    *,
    block_size: int | None = None,
    device: torch.device | str = "cpu",
) -> DFlashDrafter:
    """The checkpoint's drafter for `target`; raises CheckpointError when the two do not fit."""
    check_pair(checkpoint.config, target.spec)

    def moved(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.to(device)

    return DFlashDrafter(
        load_drafter_model(checkpoint, device=device),
        target,
        block_size=block_size,
        d2t=moved(checkpoint.d2t),
        lm_head=moved(checkpoint.lm_head),
        mask_embedding=moved(checkpoint.mask_embedding),
        recorded_tau=checkpoint.recorded_tau,
    )


def load_dflash(
    where: str | Path,
    target: TargetModel,
    *,
    taps: Sequence[int] | None = None,
    block_size: int | None = None,
    revision: str | None = None,
    dtype: str | None = None,
) -> DFlashDrafter:
    """The drafter in a folder or hub repository, for `target` and on its device.

    `dtype` None takes that of the target's embedding. Raises CheckpointError for a checkpoint that
    is damaged, unsupported or of another target, ConfigError for an unknown dtype.
    """
    embedding = target.embed(torch.zeros(1, dtype=torch.long))
    checkpoint = load_checkpoint(
        where,
        revision=revision,
        taps=taps,
        dtype=embedding.dtype if dtype is None else _float_dtype(dtype),
    )
    return build_drafter(checkpoint, target, block_size=block_size, device=embedding.device)


def _float_dtype(name: str) -> torch.dtype:
    names = {str(known).removeprefix("torch."): known for known in FLOAT_DTYPES}
    if name not in names:
        raise ConfigError(f"drafter dtype is {name!r}, expected one of {', '.join(names)}")
    return names[name]

"""Tensors of another layout to a checked `DrafterCheckpoint`, and the learned mask embedding.

It knows the names of the published layout only; renaming is done before.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.checkpoint.contents import (
    D2T_NAME,
    HEAD_NAME,
    T2D_NAME,
    DrafterCheckpoint,
    StoredTensor,
    check_finite,
    check_float,
    check_names_and_shapes,
    check_target_ids,
)
from blockdraft.checkpoint.store import MASK_FILE
from blockdraft.checkpoint.tensors import WEIGHTS_FILE
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError


def assemble(
    config: DrafterConfig,
    tensors: Mapping[str, Tensor],
    source: str,
    *,
    mask_embedding: Float[Tensor, " hidden"] | None = None,
    recorded_tau: float | None = None,
) -> DrafterCheckpoint:
    """The checkpoint of `config` with `tensors` (published names; `d2t` are offsets).

    Raises CheckpointError for a tensor that is missing, unexpected, wrongly shaped or not finite.
    """
    stored = {name: StoredTensor(WEIGHTS_FILE, tuple(t.shape)) for name, t in tensors.items()}
    check_names_and_shapes(config, stored, source)
    state = dict(tensors)
    d2t = state.pop(D2T_NAME, None)
    t2d = state.pop(T2D_NAME, None)
    if d2t is not None:
        check_target_ids(config.vocab_size, d2t, t2d, source)
    for name, tensor in state.items():
        check_float(name, tensor, source)
        check_finite(name, tensor, source)
    return DrafterCheckpoint(
        config=config,
        source=source,
        d2t=None if d2t is None else d2t.long(),
        lm_head=state.pop(HEAD_NAME, None),
        mask_embedding=mask_embedding,
        recorded_tau=recorded_tau,
        state=state,
    )


def write_mask_embedding(folder: Path, checkpoint: DrafterCheckpoint) -> None:
    """`mask_embedding.pt` in the form that all engines read, if the drafter has one."""
    if checkpoint.mask_embedding is not None:
        row = checkpoint.mask_embedding.detach().cpu().clone()
        entry = {"embedding": row, "mask_token_id": checkpoint.config.mask_token_id}
        torch.save(entry, folder / MASK_FILE)


def read_mask_embedding(folder: Path, config: DrafterConfig, source: str) -> Tensor | None:
    """The row in `mask_embedding.pt`; None without the file.

    Raises CheckpointError for a file that is damaged, of another mask token or another width.
    """
    path = folder / MASK_FILE
    if not path.exists():
        return None
    try:
        # weights_only: a file that would run code on loading is refused by the unpickler.
        loaded = cast("object", torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # damaged bytes make the unpickler raise whatever they lead to
        raise CheckpointError(
            f"{source}: {path.name} is damaged or holds more than tensors ({type(error).__name__});"
            " do not use it unless you trust it"
        ) from error
    row: object = loaded
    if isinstance(loaded, dict):
        entry = cast("dict[object, object]", loaded)
        row = entry.get("embedding")
        made_for = entry.get("mask_token_id", config.mask_token_id)
        if made_for != config.mask_token_id:
            raise CheckpointError(
                f"{source}: {path.name} was made for mask token {made_for}, but the configuration"
                f" has {config.mask_token_id}; files of two checkpoints are mixed: fetch it again"
            )
    if not isinstance(row, Tensor) or row.numel() != config.hidden_size:
        raise CheckpointError(
            f"{source}: {path.name} holds no single row of {config.hidden_size} values under the"
            " key 'embedding' (one row per position is not supported); fetch it again"
        )
    check_float(path.name, row, source)
    check_finite(path.name, row, source)
    return row.detach().flatten()


def uses_published_mask(folder: Path) -> bool:
    """Whether `mask_embedding.pt` there is a dictionary with the key 'embedding'."""
    try:
        loaded = cast(
            "object", torch.load(folder / MASK_FILE, map_location="cpu", weights_only=True)
        )
    except Exception:  # noqa: BLE001 - the reader that follows tells what is wrong with the file
        return False
    return isinstance(loaded, dict) and "embedding" in cast("dict[object, object]", loaded)

"""Tensors and a configuration to a checked `DrafterCheckpoint`.

It knows the names of the published layout only, and reads no file.
"""

from collections.abc import Mapping

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
from blockdraft.checkpoint.mask_embedding import MASK_FILE
from blockdraft.checkpoint.tensors import WEIGHTS_FILE
from blockdraft.drafter.config import DrafterConfig


def assemble(
    config: DrafterConfig,
    tensors: Mapping[str, Tensor],
    source: str,
    *,
    mask_embedding: Float[Tensor, " hidden"] | None = None,
    recorded_tau: float | None = None,
    dtype: torch.dtype | None = None,
) -> DrafterCheckpoint:
    """The checkpoint of `config` with `tensors` (published names; `d2t` are offsets).

    Weights are cast to `dtype`. Raises CheckpointError for a tensor that is missing, unexpected,
    wrongly shaped or not finite.
    """
    stored = {name: StoredTensor(WEIGHTS_FILE, tuple(t.shape)) for name, t in tensors.items()}
    check_names_and_shapes(config, stored, source)
    state = dict(tensors)
    d2t, t2d = state.pop(D2T_NAME, None), state.pop(T2D_NAME, None)
    if d2t is not None:
        check_target_ids(config.vocab_size, d2t, t2d, source)
    if mask_embedding is not None:
        state[MASK_FILE] = mask_embedding
    for name, tensor in state.items():
        check_float(name, tensor, source)
        state[name] = tensor if dtype is None else tensor.to(dtype)
        check_finite(name, state[name], source)
    return DrafterCheckpoint(
        config=config,
        source=source,
        d2t=None if d2t is None else d2t.long(),
        lm_head=state.pop(HEAD_NAME, None),
        mask_embedding=state.pop(MASK_FILE, None),
        recorded_tau=recorded_tau,
        state=state,
    )

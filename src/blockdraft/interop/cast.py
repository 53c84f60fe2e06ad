"""A drafter's weights in another float type.

It writes nothing; block quantization is GGUF's own.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from blockdraft.checkpoint.contents import DrafterCheckpoint, check_finite
from blockdraft.errors import ConfigError

OUTTYPES: Mapping[str, torch.dtype] = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}


def chosen_dtype(checkpoint: DrafterCheckpoint, outtype: str | None) -> torch.dtype:
    """The type to write: the given one, or the stored one (float32 for what is wider).

    Raises ConfigError for a type that safetensors layouts are not written in.
    """
    if outtype is None:
        return torch.float32 if checkpoint.dtype == torch.float64 else checkpoint.dtype
    if outtype not in OUTTYPES:
        raise ConfigError(
            f"--outtype {outtype} is for --format gguf; hf and speculators folders take"
            f" {', '.join(OUTTYPES)}"
        )
    return OUTTYPES[outtype]


def cast_checkpoint(checkpoint: DrafterCheckpoint, dtype: torch.dtype) -> DrafterCheckpoint:
    """The same drafter in `dtype`; CheckpointError where a value does not fit into it."""

    def cast_one(name: str, tensor: Tensor) -> Tensor:
        converted = tensor.to(dtype)
        check_finite(name, converted, checkpoint.source)
        return converted

    def cast_optional(name: str, tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else cast_one(name, tensor)

    return replace(
        checkpoint,
        state={name: cast_one(name, tensor) for name, tensor in checkpoint.state.items()},
        lm_head=cast_optional("lm_head.weight", checkpoint.lm_head),
        mask_embedding=cast_optional("mask_embedding", checkpoint.mask_embedding),
    )


def outtype_name(dtype: torch.dtype) -> str:
    """The short name of a written type."""
    return {known: name for name, known in OUTTYPES.items()}[dtype]

"""Whether two drafters are the same, tensor by tensor.

It reads nothing; exports compare with it what they wrote.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import cast

import torch
from torch import Tensor

from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.drafter.config import DrafterConfig


def first_difference(expected: DrafterCheckpoint, found: DrafterCheckpoint) -> str | None:
    """What differs first, in words; None when configuration and every tensor are equal, bit by
    bit and of one type."""
    return config_difference(expected.config, found.config) or tensor_difference(expected, found)


def config_difference(expected: DrafterConfig, found: DrafterConfig) -> str | None:
    """The first field of the configuration that differs, with both values."""
    for field in fields(DrafterConfig):
        wanted = cast("object", getattr(expected, field.name))
        got = cast("object", getattr(found, field.name))
        if wanted != got:
            return f"{field.name} is {got!r} instead of {wanted!r}"
    return None


def tensor_difference(expected: DrafterCheckpoint, found: DrafterCheckpoint) -> str | None:
    """The first tensor that differs."""
    wanted, got = _all_tensors(expected), _all_tensors(found)
    for name in sorted(wanted.keys() | got.keys()):
        if name not in got or name not in wanted:
            return f"tensor {name} is {'missing' if name in wanted else 'unexpected'}"
        left, right = wanted[name], got[name]
        if left.dtype != right.dtype or left.shape != right.shape:
            return (
                f"tensor {name} is {right.dtype} {list(right.shape)} instead of {left.dtype}"
                f" {list(left.shape)}"
            )
        if not torch.equal(left, right):
            return f"tensor {name} has other values"
    return None


def shape_difference(expected: DrafterCheckpoint, found: DrafterCheckpoint) -> str | None:
    """The first tensor of another shape, for types that round."""
    wanted = {name: tensor.shape for name, tensor in _all_tensors(expected).items()}
    got = {name: tensor.shape for name, tensor in _all_tensors(found).items()}
    for name in sorted(wanted.keys() | got.keys()):
        if wanted.get(name) != got.get(name):
            return f"tensor {name} is {got.get(name)} instead of {wanted.get(name)}"
    return None


def _all_tensors(checkpoint: DrafterCheckpoint) -> Mapping[str, Tensor]:
    optional = {
        "d2t": checkpoint.d2t,
        "lm_head.weight": checkpoint.lm_head,
        "mask_embedding": checkpoint.mask_embedding,
    }
    present = {name: tensor for name, tensor in optional.items() if tensor is not None}
    return {**checkpoint.state, **present}

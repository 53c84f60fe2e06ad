"""Tensors that may be sharded over ranks (DTensor): the own shard, the whole, and back.

A plain tensor is its own shard and its own whole. It moves no data between optimizers or files.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def local(tensor: Tensor) -> Tensor:
    """This rank's part of `tensor`, sharing its memory. No communication."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return tensor.detach()


def locals_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [local(tensor) for tensor in tensors]


def whole(tensor: Tensor) -> Tensor:
    """All of `tensor`; collective when it is sharded, so that every rank has to call it."""
    if isinstance(tensor, DTensor):
        return tensor.full_tensor()
    return tensor.detach()


def shard_like(full: Tensor, like: Tensor) -> Tensor:
    """The part of `full`, which every rank holds alike, that this rank holds of `like`."""
    if isinstance(like, DTensor):
        mesh, placements = like.device_mesh, like.placements
        # No source rank: each rank cuts its own part out, without communication.
        return local(distribute_tensor(full, mesh, placements, src_data_rank=None))
    return full


@torch.no_grad()
def copy_whole(full: Tensor, into: Tensor) -> None:
    """Write `full`, which every rank holds alike, into `into`, sharded or not."""
    local(into).copy_(shard_like(full.to(into.device), into))

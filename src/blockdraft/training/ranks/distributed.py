"""`Ranks`: the processes of a run, from torchrun's environment or a single one, and their talk.

It knows no model; who splits a model and its gradients over ranks is `parallel.py`.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

from blockdraft.errors import ConfigError, Error

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process's place among the `world_size` ones of the run, and its device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files and speaks."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1


@contextmanager
def joined_ranks(
    device_type: str = "cpu",
    *,
    environment: Mapping[str, str] | None = None,
    timeout_minutes: int = 60,
) -> Generator[Ranks]:
    """The ranks of this run: all that torchrun started, or this process alone.

    Processes talk over NCCL on CUDA and gloo elsewhere; the group is left at the end. Others may
    wait `timeout_minutes` for one that works alone (evaluation, for example). Raises ConfigError
    for an incomplete environment or a device that is not there.
    """
    environment = os.environ if environment is None else environment
    rank, world_size, local_rank = _places(environment)
    device = _device(device_type, local_rank)
    ranks = Ranks(rank=rank, world_size=world_size, device=device)
    if ranks.is_alone:
        yield ranks
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, rank=rank, world_size=world_size, timeout=timedelta(minutes=timeout_minutes)
    )
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def all_reduce_sums(sums: Shaped[Tensor, "*shape"], ranks: Ranks) -> Shaped[Tensor, "*shape"]:
    """The sum of `sums` over all ranks, on each of them. Leaves the argument unchanged."""
    total = sums.detach().to(ranks.device, copy=True)
    if not ranks.is_alone:
        dist.all_reduce(total)
    return total.to(sums.device)


def any_rank(flag: bool, ranks: Ranks) -> bool:
    """Whether `flag` is set on some rank; the same answer on all (a signal reaches only some)."""
    if ranks.is_alone:
        return flag
    return all_reduce_sums(torch.tensor(int(flag)), ranks).item() > 0


def barrier(ranks: Ranks) -> None:
    """Wait for all ranks."""
    # Not dist.barrier: with NCCL it has to guess the device.
    any_rank(False, ranks)


def gather_rows(row: Shaped[Tensor, " length"], ranks: Ranks) -> list[Tensor]:
    """`row` of every rank, in order, on each of them, on the CPU; all of the same length."""
    if ranks.is_alone:
        return [row.detach().cpu()]
    own = row.detach().to(ranks.device)
    rows = [torch.empty_like(own) for _ in range(ranks.world_size)]
    dist.all_gather(rows, own)
    return [one.cpu() for one in rows]


def share_text(text: str | None, ranks: Ranks) -> str | None:
    """The main rank's `text`, on all ranks."""
    if ranks.is_alone:
        return text
    shared: list[str | None] = [text]
    dist.broadcast_object_list(shared, src=0, device=ranks.device)
    return shared[0]


def share_tensor(tensor: Tensor | None, like: Tensor, ranks: Ranks) -> Tensor:
    """The main rank's `tensor`, on all ranks; the others only know its shape and type, `like`."""
    if ranks.is_alone:
        assert tensor is not None
        return tensor
    if ranks.is_main:
        assert tensor is not None
        shared = tensor.detach().to(ranks.device).contiguous()
    else:
        shared = torch.empty(like.shape, dtype=like.dtype, device=ranks.device)
    dist.broadcast(shared, src=0)
    return shared


def share_failure(error: Error | None, ranks: Ranks) -> None:
    """Raise on every rank what went wrong on the main one; nothing when that is None."""
    message = share_text(None if error is None else str(error), ranks)
    if error is not None:
        raise error
    if message is not None:
        raise Error(message)


def _places(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """Rank, number of ranks and rank within this machine."""
    found = [environment.get(name) for name in _TORCHRUN]
    if found[1] is None:
        return 0, 1, 0
    numbers: list[int] = []
    for name, value in zip(_TORCHRUN, found, strict=True):
        if value is None or not value.isdecimal():
            raise ConfigError(
                f"{name} is {value!r} in the environment, expected a number, since WORLD_SIZE is"
                " set; start with torchrun, or unset WORLD_SIZE"
            )
        numbers.append(int(value))
    return numbers[0], numbers[1], numbers[2]


def _device(device_type: str, local_rank: int) -> torch.device:
    if device_type == "cpu":
        return torch.device("cpu")
    if device_type != "cuda":
        raise ConfigError(f"device is {device_type!r}, expected cpu or cuda")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise ConfigError(
            f"process {local_rank} of this machine has no GPU ({count} found); start at most one"
            " process for each GPU, or train with device cpu"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device

"""A model trained by several ranks: replicas (DDP) or shards (FSDP2), and its finished gradient.

It takes no optimizer step. Replicas are not torch's DistributedDataParallel: that regroups its
buckets after the first backward pass, which changes the order of summation, so that from three
ranks on a resumed run is no longer bit-equal to one that went on. Here gradients are summed once a
step, in fixed buckets, after the last micro-batch.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from blockdraft.errors import ConfigError
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.ranks.sharded import locals_of

ParallelMode = Literal["none", "ddp", "fsdp"]

_BUCKET_NUMEL = 16 * 1024 * 1024


class Parallel:
    """`model` as this rank holds it, to be called through `__call__` as its `layers` are.

    Parameter names stay those of the bare model. Build optimizers after this, from `model`.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, mode: ParallelMode) -> None:
        self.model = model
        self.ranks = ranks
        self.mode: ParallelMode = mode

    @contextmanager
    def micro_batch(self, *, last: bool) -> Generator[None]:
        """Around forward and backward of one micro-batch: ranks talk only in the `last` one.

        Every rank needs the same number of micro-batches in a step.
        """
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
        yield

    def finish_gradients(self, total_weight: float, max_norm: float | None = None) -> float:
        """Turn what backward left in `.grad` into the gradient of the step; returns its norm.

        Backward ran on losses that are sums over weighted slots; the gradient is their sum over all
        micro-batches and ranks divided by `total_weight`, the sum of weights over the same. It is
        then scaled down to `max_norm` if longer; the norm returned is the one before. Parameters
        that no loss reached get a zero gradient. A norm that is not finite leaves gradients that
        must not be used.
        """
        assert total_weight > 0, "a step needs slots with a weight"
        gradients = self._gradients()
        if self.mode == "ddp":
            _sum_over_ranks(gradients)
        # FSDP2 averages over ranks.
        scale = (self.ranks.world_size if self.mode == "fsdp" else 1) / total_weight
        norm = self._norm(gradients) * scale
        if max_norm is not None and norm > max_norm:
            scale *= max_norm / norm
        for gradient in gradients:
            gradient.mul_(scale)
        return norm

    def _gradients(self) -> list[Tensor]:
        """This rank's gradients, in the order of the parameters."""
        found: list[Tensor] = []
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                found.append(parameter.grad)
        return locals_of(found)

    def _norm(self, gradients: Sequence[Tensor]) -> float:
        norms = torch.stack([torch.linalg.vector_norm(one.float()) for one in gradients])
        square = norms.double().square().sum()
        if self.mode == "fsdp":
            dist.all_reduce(square)
        return float(square.sqrt())


def parallelize(
    model: nn.Module,
    ranks: Ranks,
    mode: ParallelMode,
    *,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = torch.float32,
) -> Parallel:
    """Make `model` (fp32, on the ranks' device) one model of all ranks: the main rank's.

    "fsdp" shards each element of `model.layers` and the rest; `param_dtype` is what forward and
    backward see of the parameters there (None = as they are), `reduce_dtype` what gradients are
    summed in. With a single rank every mode is "none". Raises ConfigError for several ranks with
    mode "none", and for "fsdp" without layers.
    """
    if ranks.is_alone:
        return Parallel(model, ranks, "none")
    if mode == "none":
        raise ConfigError(
            f"{ranks.world_size} processes were started, but parallel is none, so that each would"
            " train alone; set parallel to ddp or fsdp"
        )
    layers = _layers(model) if mode == "fsdp" else ()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor, src=0)
    if mode == "fsdp":
        policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
        mesh = init_device_mesh(ranks.device.type, (ranks.world_size,))
        for part in (*layers, model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
    return Parallel(model, ranks, mode)


def _layers(model: nn.Module) -> tuple[nn.Module, ...]:
    layers = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ConfigError(
            f"parallel is fsdp, but {type(model).__name__} has no list of layers; use ddp"
        )
    return tuple(layers)


def _sum_over_ranks(gradients: Sequence[Tensor]) -> None:
    """Replace each gradient by its sum over ranks; always in the same buckets."""
    for bucket in _buckets(gradients):
        flat = torch.cat([one.flatten() for one in bucket])
        dist.all_reduce(flat)
        parts = cast(Sequence[Tensor], flat.split([one.numel() for one in bucket]))
        for one, part in zip(bucket, parts, strict=True):
            one.copy_(part.view_as(one))


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for one in gradients:
        same = not bucket or bucket[0].dtype == one.dtype
        if bucket and (not same or sum(b.numel() for b in bucket) + one.numel() > _BUCKET_NUMEL):
            yield bucket
            bucket = []
        bucket.append(one)
    if bucket:
        yield bucket

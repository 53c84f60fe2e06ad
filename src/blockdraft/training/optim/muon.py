"""Muon: momentum, orthogonalized by Newton-Schulz iterations, for the matrices of a model.

It sets no learning rates over time and skips no parameter: `optimizers.py` says what it trains.

The law is that of torch.optim.Muon with `adjust_lr_fn="match_rms_adamw"` (the same bits on one
CPU); that one takes no sharded parameters and repeats all the work on every rank. Sources: Jordan
2024 (Muon), Liu et al. 2025, arXiv 2502.16982 (the scale 0.2 * sqrt(larger side)).

Shape legend: rows <= cols of a matrix, after transposing if need be; batch = matrices in one go.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.ranks.sharded import local, shard_like, whole

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_EPS = 1e-7


class Muon:
    """Trains the named matrices, each of which needs a gradient at every `step`.

    `momentum_of` are the momentum buffers, in fp32, sharded as their parameters.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        momentum: float,
        weight_decay: float,
        num_iterations: int,
        dtype: torch.dtype,
        ranks: Ranks,
    ) -> None:
        """`dtype` is what the iterations compute in; bf16 is enough to learn as well."""
        self._parameters = dict(parameters)
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._num_iterations = num_iterations
        self._dtype = dtype
        self._ranks = ranks
        self._owners = _owners([tuple(p.shape) for p in parameters.values()], ranks.world_size)
        self.momentum_of: dict[str, Tensor] = {
            name: torch.zeros_like(parameter, requires_grad=False)
            for name, parameter in parameters.items()
        }

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(self._parameters.values())

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update of every matrix at learning rate `lr`. All ranks have to call it."""
        updates = [self._update(name, p) for name, p in self._parameters.items()]
        for parameter, update in zip(
            self._parameters.values(), self._orthogonalized(updates), strict=True
        ):
            rows, cols = parameter.shape
            own = local(parameter)
            own.mul_(1 - lr * self._weight_decay)
            scale = 0.2 * math.sqrt(max(rows, cols))
            own.add_(shard_like(update, parameter), alpha=-lr * scale)

    def _update(self, name: str, parameter: nn.Parameter) -> Tensor:
        """The whole matrix to orthogonalize (Nesterov's look-ahead)."""
        assert parameter.grad is not None
        buffer = self.momentum_of[name]
        gradient = parameter.grad
        buffer.lerp_(gradient, 1 - self._momentum)
        return whole(gradient.lerp(buffer, self._momentum).to(self._dtype))

    def _orthogonalized(self, updates: Sequence[Tensor]) -> list[Tensor]:
        """All of `updates` orthogonalized: each rank does its share, then they are exchanged."""
        rank = self._ranks.rank
        mine = [idx for idx, owner in enumerate(self._owners) if owner == rank]
        done = dict(
            zip(
                mine,
                orthogonalize_all([updates[idx] for idx in mine], self._num_iterations),
                strict=True,
            )
        )
        results = [done.get(idx, update).contiguous() for idx, update in enumerate(updates)]
        if not self._ranks.is_alone:
            for result, owner in zip(results, self._owners, strict=True):
                dist.broadcast(result, src=owner)
        return results


def orthogonalize_all(matrices: Sequence[Tensor], num_iterations: int) -> list[Tensor]:
    """`orthogonalize` of each; on an accelerator equal shapes go together.

    On a CPU one batched product is no faster than single ones (measured: 5% slower).
    """
    results = list(matrices)
    groups: dict[tuple[int, ...], list[int]] = {}
    for idx, matrix in enumerate(matrices):
        key = (idx,) if matrix.device.type == "cpu" else tuple(sorted(matrix.shape))
        groups.setdefault(key, []).append(idx)
    for group in groups.values():
        flat = [matrices[idx] if _is_flat(matrices[idx]) else matrices[idx].mT for idx in group]
        stack = flat[0] if len(flat) == 1 else torch.stack(flat)
        done = orthogonalize(stack, num_iterations)
        for idx, one in zip(group, [done] if len(flat) == 1 else list(done), strict=True):
            results[idx] = one if _is_flat(matrices[idx]) else one.mT
    return results


def orthogonalize(
    matrices: Float[Tensor, "*batch rows cols"], num_iterations: int
) -> Float[Tensor, "*batch rows cols"]:
    """Each matrix with its singular values brought near 1 (0.7 to 1.2 after 5).

    Quintic Newton-Schulz: X <- a X + (b A + c A A) X with A = X X^T.
    """
    a, b, c = _COEFFICIENTS
    add_product: Callable[..., Tensor] = torch.addmm if matrices.ndim == 2 else torch.baddbmm
    norms = cast(Tensor, torch.linalg.matrix_norm(matrices, keepdim=True))
    x = matrices / norms.clamp(min=_EPS)
    for _ in range(num_iterations):
        gram = x @ x.mT
        polynomial = add_product(gram, gram, gram, beta=b, alpha=c)
        x = add_product(x, polynomial, x, beta=a)
    return x


def _is_flat(matrix: Tensor) -> bool:
    return matrix.shape[-2] <= matrix.shape[-1]


def _owners(shapes: Sequence[tuple[int, ...]], world_size: int) -> list[int]:
    """Which rank orthogonalizes which matrix: the most expensive first, to the least busy rank."""
    costs = [min(shape) ** 2 * (4 * max(shape) + 2 * min(shape)) for shape in shapes]
    load = [0] * world_size
    owners = [0] * len(shapes)
    for idx in sorted(range(len(shapes)), key=lambda idx: -costs[idx]):
        owners[idx] = load.index(min(load))
        load[owners[idx]] += costs[idx]
    return owners

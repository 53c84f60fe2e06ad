"""A drafter whose drafts are random lattices: useless on purpose, for the law of paths.

Like `RandomDrafter` it reads no features and is fixed by (seed, position, anchor).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import DraftLattice
from blockdraft.testing.laws import prefix_hash


class RandomLatticeDrafter:
    """`num_candidates` random ids a slot, with random scores for all pairs of neighbors."""

    taps: tuple[int, ...] = ()

    def __init__(
        self, vocab_size: int, block_size: int, num_candidates: int, *, seed: int = 0
    ) -> None:
        self.block_size = block_size
        self._vocab_size = vocab_size
        self._num_candidates = num_candidates
        self._seed = seed

    def open(self) -> "RandomLatticeState":
        return RandomLatticeState(self._vocab_size, self._num_candidates, self._seed)


class RandomLatticeState:
    """The number of committed tokens; all else is computed anew."""

    def __init__(self, vocab_size: int, num_candidates: int, seed: int) -> None:
        self._vocab_size = vocab_size
        self._num_candidates = num_candidates
        self._seed = seed
        self.context_len = 0

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> DraftLattice:
        return random_lattice(
            self._vocab_size,
            width - 1,
            self._num_candidates,
            seed=prefix_hash((self.context_len, anchor), self._seed),
        )


def random_lattice(
    vocab_size: int, num_slots: int, num_candidates: int, *, seed: int, scale: float = 2.0
) -> DraftLattice:
    """Distinct random candidates in each slot, normal scores of width `scale`, in float64."""
    generator = torch.Generator().manual_seed(seed)
    k = num_candidates
    ids = [torch.randperm(vocab_size, generator=generator)[:k] for _ in range(num_slots)]
    first = scale * torch.randn(k, dtype=torch.float64, generator=generator)
    shape = (max(0, num_slots - 1), k, k)
    pairs = scale * torch.randn(*shape, dtype=torch.float64, generator=generator)
    candidates = torch.stack(ids) if ids else torch.empty(0, k, dtype=torch.long)
    return DraftLattice(candidates, first, pairs)

"""Walks through a `DraftLattice`, left to right: its likeliest path, and its row after any choice.

It knows no request: what is drawn and what is allowed is `choose.py`'s.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import DraftLattice
from blockdraft.errors import DrafterError


def leading_slots(lattice: DraftLattice, max_slots: int, vocab_size: int) -> DraftLattice:
    """The first `max_slots` slots; raises DrafterError for a candidate outside the vocabulary."""
    candidates = lattice.candidates[:max_slots]
    if candidates.numel():
        low, high = int(candidates.min()), int(candidates.max())
        if low < 0 or high >= vocab_size:
            raise DrafterError(
                f"the drafter's candidates are ids {low}..{high} and the target's vocabulary has "
                f"{vocab_size}; candidates must be ids of the target"
            )
    return DraftLattice(candidates, lattice.first, lattice.pairs[: max(0, len(candidates) - 1)])


def likeliest_path(lattice: DraftLattice) -> tuple[int, ...]:
    """The best candidate of each slot after that of the slot before.

    It ends before the first slot whose scores there are not finite (its largest one, or any NaN).
    """
    if not lattice.candidates.numel():
        return ()
    best_first = lattice.first.max(-1, keepdim=True)
    best_pairs = lattice.pairs.max(-1)
    # The first slot has one row of scores, after the anchor: as if that were candidate 0.
    finite = [cast(list[bool], best_first.values.isfinite().tolist())]
    finite += cast(list[list[bool]], best_pairs.values.isfinite().tolist())
    ranks = [cast(list[int], best_first.indices.tolist())]
    ranks += cast(list[list[int]], best_pairs.indices.tolist())
    candidates = cast(list[list[int]], lattice.candidates.tolist())
    path: list[int] = []
    rank = 0
    for slot, ids in enumerate(candidates):
        if not finite[slot][rank]:
            break
        rank = ranks[slot][rank]
        path.append(ids[rank])
    return tuple(path)


def row_after(
    lattice: DraftLattice, slot: int, previous_id: int | None, vocab_size: int
) -> Float[Tensor, " vocab"] | None:
    """The scores of `slot` as logits over the vocabulary, -inf for what is no candidate.

    `previous_id` was chosen in the slot before (None for the first slot). None when it was none of
    that slot's candidates, so that nothing is known of what follows it.
    """
    scores = lattice.first
    if previous_id is not None:
        ranks = (lattice.candidates[slot - 1] == previous_id).nonzero()
        if not len(ranks):
            return None
        scores = lattice.pairs[slot - 1, int(ranks[0, 0])]
    row = scores.new_full((vocab_size,), -torch.inf)
    return row.index_copy(0, lattice.candidates[slot], scores)

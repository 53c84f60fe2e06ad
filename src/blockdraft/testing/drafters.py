"""Drafters whose acceptance is known beforehand: oracles, a list of drafts, random noise.

They need no training and read no features; the text that they lead to must always be the same.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import (
    Draft,
    DraftIds,
    DraftLogits,
    TargetModel,
    TargetState,
)
from blockdraft.testing.laws import prefix_hash


class OracleDrafter:
    """Drafts the target's own greedy continuation: its first `num_right` tokens, then wrong ones.

    `num_right=None` is always right and 0 always wrong. It asks the target itself, through a
    private state, so it fits any TargetModel; right means the target's argmax without processors.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        target: TargetModel,
        block_size: int,
        *,
        num_right: int | None = None,
        as_logits: bool = False,
    ) -> None:
        self.block_size = block_size
        self._target = target
        self._num_right = block_size if num_right is None else num_right
        self._as_logits = as_logits

    def open(self) -> "OracleState":
        return OracleState(
            self._target.open(), self._target.spec.vocab_size, self._num_right, self._as_logits
        )


class OracleState:
    """A private target state that follows the committed tokens."""

    def __init__(
        self, state: TargetState, vocab_size: int, num_right: int, as_logits: bool
    ) -> None:
        self._state = state
        self._vocab_size = vocab_size
        self._num_right = num_right
        self._as_logits = as_logits

    @property
    def context_len(self) -> int:
        return self._state.context_len

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        if ids:
            self._state.prefill(torch.tensor(list(ids)))

    def propose(self, anchor: int, width: int) -> Draft:
        right = self._continuation(anchor, min(self._num_right + 1, width - 1))
        draft = right[: self._num_right]
        if len(right) > self._num_right:
            draft.append((right[self._num_right] + 1) % self._vocab_size)
        draft += [0] * (width - 1 - len(draft))
        if self._as_logits:
            return DraftLogits(one_hot_logits(draft, self._vocab_size))
        return DraftIds(tuple(draft))

    def _continuation(self, anchor: int, num_tokens: int) -> list[int]:
        # Each round feeds the whole chain and rolls it back: slow, but it uses nothing but the
        # promise that an empty commit leaves the state as it was.
        chain = [anchor]
        for _ in range(num_tokens):
            logits = self._state.verify(torch.tensor(chain)).logits
            self._state.commit([])
            chain.append(int(logits[-1].argmax()))
        return chain[1:]


class ListDrafter:
    """Proposes the given drafts one after the other, then none; each is cut to the width asked."""

    taps: tuple[int, ...] = ()

    def __init__(self, drafts: Sequence[Sequence[int]], block_size: int) -> None:
        self.block_size = block_size
        self._drafts = [tuple(draft) for draft in drafts]

    def open(self) -> "ListState":
        return ListState(self._drafts)


class ListState:
    """The drafts that were not proposed yet, and every (anchor, width) that was asked for."""

    def __init__(self, drafts: Sequence[tuple[int, ...]]) -> None:
        self._left = list(drafts)
        self.asked: list[tuple[int, int]] = []
        self.context_len = 0

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> Draft:
        self.asked.append((anchor, width))
        draft = self._left.pop(0) if self._left else ()
        return DraftIds(draft[: width - 1])


class RandomDrafter:
    """Random draft logits, or random ids: fixed by (seed, position, anchor), useless on purpose."""

    taps: tuple[int, ...] = ()

    def __init__(
        self, vocab_size: int, block_size: int, *, seed: int = 0, as_logits: bool = True
    ) -> None:
        self.block_size = block_size
        self._vocab_size = vocab_size
        self._seed = seed
        self._as_logits = as_logits

    def open(self) -> "RandomState":
        return RandomState(self._vocab_size, self._seed, self._as_logits)


class RandomState:
    """The number of committed tokens; all else is computed anew."""

    def __init__(self, vocab_size: int, seed: int, as_logits: bool) -> None:
        self._vocab_size = vocab_size
        self._seed = seed
        self._as_logits = as_logits
        self.context_len = 0

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> Draft:
        seed = prefix_hash((self.context_len, anchor), self._seed)
        generator = torch.Generator().manual_seed(seed)
        shape = (width - 1, self._vocab_size)
        logits = 2.0 * torch.randn(*shape, dtype=torch.float64, generator=generator)
        if self._as_logits:
            return DraftLogits(logits)
        return DraftIds(tuple(int(token_id) for token_id in logits.argmax(-1)))


def one_hot_logits(ids: Sequence[int], vocab_size: int) -> Float[Tensor, "slots vocab"]:
    """Finite logits, float64, that put nearly all probability on `ids`."""
    logits = torch.zeros(len(ids), vocab_size, dtype=torch.float64)
    logits[torch.arange(len(ids)), torch.tensor(list(ids), dtype=torch.long)] = 30.0
    return logits


def logits_of(draft: Draft) -> Float[Tensor, "slots vocab"]:
    """The logits of a draft that is expected to have some."""
    assert isinstance(draft, DraftLogits), f"a draft of another kind: {type(draft).__name__}"
    return draft.logits

"""`ContextBacklog`: committed tokens that the drafter has not taken in yet, for every request.

While a request does not speculate its features wait here, bounded, and become the drafter's keys
and values in one product when it speculates again; past the bound they are handed on in chunks.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.engine.sides import Extension

MOST_WAITING = 512
"""Tokens of one request that may wait (their features: 512 * taps * hidden numbers)."""


class ContextBacklog:
    """Per request, which tokens the drafter has ([0, complete)) and which wait behind them."""

    def __init__(self) -> None:
        self._complete: dict[int, int] = {}
        self._ids: dict[int, list[int]] = {}
        self._features: dict[int, list[Tensor]] = {}

    def open(self, key: int, complete: int) -> None:
        """A request whose first `complete` tokens the drafter already has (prefix reuse)."""
        self._complete[key] = complete
        self._ids[key] = []
        self._features[key] = []

    def add(
        self, key: int, ids: Sequence[int], features: Float[Tensor, "new feature"] | None
    ) -> None:
        """Committed tokens behind those that are known."""
        self._ids[key] += ids
        if features is not None:
            self._features[key].append(_unshared(features))

    def complete(self, key: int) -> int:
        """How many tokens the drafter has, once everything taken so far is handed to it."""
        return self._complete[key]

    def is_full(self, key: int) -> bool:
        return len(self._ids[key]) >= MOST_WAITING

    def take(self, key: int, base: int) -> Extension | None:
        """What waits, as one extension; None when nothing does."""
        ids = tuple(self._ids[key])
        if not ids:
            return None
        waiting = self._features[key]
        features = None
        if waiting:
            features = waiting[0] if len(waiting) == 1 else torch.cat(waiting)
        extension = Extension(key, base, self._complete[key], ids, features)
        self._complete[key] += len(ids)
        self._ids[key], self._features[key] = [], []
        return extension

    def forget(self, key: int) -> None:
        self._complete.pop(key, None)
        self._ids.pop(key, None)
        self._features.pop(key, None)


def _unshared(features: Float[Tensor, "new feature"]) -> Float[Tensor, "new feature"]:
    """A copy where a few rows would keep the features of a whole pass alive."""
    used = features.numel() * features.element_size()
    return features.clone() if 2 * used < features.untyped_storage().nbytes() else features

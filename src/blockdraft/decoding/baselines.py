"""Drafters that need no training: none at all, and prompt lookup (copying what followed before).

They serve as baselines through the same loop as DFlash; they know nothing of models.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import DraftIds
from blockdraft.errors import ConfigError


class NoDrafter:
    """Never drafts: the loop is then plain autoregressive decoding."""

    block_size = 1
    taps: tuple[int, ...] = ()

    def open(self) -> "NoDraftState":
        return NoDraftState()


class NoDraftState:
    """Counts the context and proposes nothing."""

    def __init__(self) -> None:
        self.context_len = 0

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> DraftIds:
        return DraftIds(())


class PromptLookupDrafter:
    """Proposes what followed the latest earlier occurrence of the current n-gram.

    Saxena 2023, "Prompt Lookup Decoding". Longer n-grams are tried first.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, block_size: int = 8, max_ngram: int = 3) -> None:
        if block_size < 2 or max_ngram < 1:
            raise ConfigError(
                f"prompt lookup needs block_size >= 2 and max_ngram >= 1, "
                f"not {block_size} and {max_ngram}"
            )
        self.block_size = block_size
        self._max_ngram = max_ngram

    def open(self) -> "PromptLookupState":
        return PromptLookupState(self._max_ngram)


class PromptLookupState:
    """Indexes, for every n-gram of the committed tokens, where its latest continuation starts."""

    def __init__(self, max_ngram: int) -> None:
        self._max_ngram = max_ngram
        self._ids: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}

    @property
    def context_len(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        for token_id in ids:
            self._ids.append(token_id)
            end = len(self._ids)
            for length in range(1, min(self._max_ngram, end) + 1):
                self._continuations[tuple(self._ids[end - length :])] = end

    def propose(self, anchor: int, width: int) -> DraftIds:
        history = [*self._ids[max(0, len(self._ids) - self._max_ngram + 1) :], anchor]
        for length in range(min(self._max_ngram, len(history)), 0, -1):
            start = self._continuations.get(tuple(history[len(history) - length :]))
            if start is not None:
                following = [*self._ids[start : start + width - 1], anchor]
                return DraftIds(tuple(following[: width - 1]))
        return DraftIds(())

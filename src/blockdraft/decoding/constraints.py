"""What can change the most likely token: bias, bans, bad words, minimum length, penalties.

Reshaping (temperature, top-k, ...) is in `shaping.py`; the order of all of them in `chain.py`.
"""

from collections.abc import Mapping, Sequence

import torch

from blockdraft.decoding.history import TokenHistory
from blockdraft.decoding.rows import VocabRow

NEVER = float("-inf")


def add_bias(logits: VocabRow, bias: Mapping[int, float]) -> VocabRow:
    """Add a constant to the logits of chosen tokens."""
    ids = torch.tensor(list(bias.keys()), dtype=torch.long, device=logits.device)
    values = torch.tensor(list(bias.values()), dtype=logits.dtype, device=logits.device)
    return logits.index_add(0, ids, values)


def keep_only(logits: VocabRow, allowed_ids: Sequence[int]) -> VocabRow:
    """Forbid every token but the allowed ones."""
    allowed = torch.tensor(list(allowed_ids), dtype=torch.long, device=logits.device)
    return torch.full_like(logits, NEVER).index_copy(0, allowed, logits[allowed])


def forbid(logits: VocabRow, banned_ids: Sequence[int]) -> VocabRow:
    """Forbid the given tokens."""
    banned = torch.tensor(list(banned_ids), dtype=torch.long, device=logits.device)
    return logits.index_fill(0, banned, NEVER)


class MinTokens:
    """Forbids the stop ids until `min_tokens` tokens have come before them."""

    keeps_argmax = False

    def __init__(self, min_tokens: int, stop_ids: Sequence[int]) -> None:
        self._min_tokens = min_tokens
        self._stop_ids = tuple(stop_ids)
        self._num_committed = 0

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        if self._num_committed + len(prefix) >= self._min_tokens:
            return logits
        return forbid(logits, self._stop_ids)

    def advance(self, ids: Sequence[int]) -> None:
        self._num_committed += len(ids)

    def rollback(self, count: int) -> None:
        self._num_committed -= count


class BadWords:
    """Forbids the token that would complete a forbidden sequence inside the output."""

    keeps_argmax = False

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self._words = [tuple(word) for word in words]
        self._longest_start = max(len(word) for word in self._words) - 1
        self._history = TokenHistory()
        self.advance = self._history.advance
        self.rollback = self._history.rollback

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        start = max(0, len(self._history.output) - self._longest_start)
        recent = (*self._history.output[start:], *prefix)
        closing = [
            last
            for *first, last in self._words
            if len(first) <= len(recent) and recent[len(recent) - len(first) :] == tuple(first)
        ]
        return forbid(logits, closing) if closing else logits


class RepetitionPenalty:
    """Divides positive and multiplies negative logits of every token seen in prompt or output.

    Keskar et al. 2019 (CTRL), section 4.1, with the sign convention that all engines use.
    """

    keeps_argmax = False

    def __init__(self, penalty: float, prompt_ids: Sequence[int]) -> None:
        self._penalty = penalty
        self._history = TokenHistory(prompt_ids)
        self.advance = self._history.advance
        self.rollback = self._history.rollback

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        seen = torch.tensor(list(self._history.counts_with(prefix)), device=logits.device)
        if not len(seen):
            return logits
        chosen = logits[seen]
        penalized = torch.where(chosen > 0, chosen / self._penalty, chosen * self._penalty)
        return logits.index_copy(0, seen, penalized)


class OutputPenalties:
    """Subtracts `presence` once and `frequency` per occurrence of a token in the output."""

    keeps_argmax = False

    def __init__(self, presence: float, frequency: float) -> None:
        self._presence = presence
        self._frequency = frequency
        self._history = TokenHistory()
        self.advance = self._history.advance
        self.rollback = self._history.rollback

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        counts = self._history.counts_with(prefix)
        if not counts:
            return logits
        ids = torch.tensor(list(counts.keys()), device=logits.device)
        occurrences = torch.tensor(list(counts.values()), device=logits.device).to(logits.dtype)
        return logits.index_add(0, ids, -(self._presence + self._frequency * occurrences))

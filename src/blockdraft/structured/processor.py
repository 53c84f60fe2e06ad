"""`GrammarProcessor`: keeps a request's output inside its grammar, along any drafted prefix.

It compiles nothing and knows no JSON. docs/structured.md says where it stands in the chain.
"""

import time
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from blockdraft.errors import RequestError
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.native import CompiledGrammar, Matcher, Vocabulary, unpack


class GrammarProcessor:
    """A `RowProcessor`; which tokens it forbids depends on the tokens before the row alone.

    After the whole grammar was matched only stop ids are left; so also after a stop id (where a
    request ignores them) and after a token that the grammar does not allow, which only a draft can
    hold: verification rejects it, so nothing behind it counts.

    Token ranges of `_path`, the tokens that it follows:

        [0, committed)             the request's output
        [committed, len)           the last drafted prefix, kept because the next one repeats it
        [0, accepted)              what the matcher has taken; the rest came after a wrong token
    """

    keeps_argmax = False

    def __init__(
        self, compiled: CompiledGrammar, vocabulary: Vocabulary, limits: GrammarLimits
    ) -> None:
        self._matcher = Matcher(compiled, vocabulary)
        self._vocab_size = vocabulary.vocab_size
        self._stop_ids = frozenset(vocabulary.stop_ids)
        self._limits = limits
        self._path: list[int] = []
        self._num_committed = 0
        self._num_accepted = 0
        self._forbidden: dict[int, Bool[Tensor, " vocab"]] = {}  # by number of tokens before
        self._seconds = 0.0
        self._slowest = 0.0

    def mask(self, logits: Float[Tensor, " vocab"], prefix: Sequence[int]) -> Tensor:
        """Raises RequestError for a row of another vocabulary or a grammar that is too slow."""
        if logits.shape != (self._vocab_size,):
            raise RequestError(
                f"the grammar is for rows of {self._vocab_size} logits and got "
                f"{tuple(logits.shape)}; compile it with the target's vocab_size"
            )
        self._check_time()
        started = time.thread_time()
        forbidden = self._forbidden_after(self._follow(prefix), logits.device)
        self._count(time.thread_time() - started)
        return logits.masked_fill(forbidden, -torch.inf)

    def advance(self, ids: Sequence[int]) -> None:
        started = time.thread_time()
        self._num_committed = self._follow(ids)
        self._count(time.thread_time() - started)
        for length in [n for n in self._forbidden if n < self._num_committed]:
            del self._forbidden[length]

    def rollback(self, count: int) -> None:
        assert 0 <= count <= self._num_committed
        self._num_committed -= count
        self._cut(self._num_committed)

    def _follow(self, prefix: Sequence[int]) -> int:
        """Make the path begin with the committed tokens + `prefix`; the number of those."""
        for offset, token_id in enumerate(prefix):
            position = self._num_committed + offset
            if position < len(self._path):
                if self._path[position] == token_id:
                    continue
                self._cut(position)
            self._take(token_id)
        return self._num_committed + len(prefix)

    def _take(self, token_id: int) -> None:
        is_legal = self._num_accepted == len(self._path) and not self._has_ended()
        self._path.append(token_id)
        if is_legal and self._matcher.accept(token_id):
            self._num_accepted += 1

    def _cut(self, length: int) -> None:
        if self._num_accepted > length:
            self._matcher.rollback(self._num_accepted - length)
            self._num_accepted = length
        del self._path[length:]
        for longer in [n for n in self._forbidden if n > length]:
            del self._forbidden[longer]

    def _has_ended(self) -> bool:
        return self._num_accepted > 0 and self._path[self._num_accepted - 1] in self._stop_ids

    def _forbidden_after(self, length: int, device: torch.device) -> Bool[Tensor, " vocab"]:
        found = self._forbidden.get(length)
        if found is None or found.device != device:
            self._cut(length)
            found = self._forbidden[length] = self._next_forbidden(device)
        return found

    def _next_forbidden(self, device: torch.device) -> Bool[Tensor, " vocab"]:
        if self._num_accepted < len(self._path) or self._has_ended():
            forbidden = torch.ones(self._vocab_size, dtype=torch.bool, device=device)
            forbidden[sorted(self._stop_ids)] = False
            return forbidden
        return ~unpack(self._matcher.allowed().to(device), self._vocab_size)

    def _count(self, seconds: float) -> None:
        self._seconds += seconds
        self._slowest = max(self._slowest, seconds)

    def _check_time(self) -> None:
        slow = self._slowest > self._limits.step_seconds
        if slow or self._seconds > self._limits.request_seconds:
            raise RequestError(
                f"the grammar is too ambiguous to follow (the slowest token took "
                f"{self._slowest:.2f} s, all {self._seconds:.1f} s); give every text one reading: "
                "no repetition inside a repetition, no rule that can be empty inside one"
            )

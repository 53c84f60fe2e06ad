"""The token counts that penalties look at, with the exact undo that a rollback needs.

It knows nothing of logits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence


class TokenHistory:
    """Output tokens in order and how often each occurs, next to the counts of the prompt."""

    def __init__(self, prompt_ids: Iterable[int] = ()) -> None:
        self.output: list[int] = []
        self._counts = Counter(prompt_ids)

    def counts_with(self, prefix: Sequence[int]) -> Counter[int]:
        """Counts over prompt, output and `prefix`."""
        return self._counts + Counter(prefix)

    def advance(self, ids: Sequence[int]) -> None:
        self.output.extend(ids)
        self._counts.update(ids)

    def rollback(self, count: int) -> None:
        start = len(self.output) - count
        self._counts.subtract(self.output[start:])
        self._counts = +self._counts
        del self.output[start:]

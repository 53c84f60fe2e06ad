"""The one seam for everything that changes logits: `RowProcessor`, and the chain of a request.

A row is the target's (or drafter's) logits for one output position. It defines no processor.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from blockdraft.errors import RequestError

VocabRow = Float[Tensor, " vocab"]


@runtime_checkable
class RowProcessor(Protocol):
    """Turns the logits of one output position into the logits that are decided on.

    It is stateful along one request: `advance` tells it which tokens were committed. Between
    commits it is asked about positions further on, whose `prefix` is what has been drafted after
    the committed tokens; so plain decoding and verification see the same history and get the same
    row. -inf forbids a token.
    """

    @property
    def keeps_argmax(self) -> bool:
        """Whether it can never change which token is most likely (temperature, top-k, ...).

        Such processors are skipped where only the most likely token is wanted.
        """
        ...

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        """The processed row for the position after committed tokens + `prefix`; pure."""
        ...

    def advance(self, ids: Sequence[int]) -> None:
        """Take in committed tokens."""
        ...

    def rollback(self, count: int) -> None:
        """Forget the last `count` committed tokens."""
        ...


class Stateless:
    """A `RowProcessor` that looks at the row alone, never at the history."""

    def __init__(
        self, function: Callable[[VocabRow], VocabRow], *, keeps_argmax: bool = False
    ) -> None:
        self.keeps_argmax = keeps_argmax
        self._function = function

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        return self._function(logits)

    def advance(self, ids: Sequence[int]) -> None:
        pass

    def rollback(self, count: int) -> None:
        pass


class RowChain:
    """A request's processors in order; itself a `RowProcessor`."""

    def __init__(self, processors: Sequence[RowProcessor]) -> None:
        self._all = tuple(processors)
        self._constraints = tuple(p for p in self._all if not p.keeps_argmax)

    @property
    def keeps_argmax(self) -> bool:
        return not self._constraints

    def mask(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        """Raises RequestError when a processor changes the length of the row."""
        processed = logits
        for processor in self._all:
            processed = processor.mask(processed, prefix)
        if processed.shape != logits.shape:
            raise RequestError(
                f"the request's processors made a row of {tuple(processed.shape)} of one of "
                f"{tuple(logits.shape)}; a processor must keep the vocabulary (-inf forbids)"
            )
        return processed

    def constrain(self, logits: VocabRow, prefix: Sequence[int]) -> VocabRow:
        """Like `mask`, leaving out what can't change the most likely token."""
        for processor in self._constraints:
            logits = processor.mask(logits, prefix)
        return logits

    def advance(self, ids: Sequence[int]) -> None:
        for processor in self._all:
            processor.advance(ids)

    def rollback(self, count: int) -> None:
        for processor in self._all:
            processor.rollback(count)

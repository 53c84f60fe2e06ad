"""`DrafterContexts`: keeps every request's drafter context up to date, no sooner than needed.

It hands committed tokens to the draft side in one product for all requests that are about to
speculate; the others wait in the backlog (`features.py`).
"""

from collections.abc import Callable, Iterable, Sequence

from jaxtyping import Float
from torch import Tensor

from blockdraft.engine.features import ContextBacklog
from blockdraft.engine.sides import DraftSide

BaseOf = Callable[[int], int]
"""The first pool row of a request."""


class DrafterContexts:
    """The draft side together with what it has not seen yet."""

    def __init__(self, side: DraftSide) -> None:
        self.side = side
        self._backlog = ContextBacklog()
        self._lost: dict[int, None] = {}

    def open(self, key: int, complete: int) -> None:
        """A request got a slot; the drafter has its first `complete` tokens (prefix reuse)."""
        self._backlog.open(key, complete)

    def add(
        self, key: int, ids: Sequence[int], features: Float[Tensor, "new feature"] | None
    ) -> None:
        """Committed tokens; nothing is computed yet."""
        if key not in self._lost:
            self._backlog.add(key, ids, features)

    def complete(self, key: int) -> int:
        """Tokens of a request that the drafter has, as far as others may reuse them."""
        return 0 if key in self._lost else self._backlog.complete(key)

    def can_draft(self, key: int) -> bool:
        """False after a failure left a hole in the request's context."""
        return key not in self._lost

    def catch_up(self, keys: Iterable[int], base_of: BaseOf) -> int:
        """Hand over all that waits for `keys`; the number of tokens.

        When the drafter raises, these requests are not drafted for any more: what it has of them
        is unknown.
        """
        taken = [self._backlog.take(key, base_of(key)) for key in keys if key not in self._lost]
        extensions = [extension for extension in taken if extension is not None]
        try:
            self.side.extend(extensions)
        except BaseException:
            self._lost |= dict.fromkeys(extension.key for extension in extensions)
            raise
        return sum(len(extension.ids) for extension in extensions)

    def catch_up_full(self, keys: Iterable[int], base_of: BaseOf) -> None:
        """The same for those of `keys` whose backlog has reached its bound."""
        full = [key for key in keys if key not in self._lost and self._backlog.is_full(key)]
        if full:
            self.catch_up(full, base_of)

    def forget(self, key: int) -> None:
        """A request lost its slot or ended."""
        self._backlog.forget(key)
        self._lost.pop(key, None)
        self.side.forget(key)

"""`KnownTextDrafter`: drafts from texts that are known beforehand, as right or wrong as asked.

Unlike `OracleDrafter` it never asks the target, so a target that is rolled back badly can't hide
behind drafts that are wrong in the same way.
"""

from collections.abc import Callable, Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.interfaces import Draft, DraftIds

NumRight = Callable[[int], int]
"""From the number of tokens that are known so far to the drafts that are right at this step."""


class KnownTextDrafter:
    """Drafts the continuation of whichever of the known texts begins with the prompt.

    `texts`: prompt to continuation; no prompt may begin another one's prompt and text. Of each
    draft the first `num_right(position)` tokens are the text's, the next one is another token, and
    so are the rest: where the text ends or was left, all of them are wrong.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        texts: Mapping[tuple[int, ...], Sequence[int]],
        block_size: int,
        vocab_size: int,
        num_right: NumRight,
    ) -> None:
        self.block_size = block_size
        self._texts = [(*prompt, *text) for prompt, text in texts.items()]
        self._vocab_size = vocab_size
        self._num_right = num_right

    def open(self) -> "KnownTextState":
        return KnownTextState(self._texts, self._vocab_size, self._num_right)


class KnownTextState:
    """The committed tokens of one request."""

    def __init__(
        self, texts: Sequence[tuple[int, ...]], vocab_size: int, num_right: NumRight
    ) -> None:
        self._texts = texts
        self._vocab_size = vocab_size
        self._num_right = num_right
        self._ids: list[int] = []

    @property
    def context_len(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        self._ids.extend(ids)

    def propose(self, anchor: int, width: int) -> Draft:
        known = (*self._ids, anchor)
        right = self._continuation(known, width - 1)
        num_right = self._num_right(len(known))
        return DraftIds(
            tuple(
                token_id if slot < num_right and token_id >= 0 else self._wrong(token_id)
                for slot, token_id in enumerate(right)
            )
        )

    def _continuation(self, known: tuple[int, ...], num_tokens: int) -> list[int]:
        """The next tokens of the text under way, -1 where none is known."""
        found = [text for text in self._texts if text[: len(known)] == known]
        ids = list(found[0][len(known) : len(known) + num_tokens]) if found else []
        return ids + [-1] * (num_tokens - len(ids))

    def _wrong(self, token_id: int) -> int:
        return (token_id + 1) % self._vocab_size

"""`Emission`: what one request has emitted, and the rules that end it.

Stop ids, stop strings, the token limit and the context limit are decided here, token by token, so
that several tokens a step end an answer exactly where one token a step would.
"""

from collections.abc import Sequence
from typing import Literal

from blockdraft.decoding.text import DecodeText, TextStream

FinishReason = Literal["stop", "length"]


class Emission:
    """Emitted ids (stop token included), their text (cut before the stop) and the finish reason.

    `max_tokens` is what both the request and the target's context allow. Before `min_tokens`
    tokens nothing but a limit ends the answer.
    """

    def __init__(
        self,
        *,
        max_tokens: int,
        min_tokens: int,
        stop_ids: Sequence[int],
        stop: Sequence[str],
        decode_text: DecodeText | None,
    ) -> None:
        self.ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._stop_ids = frozenset(stop_ids)
        self._text = None if decode_text is None else TextStream(decode_text, stop)

    @property
    def remaining(self) -> int:
        """How many more tokens may be emitted."""
        return self._max_tokens - len(self.ids)

    def add(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Emit `ids` until one of them ends the answer; returns those that were emitted.

        A stop is looked for before the limit: a stop token as the last allowed one is "stop".
        """
        for count, token_id in enumerate(ids, start=1):
            self.ids.append(token_id)
            if self._ends_with(token_id):
                self.finish_reason = "stop"
            elif self.remaining == 0:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                return tuple(ids[:count])
        return tuple(ids)

    def _ends_with(self, token_id: int) -> bool:
        may_stop = len(self.ids) > self._min_tokens
        if may_stop and token_id in self._stop_ids:
            return True
        return self._text is not None and self._text.push(token_id, find_stop=may_stop)

    def take_text(self) -> str:
        """The new text that may be shown: everything once the answer has ended."""
        if self._text is None:
            return ""
        return self._text.take() if self.finish_reason is None else self._text.finish()

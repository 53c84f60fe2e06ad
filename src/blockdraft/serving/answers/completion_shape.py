"""Deltas as OpenAI's completion objects: chunks of a stream, or one text that adds them up.

Pure.
"""

import codecs

from blockdraft.serving.answers.choice import Delta
from blockdraft.serving.answers.logprobs import LogprobShapes
from blockdraft.serving.answers.options import Shown
from blockdraft.serving.answers.step_details import StepDetails
from blockdraft.serving.answers.token_texts import TokenTexts

_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class CompletionChoice:
    """One choice of one prompt. `add` each delta in order."""

    def __init__(
        self,
        index: int,
        shown: Shown,
        tokens: TokenTexts,
        prompt_ids: tuple[int, ...],
    ) -> None:
        self._index = index
        self._shown = shown
        self._tokens = tokens
        self._shapes = LogprobShapes(tokens, as_ids=shown.tokens_as_ids)
        self._details = StepDetails(tokens)
        self._prompt_ids = list(prompt_ids)
        self._text = ""
        self._lists: dict[str, list[object]] = {name: [] for name in _LISTS}
        self._ids: list[int] = []
        self._last: Delta | None = None
        self._letters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def add(self, delta: Delta) -> dict[str, object] | None:
        """The choice of this delta's chunk; None when there is nothing to send."""
        self._last = delta
        self._text += delta.content
        self._ids += delta.ids
        logprobs = None
        if self._shown.logprobs:
            logprobs = self._shapes.completion(delta.ids, delta.logprobs, self._offsets(delta))
            for name in _LISTS:
                new = logprobs[name]
                assert isinstance(new, list)
                self._lists[name] += new
        details = self._details.add(delta) if self._shown.step_details else None
        shows_ids = self._shown.token_ids or self._shown.step_details
        if not (delta.content or logprobs is not None or shows_ids or delta.ending):
            return None
        fields = self._token_fields(list(delta.ids), details, prompt=delta.is_first)
        return self._choice(delta.content, logprobs, delta, fields)

    def whole(self) -> dict[str, object]:
        """The choice of a plain response."""
        assert self._last is not None, "a choice has at least one token"
        logprobs = dict[str, object](self._lists) if self._shown.logprobs else None
        fields = self._token_fields(self._ids, self._details.whole(), prompt=True)
        return self._choice(self._text, logprobs, self._last, fields)

    def _choice(
        self, text: str, logprobs: object, delta: Delta, fields: dict[str, object]
    ) -> dict[str, object]:
        made: dict[str, object] = {
            "index": self._index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": delta.ending,
        }
        if delta.ending is not None:
            made["stop_reason"] = delta.stop_reason
        return {**made, **fields}

    def _offsets(self, delta: Delta) -> list[int]:
        """For each token, how many whole characters of tokens came before it."""
        offsets: list[int] = []
        for token_id in delta.ids:
            offsets.append(self._offset)
            self._offset += len(self._letters.decode(self._tokens.shown(token_id)))
        return offsets

    def _token_fields(self, ids: list[int], details: object, *, prompt: bool) -> dict[str, object]:
        made: dict[str, object] = {}
        if self._shown.token_ids:
            made["token_ids"] = ids
            if prompt:
                made["prompt_token_ids"] = self._prompt_ids
        if self._shown.step_details:
            made["blockdraft"] = details
        return made

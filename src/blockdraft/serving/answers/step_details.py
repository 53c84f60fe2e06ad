"""`StepDetails`: text, draft flag and time of each token, for pages that show how an answer came.

Pure; it changes nothing about the answer.
"""

import codecs

from blockdraft.serving.answers.choice import Delta
from blockdraft.serving.answers.token_texts import TokenTexts


class StepDetails:
    """One choice's details. A character split over tokens is shown with its last one."""

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens
        self._letters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._all: list[dict[str, object]] = []
        self._elapsed_ms = 0.0

    def add(self, delta: Delta) -> dict[str, object]:
        """The details of one delta."""
        new: list[dict[str, object]] = [
            {"text": self._letters.decode(self._tokens.shown(token_id)), "drafted": drafted}
            for token_id, drafted in zip(delta.ids, delta.drafted, strict=True)
        ]
        self._all += new
        self._elapsed_ms = 1000 * delta.seconds
        return {"tokens": new, "elapsed_ms": self._elapsed_ms}

    def whole(self) -> dict[str, object]:
        """The details of the whole answer."""
        return {"tokens": self._all, "elapsed_ms": self._elapsed_ms}

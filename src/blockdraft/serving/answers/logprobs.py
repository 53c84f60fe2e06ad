"""Log-probabilities in the two shapes of the API.

Pure; a log-probability of minus infinity is written as -9999, since JSON has no infinity.
"""

from collections.abc import Sequence

from blockdraft.decoding.completion import TokenLogprobs
from blockdraft.serving.answers.token_texts import TokenTexts

LEAST_LOGPROB = -9999.0


class LogprobShapes:
    """`as_ids`: tokens are written token_id:N instead of their text."""

    def __init__(self, tokens: TokenTexts, *, as_ids: bool) -> None:
        self._tokens = tokens
        self._as_ids = as_ids

    def chat(self, ids: Sequence[int], entries: Sequence[TokenLogprobs]) -> dict[str, object]:
        """OpenAI's chat shape: one entry a token with its bytes, the likeliest ones beside it."""
        content: list[dict[str, object]] = []
        for token_id, entry in zip(ids, entries, strict=True):
            top = [self._token(other, logprob) for other, logprob in entry.top]
            content.append({**self._token(token_id, entry.logprob), "top_logprobs": top})
        return {"content": content, "refusal": None}

    def completion(
        self, ids: Sequence[int], entries: Sequence[TokenLogprobs], offsets: Sequence[int]
    ) -> dict[str, object]:
        """The older shape of four lists; the emitted token is always among the likeliest."""
        tops: list[dict[str, float]] = []
        for token_id, entry in zip(ids, entries, strict=True):
            top = {self._name(other): _finite(logprob) for other, logprob in entry.top}
            top.setdefault(self._name(token_id), _finite(entry.logprob))
            tops.append(top)
        return {
            "tokens": [self._name(token_id) for token_id in ids],
            "token_logprobs": [_finite(entry.logprob) for entry in entries],
            "top_logprobs": tops,
            "text_offset": list(offsets),
        }

    def _name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self._tokens.text(token_id)

    def _token(self, token_id: int, logprob: float) -> dict[str, object]:
        return {
            "token": self._name(token_id),
            "logprob": _finite(logprob),
            "bytes": list(self._tokens.data(token_id)),
        }


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)

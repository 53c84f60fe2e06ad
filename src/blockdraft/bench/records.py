"""`RequestRecord`: all that is known of one request once it has ended.

Everything a bench reports is computed from these.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from blockdraft.bench.chunks import Usage
from blockdraft.bench.response_fields import ResponseCounts

FailureKind = Literal[
    "refused", "prompt too long", "timeout", "no connection", "broken off", "failed"
]


class Failure(NamedTuple):
    """Why a request has no answer. `ends_run`: the next one would fare no better."""

    kind: FailureKind
    message: str
    ends_run: bool = False


class StepRecord(NamedTuple):
    """One verification: tokens it committed, slots it judged, drafts it accepted, when it ended.

    Where a stop ends an answer inside accepted drafts, the slots behind it are not judged.
    """

    committed: int
    drafted: int
    accepted: int
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Times are seconds since the level began. `chunks_s` are the times of chunks with text.

    `first_s` is None where nothing came, or where the endpoint does not stream. `steps` (without
    the prefill, which decides the first token) and `token_ids` are known in process only.
    """

    number: int
    id: str
    category: str
    sent_s: float
    first_s: float | None
    end_s: float
    chunks_s: tuple[float, ...]
    usage: Usage
    finish_reason: str | None
    counts: ResponseCounts | None
    failure: Failure | None
    steps: tuple[StepRecord, ...] | None = None
    token_ids: tuple[int, ...] | None = None

    @property
    def is_ok(self) -> bool:
        return self.failure is None

    @property
    def seconds(self) -> float:
        """End-to-end latency."""
        return self.end_s - self.sent_s

    @property
    def first_token_seconds(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.sent_s

    @property
    def inter_token_seconds(self) -> float | None:
        """Mean time from a token to the next, from the first chunk to the last; None below two."""
        num_tokens = self.usage.completion
        if num_tokens is None or num_tokens < 2 or self.first_s is None or not self.chunks_s:
            return None
        return (self.chunks_s[-1] - self.first_s) / (num_tokens - 1)

    @property
    def tokens_per_second(self) -> float | None:
        """What its user sees: tokens over the end-to-end latency."""
        num_tokens = self.usage.completion
        return None if num_tokens is None or self.seconds <= 0 else num_tokens / self.seconds

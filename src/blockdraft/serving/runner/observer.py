"""`Observer`: who is told what becomes of each request, so that it can be counted.

The runner knows nothing about metrics, and an observer changes nothing about requests.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from blockdraft.decoding import AcceptanceStats, Commit

EndReason = Literal["stop", "length", "abort", "error"]
"""How an accepted request ended: with an answer ("stop", "length"), canceled, or failed."""

RefusalReason = Literal["invalid", "overloaded", "draining", "dead"]
"""Why a request was not accepted."""


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One accepted request. Times are of one monotonic clock, in seconds; None = not yet.

    `submitted` is when it was handed in, `admitted` when the step began that gave it a slot,
    `first_token` and `last_token` when the steps ended that emitted them. `num_tokens` were emitted
    so far and `stats` are those of the last commit.
    """

    request_id: str
    prompt_len: int
    submitted: float
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    num_tokens: int = 0
    num_cached: int = 0
    stats: AcceptanceStats = field(default_factory=AcceptanceStats)

    def take(self, commit: Commit, now: float) -> None:
        """Follow one commit."""
        self.first_token = now if self.first_token is None else self.first_token
        self.last_token = now
        self.num_tokens += len(commit.ids)
        self.num_cached = commit.num_cached
        self.stats = commit.stats


class StepRecord(NamedTuple):
    """One step of the engine: `num_new_tokens` were emitted in `seconds`.

    `num_prompt_tokens` counts whole prompts, in the step that emits their first token.
    """

    num_prompt_tokens: int
    num_new_tokens: int
    seconds: float


class Observer(Protocol):
    """Called on the engine's thread, `refused` on any; must be quick and must not raise.

    For each request either `refused`, or in this order `submitted`, `admitted`, `committed` any
    number of times, `ended` once; one that ends before it got a slot skips the two in the middle.
    """

    def refused(self, reason: RefusalReason) -> None: ...

    def submitted(self, record: RequestRecord) -> None: ...

    def admitted(self, record: RequestRecord) -> None: ...

    def committed(self, record: RequestRecord, commit: Commit, now: float) -> None:
        """`record` is still as it was before this commit."""
        ...

    def ended(self, record: RequestRecord, reason: EndReason, now: float) -> None: ...

    def stepped(self, step: StepRecord) -> None: ...


class Unobserved:
    """An observer that looks away."""

    def refused(self, reason: RefusalReason) -> None:
        pass

    def submitted(self, record: RequestRecord) -> None:
        pass

    def admitted(self, record: RequestRecord) -> None:
        pass

    def committed(self, record: RequestRecord, commit: Commit, now: float) -> None:
        pass

    def ended(self, record: RequestRecord, reason: EndReason, now: float) -> None:
        pass

    def stepped(self, step: StepRecord) -> None:
        pass

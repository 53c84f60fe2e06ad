"""`Running`: what the engine knows of one request, from submission to its last token.

Rows and extents are the scheduler's business; this is the request's own side: its choices, what it
has emitted, its statistics.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from blockdraft.decoding.choose import DraftedBlock
from blockdraft.decoding.completion import Commit, TokenLogprobs
from blockdraft.decoding.params import SamplingParams
from blockdraft.decoding.request import Request
from blockdraft.decoding.stats import AcceptanceStats, StepCount
from blockdraft.errors import Error


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that ends without an answer, and why."""

    error: Error


@dataclass(frozen=True, slots=True)
class Event:
    """What a step did to one request: a commit, or its failure."""

    key: int
    outcome: Commit | Failed


@dataclass(slots=True)
class Running:
    """One request. `started` is set by its first step; waiting in the queue is not decoding.

    `num_cached` counts the tokens of its prompt that were reused.
    """

    key: int
    params: SamplingParams
    request: Request
    prompt_len: int
    started: float | None = None
    prefill_seconds: float | None = None
    num_cached: int = 0
    stats: AcceptanceStats = field(default_factory=AcceptanceStats)

    @property
    def position(self) -> int:
        """The output position that the next token has."""
        return len(self.request.emission.ids)

    @property
    def widest_block(self) -> int:
        """The most positions that its next step may verify."""
        return self.params.widest_block(self.request.emission.remaining)

    @property
    def is_finished(self) -> bool:
        return self.request.emission.finish_reason is not None

    def admit(self, num_reused: int, now: float) -> None:
        """Take a slot; again after a preemption, when what it had emitted has to be fed again."""
        if self.started is None:
            self.started = now
        if not self.request.emission.ids:
            self.num_cached = num_reused

    def emit_first(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Take in the token that the prompt's last row decided."""
        emitted = self.request.emission.add(ids)
        self.request.chain.advance(emitted)
        self.stats = self.stats.with_prefill_token()
        return emitted

    def emit(self, block: DraftedBlock, decided: Sequence[int]) -> tuple[int, ...]:
        """Take in what a verification decided; returns what was emitted before any stop."""
        emitted = self.request.emission.add(decided)
        self.request.chain.advance(emitted)
        num_accepted = min(len(decided) - 1, len(emitted))
        self.stats = self.stats.with_step(
            StepCount(
                num_committed=len(emitted),
                num_drafted=block.num_slots,
                num_accepted=num_accepted,
                num_cut=len(decided) - 1 - num_accepted,
                num_unusable=block.num_slots - len(block.ids),
            )
        )
        return emitted

    def commit(
        self,
        ids: tuple[int, ...],
        num_accepted: int,
        text: str,
        logprobs: tuple[TokenLogprobs, ...],
        now: float,
    ) -> Commit:
        """The step as its consumer sees it."""
        assert self.started is not None
        if self.prefill_seconds is None:
            self.prefill_seconds = now - self.started
        self.stats = self.stats.with_time(
            seconds=now - self.started, prefill_seconds=self.prefill_seconds
        )
        return Commit(
            ids=ids,
            num_accepted=num_accepted,
            text=text,
            logprobs=logprobs,
            stats=self.stats,
            finish_reason=self.request.emission.finish_reason,
            num_cached=self.num_cached,
        )

"""What the scheduler is told (`SchedulerConfig`) and what it answers (`StepPlan`).

Values only; nothing here decides anything.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

from blockdraft.engine.extents import Move
from blockdraft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of one engine, all in rows (one row = one token's keys and values) or requests.

    `rows_ahead`: rows that a decoding request must have free behind its context (the block size).
    `prefill_rows`: rows of prompts that a step may add while others decode; `prefill_rows_alone`
    when nothing decodes. `max_context` counts prompt and output. Raises ConfigError.
    """

    num_slots: int
    num_rows: int
    max_context: int
    page_rows: int = 16
    rows_ahead: int
    prefill_rows: int
    prefill_rows_alone: int
    reuse_prefixes: bool = True

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "reuse_prefixes"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} is {value} but must be at least 1")
        least = 2 + self.rows_ahead
        if self.total_rows < least:
            raise ConfigError(
                f"num_rows is {self.num_rows} (whole pages: {self.total_rows}) but one request "
                f"needs at least {least}; give the key/value memory more tokens"
            )
        if self.max_context < 2:
            raise ConfigError(
                f"max_context is {self.max_context} but must be at least 2: one prompt token and "
                "one to emit"
            )

    @property
    def total_rows(self) -> int:
        """The rows of `num_rows` that make whole pages."""
        return self.num_rows // self.page_rows * self.page_rows


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Feed known_ids(key)[start : start + count] of a request.

    `is_last`: the request decodes from the next step on. `needs_token`: it is the last chunk of a
    request that has emitted nothing, so the logits of its last row decide the first token.
    `was_decoded`: after a preemption, what the request itself had emitted; no chunk mixes both.
    """

    key: int
    start: int
    count: int
    is_last: bool
    needs_token: bool
    was_decoded: bool = False


class Admission(NamedTuple):
    """A request got a slot; its first `num_reused` rows are taken from held content."""

    key: int
    num_reused: int


class StepPlan(NamedTuple):
    """One step. The moves are executed first, in list order; then the pass over all rows.

    `preempted` requests lost slot and rows and wait again (what they emitted stays emitted);
    `decoding` are all running requests that have an anchor, in order of arrival.
    """

    moves: tuple[Move, ...]
    prefill: tuple[PrefillChunk, ...]
    decoding: tuple[int, ...]
    preempted: tuple[int, ...]
    admitted: tuple[Admission, ...]


class PrefixCounters(NamedTuple):
    """Prefix reuse so far: admissions that looked, that found, rows found, rows looked for."""

    lookups: int = 0
    hits: int = 0
    hit_rows: int = 0
    prompt_rows: int = 0

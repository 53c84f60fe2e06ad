"""`LevelResult`: one lane under one arrival pattern, once; the unit that a bench is made of.

It computes nothing; figures are `figures.py`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from blockdraft.bench.acceptance import Acceptance
from blockdraft.bench.config import Arrival
from blockdraft.bench.records import RequestRecord

LaneKind = Literal["plain", "lookup", "block", "autoregressive", "endpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneInfo:
    """One way to decode. `width` is "off", "fixed:N" or "auto"; None where it is not known."""

    name: str
    kind: LaneKind
    drafter: str | None = None
    width: str | None = None
    block_size: int | None = None
    note: str | None = None


class StepTime(NamedTuple):
    """Where the time of the steps that decoded went; prompts that shared a pass are inside."""

    steps: int
    draft_seconds: float
    verify_seconds: float
    other_seconds: float

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds + self.other_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """What was measured. `started` is seconds since 1970; records come in any order.

    `is_complete`: every planned request was sent (a failed one counts) and nothing interrupted it.
    """

    lane: str
    repeat: int
    arrival: Arrival
    num_planned: int
    num_distinct: int
    started: float
    records: tuple[RequestRecord, ...]
    acceptance: Acceptance
    is_complete: bool
    step_time: StepTime | None = None
    energy_joules: float | None = None

    @property
    def num_failed(self) -> int:
        return sum(not record.is_ok for record in self.records)

    @property
    def answered(self) -> tuple[RequestRecord, ...]:
        """Those with an answer, in the order in which they were planned."""
        ok = (record for record in self.records if record.is_ok)
        return tuple(sorted(ok, key=lambda record: record.number))

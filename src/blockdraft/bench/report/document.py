"""What a document of a bench says, as values (schema "blockdraft.bench", version 2).

It reads no file (`reading.py`) and judges nothing (`answers.py`). Seconds, tokens, joules; None
where a figure is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from blockdraft.bench.latency import Spread

Range = tuple[float, float]
"""A lower and an upper end."""
Verdict = Literal["yes", "no", "mixed", "unknown"]


class Load(NamedTuple):
    """How requests arrive: so many at a time, or so many a second. One of them is None."""

    concurrency: int | None
    rate: float | None

    @property
    def title(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} at once"
        return f"{self.rate:g} a second"

    @property
    def phrase(self) -> str:
        """For a sentence, after "at"."""
        if self.concurrency is not None:
            return f"concurrency {self.concurrency}"
        return f"{self.rate:g} requests a second"

    @property
    def amount(self) -> float:
        """What loads are ordered by."""
        return float(self.concurrency) if self.concurrency is not None else self.rate or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One way to decode that was measured. `width` is "off", "fixed:N" or "auto"."""

    name: str
    kind: str
    drafter: str | None
    width: str | None
    block_size: int | None
    note: str | None

    @property
    def is_plain(self) -> bool:
        return self.kind == "plain"

    @property
    def fixed_width(self) -> int | None:
        if self.width is None or not self.width.startswith("fixed:"):
            return None
        number = self.width.removeprefix("fixed:")
        return int(number) if number.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Answers (or stretches of answers) that belong together: a name, or a range [start, end)."""

    name: str | None
    start: float | None
    end: float | None
    answers: int | None
    tau: float | None
    tau_interval: Range | None
    speedup: float | None
    tokens_per_second: float | None

    @property
    def title(self) -> str:
        if self.name is not None:
            return self.name
        start = 0 if self.start is None else self.start
        return f"{start:g} up" if self.end is None else f"{start:g} to {self.end - 1:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that was found for one lane under one load."""

    lane: str
    load: Load
    repeats: int
    answers: int | None
    tau: float | None
    tau_interval: Range | None
    by_position: tuple[float, ...]
    conditional: tuple[float, ...]
    histogram: tuple[float, ...]
    tokens_per_second: float | None
    tokens_per_second_spread: Range | None
    user_tokens_per_second: Spread | None
    user_fairness: float | None
    first_token: Spread | None
    inter_token: Spread | None
    end_to_end: Spread | None
    speedup: float | None
    speedup_spread: Range | None
    latency_speedup: float | None
    draft_share: float | None
    other_share: float | None
    joules_per_token: float | None
    groups: Mapping[str, tuple[Group, ...]]


class Source(NamedTuple):
    """Acceptance as one source tells it; `definition` says what its tau is."""

    name: str
    definition: str
    tau: float | None
    tau_interval: Range | None
    accepted: int | None
    drafted: int | None
    steps: int | None
    acceptance_rate: float | None
    by_position: tuple[float, ...]


class StepTime(NamedTuple):
    """Where the time of a level's steps went, in seconds."""

    steps: int
    draft: float
    verify: float
    other: float

    @property
    def seconds_a_step(self) -> float | None:
        return (self.draft + self.verify + self.other) / self.steps if self.steps else None


class AnswerTimes(NamedTuple):
    """Seconds of one request that was answered: to its first token, between tokens, to its end."""

    first_token: float | None
    inter_token: float | None
    end_to_end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One run of one lane under one load; `times` are those of its answers."""

    lane: str
    load: Load
    repeat: int
    is_complete: bool
    planned: int | None
    answered: int | None
    failed: int
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    reason: str | None
    sources: tuple[Source, ...]
    step_time: StepTime | None
    times: tuple[AnswerTimes, ...]


class VerifyCost(NamedTuple):
    """Seconds of one pass of the target over so many rows."""

    rows: int
    seconds: float


class DraftCost(NamedTuple):
    """Seconds to draft so many tokens. `weights` is "trained" or "random" (cost only)."""

    name: str
    kind: str
    weights: str
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    context_len: int | None
    verify: tuple[VerifyCost, ...]
    draft: tuple[DraftCost, ...]
    step_overhead: float | None


class Divergence(NamedTuple):
    """The first place where an answer differs from plain decoding's."""

    id: str
    position: int
    margin: float | None
    near_tie: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A lane's greedy answers against plain decoding's."""

    lane: str
    compared: int
    identical: int
    epsilon: float | None
    divergences: tuple[Divergence, ...]
    reason: str | None


class StackVerdict(NamedTuple):
    """What an engine will make of the target and a drafter: "ready", "problems" or "unknown".

    `drafter` is None in files that know one pair only.
    """

    engine: str
    verdict: str
    findings: tuple[str, ...]
    drafter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchDocument:
    """`conditions`, `workload` and `settings` are shown as they are."""

    is_complete: bool
    mode: str
    preset: str | None
    started: str | None
    seconds: float | None
    conditions: Mapping[str, object]
    workload: Mapping[str, object]
    settings: Mapping[str, object]
    lanes: tuple[Lane, ...]
    levels: tuple[Level, ...]
    figures: tuple[Figures, ...]
    costs: Costs | None
    quality: tuple[Quality, ...]
    energy_source: str | None
    energy_reason: str | None
    stack: tuple[StackVerdict, ...] | None

    @property
    def is_endpoint(self) -> bool:
        return self.mode == "endpoint"

    @property
    def loads(self) -> tuple[Load, ...]:
        """Those with figures, the lightest first; levels of concurrency before rates."""
        found = {figures.load: None for figures in self.figures}
        return tuple(sorted(found, key=lambda load: (load.concurrency is None, load.amount)))

    def lane(self, name: str) -> Lane | None:
        return next((lane for lane in self.lanes if lane.name == name), None)

    def find(self, lane: str, load: Load) -> Figures | None:
        for figures in self.figures:
            if figures.lane == lane and figures.load == load:
                return figures
        return None

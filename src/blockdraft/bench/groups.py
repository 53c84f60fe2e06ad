"""The figures of a lane by prompt category, context length, output length and answer position.

Pure; what a figure means is the same as in `figures.py`.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from blockdraft.bench.figures import interval_of, latency_speedups, tau_of
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.records import RequestRecord
from blockdraft.evaluation.bootstrap import Interval

FIRST_CONTEXT = 64
FIRST_OUTPUT = 16
"""Ends of the first range; each further one ends at twice the end of the one before."""


class Group(NamedTuple):
    """Answers that have something in common. `speedup` compares seconds a token, per request."""

    name: str
    answers: int
    tau: float | None
    tau_interval: Interval | None
    speedup: float | None


class RangeGroup(NamedTuple):
    """The same for answers whose length lies in [start, end)."""

    start: int
    end: int
    answers: int
    tau: float | None
    tau_interval: Interval | None
    speedup: float | None


class PositionGroup(NamedTuple):
    """Steps that began after [start, end) tokens of their answer; tokens a second of one user."""

    start: int
    end: int
    steps: int
    tau: float
    tokens_per_second: float | None


class Groups(NamedTuple):
    """All four ways to divide."""

    category: tuple[Group, ...]
    context_len: tuple[RangeGroup, ...]
    output_len: tuple[RangeGroup, ...]
    answer_position: tuple[PositionGroup, ...]


def groups_of(levels: Sequence[LevelResult], plain: Sequence[LevelResult]) -> Groups:
    """Of the repeats of one lane and arrival; `plain` are the plain lane's."""
    return Groups(
        category=_by_category(levels, plain),
        context_len=_by_length(levels, plain, lambda r: r.usage.prompt, FIRST_CONTEXT),
        output_len=_by_length(levels, plain, lambda r: r.usage.completion, FIRST_OUTPUT),
        answer_position=_by_position([r for level in levels for r in level.answered]),
    )


def range_of(value: int, first: int) -> tuple[int, int]:
    """The range [start, end) of doubling ends that `value` lies in: [0, first), [first, ..), .."""
    start, end = 0, first
    while value >= end:
        start, end = end, 2 * end
    return start, end


def _by_category(levels: Sequence[LevelResult], plain: Sequence[LevelResult]) -> tuple[Group, ...]:
    names = dict.fromkeys(r.category for level in levels for r in level.answered if r.category)
    groups: list[Group] = []
    for name in names:
        records, speedup = _chosen(levels, plain, lambda r, name=name: r.category == name)
        groups.append(Group(name, len(records), tau_of(records), interval_of(records), speedup))
    return tuple(groups)


def _by_length(
    levels: Sequence[LevelResult],
    plain: Sequence[LevelResult],
    length: Callable[[RequestRecord], int | None],
    first: int,
) -> tuple[RangeGroup, ...]:
    def span(record: RequestRecord) -> tuple[int, int] | None:
        value = length(record)
        return None if value is None else range_of(value, first)

    answered = [record for level in levels for record in level.answered]
    spans = sorted({found for record in answered if (found := span(record)) is not None})
    groups: list[RangeGroup] = []
    for start, end in spans:
        records, speedup = _chosen(levels, plain, lambda r, s=(start, end): span(r) == s)
        tau, interval = tau_of(records), interval_of(records)
        groups.append(RangeGroup(start, end, len(records), tau, interval, speedup))
    return tuple(groups)


def _chosen(
    levels: Sequence[LevelResult],
    plain: Sequence[LevelResult],
    belongs: Callable[[RequestRecord], bool],
) -> tuple[list[RequestRecord], float | None]:
    """The answers of a group, and the median over repeats of their speed-up."""
    found: list[RequestRecord] = []
    ratios: list[float] = []
    for level in levels:
        own = [record for record in level.answered if belongs(record)]
        found += own
        ratios += latency_speedups([level], plain, frozenset(record.number for record in own))
    return found, median(ratios) if ratios else None


def _by_position(records: Sequence[RequestRecord]) -> tuple[PositionGroup, ...]:
    counts: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for record in records:
        position, before = 1, record.first_s
        for step in record.steps or ():
            seconds = 0.0 if before is None else step.end_s - before
            counts.setdefault(range_of(position, FIRST_OUTPUT), []).append(
                (step.committed, seconds)
            )
            position, before = position + step.committed, step.end_s
    groups: list[PositionGroup] = []
    for (start, end), steps in sorted(counts.items()):
        tokens, seconds = sum(num for num, _ in steps), sum(time for _, time in steps)
        speed = tokens / seconds if seconds > 0 else None
        groups.append(PositionGroup(start, end, len(steps), tokens / len(steps), speed))
    return tuple(groups)

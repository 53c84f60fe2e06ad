"""The estimator: acceptance and speed of a lane under an arrival pattern, from its records.

Pure arithmetic on what was recorded; docs/measuring.md defines every figure. By category and the
like is `groups.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import NamedTuple

from blockdraft.bench.config import Arrival
from blockdraft.bench.latency import Spread, speed_of, spread_of
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.records import RequestRecord
from blockdraft.bench.response_fields import ResponseCounts
from blockdraft.decoding import AcceptanceStats
from blockdraft.evaluation.bootstrap import Interval, tau_interval


class AcceptanceFigures(NamedTuple):
    """Acceptance, pooled over all steps of all answers.

    `tau` is tokens committed a verification, `tau_ended` that of answers that ended by themselves.
    `by_position[k]` divides the steps that accepted draft k by those that drafted it,
    `conditional[k]` by those that also accepted all before it (None where none did).
    `histogram[n]` counts steps that committed n tokens.
    """

    tau: float | None
    tau_interval: Interval | None
    tau_ended: float | None
    by_position: tuple[float, ...]
    conditional: tuple[float | None, ...]
    histogram: tuple[int, ...]


class Range(NamedTuple):
    """The smallest and the largest of several repeats."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One lane under one arrival pattern. Ratios are within a repeat, then medians over repeats.

    Levels that are not complete count in the acceptance and in nothing that is timed.
    """

    lane: str
    arrival: Arrival
    repeats: int
    answers: int
    acceptance: AcceptanceFigures
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


def figures_of(levels: Sequence[LevelResult], plain: Sequence[LevelResult]) -> Figures:
    """Of the repeats of one lane and arrival; `plain` are the plain lane's, to compare with."""
    timed = [level for level in levels if level.is_complete]
    records = [record for level in timed for record in level.answered]
    rates = known(speed_of(level.records).tokens_per_second for level in timed)
    users = spread_of(record.tokens_per_second for record in records)
    speedups = _speedups(timed, plain)
    ratios = latency_speedups(timed, plain)
    draft_share, other_share = _shares(timed)
    return Figures(
        lane=levels[0].lane,
        arrival=levels[0].arrival,
        repeats=max(len(timed), 1),
        answers=sum(len(level.answered) for level in levels),
        acceptance=acceptance_figures(levels),
        tokens_per_second=median(rates) if rates else None,
        tokens_per_second_spread=_range(rates),
        user_tokens_per_second=users,
        user_fairness=users.min / users.max if users is not None and users.max > 0 else None,
        first_token=spread_of(record.first_token_seconds for record in records),
        inter_token=spread_of(record.inter_token_seconds for record in records),
        end_to_end=spread_of(record.seconds for record in records),
        speedup=median(speedups) if speedups else None,
        speedup_spread=_range(speedups),
        latency_speedup=median(ratios) if ratios else None,
        draft_share=draft_share,
        other_share=other_share,
        joules_per_token=_joules_per_token(timed),
    )


def acceptance_figures(levels: Sequence[LevelResult]) -> AcceptanceFigures:
    """From the steps where they were recorded, else from what the levels' best sources tell."""
    answered = [record for level in levels for record in level.answered]
    if answered and all(record.steps is not None for record in answered):
        return step_figures(answered)
    return _told_figures(levels, answered)


def step_figures(records: Sequence[RequestRecord]) -> AcceptanceFigures:
    """Of answers with recorded steps."""
    steps = [step for record in records for step in record.steps or ()]
    widest = max((step.drafted for step in steps), default=0)
    longest = max((step.committed for step in steps), default=-1)
    accepted = [sum(step.accepted > k for step in steps) for k in range(widest)]
    drafted = [sum(step.drafted > k for step in steps) for k in range(widest)]
    reached = [
        sum(step.drafted > k and step.accepted >= k for step in steps) for k in range(widest)
    ]
    return AcceptanceFigures(
        tau=tau_of(records),
        tau_interval=interval_of(records),
        tau_ended=tau_of([record for record in records if record.finish_reason == "stop"]),
        by_position=tuple(a / d for a, d in zip(accepted, drafted, strict=True)),
        conditional=tuple(a / r if r else None for a, r in zip(accepted, reached, strict=True)),
        histogram=tuple(sum(step.committed == n for step in steps) for n in range(longest + 1)),
    )


def tau_of(records: Iterable[RequestRecord]) -> float | None:
    """Tokens that verifications committed over verifications; None without one.

    Of answers without recorded steps (an endpoint's) it is what their own counts of drafts tell.
    """
    known = counted(records)
    steps = sum(one.steps for _, one in known)
    return sum(one.tokens for _, one in known) / steps if steps else None


def interval_of(records: Iterable[RequestRecord]) -> Interval | None:
    """Of tau, by redrawing prompts; a prompt that was answered several times counts as one."""
    found: dict[str, AcceptanceStats] = {}
    for prompt, one in counted(records):
        found[prompt] = found.get(prompt, AcceptanceStats()).merge(one)
    return tau_interval(list(found.values()))


def counted(records: Iterable[RequestRecord]) -> list[tuple[str, AcceptanceStats]]:
    """Prompt, and tokens and steps of each answer that tells them."""
    found = list(records)
    # llama.cpp leaves its counts out of an answer without a draft: those are zero.
    fallback = ResponseCounts("timings", 0) if any(map(_has_timings, found)) else None
    stats = [(record.id, _stats_of(record, fallback)) for record in found]
    return [(prompt, one) for prompt, one in stats if one is not None]


def _has_timings(record: RequestRecord) -> bool:
    return record.counts is not None and record.counts.source == "timings"


def _stats_of(record: RequestRecord, fallback: ResponseCounts | None) -> AcceptanceStats | None:
    """Under the definition of the counts' source (docs/bench.md)."""
    if record.steps is not None:
        committed = sum(step.committed for step in record.steps)
        return AcceptanceStats(tokens=committed, steps=len(record.steps))
    counts = record.counts or fallback
    if counts is None:
        return None
    if counts.steps is not None:
        return AcceptanceStats(tokens=counts.steps + counts.accepted, steps=counts.steps)
    tokens = (record.usage.completion or 1) - 1
    return AcceptanceStats(tokens=tokens, steps=max(0, tokens - counts.accepted))


def latency_speedups(
    levels: Sequence[LevelResult],
    plain: Sequence[LevelResult],
    chosen: frozenset[int] | None = None,
) -> list[float]:
    """For each repeat: plain seconds a token over the lane's, over the requests both answered.

    Seconds are those from sending a request to its end; `chosen` takes only those numbers.
    """
    found: list[float] = []
    for level, base in _pairs(levels, plain):
        ours = {record.number: record for record in level.answered}
        theirs = {record.number: record for record in base.answered}
        both = [n for n in ours if n in theirs and (chosen is None or n in chosen)]
        fast = _seconds_a_token([ours[number] for number in both])
        slow = _seconds_a_token([theirs[number] for number in both])
        if fast and slow:
            found.append(slow / fast)
    return found


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _speedups(levels: Sequence[LevelResult], plain: Sequence[LevelResult]) -> list[float]:
    found: list[float] = []
    for level, base in _pairs(levels, plain):
        ours = speed_of(level.records).tokens_per_second
        theirs = speed_of(base.records).tokens_per_second
        if ours and theirs:
            found.append(ours / theirs)
    return found


def _pairs(
    levels: Sequence[LevelResult], plain: Sequence[LevelResult]
) -> list[tuple[LevelResult, LevelResult]]:
    """Complete levels of the same arrival and repeat."""
    bases = {(base.arrival, base.repeat): base for base in plain if base.is_complete}
    return [
        (level, base)
        for level in levels
        if level.is_complete and (base := bases.get((level.arrival, level.repeat))) is not None
    ]


def _seconds_a_token(records: Sequence[RequestRecord]) -> float | None:
    tokens = sum(record.usage.completion or 0 for record in records)
    return sum(record.seconds for record in records) / tokens if tokens else None


def _shares(levels: Sequence[LevelResult]) -> tuple[float | None, float | None]:
    times = [level.step_time for level in levels if level.step_time is not None]
    total = sum(time.seconds for time in times)
    if not total:
        return None, None
    draft = sum(time.draft_seconds for time in times)
    return draft / total, sum(time.other_seconds for time in times) / total


def _joules_per_token(levels: Sequence[LevelResult]) -> float | None:
    joules = known(level.energy_joules for level in levels)
    tokens = sum(record.usage.completion or 0 for level in levels for record in level.answered)
    return sum(joules) / tokens if joules and len(joules) == len(levels) and tokens else None


def _range(values: Sequence[float]) -> Range | None:
    return Range(min(values), max(values)) if values else None


def _told_figures(
    levels: Sequence[LevelResult], answered: Sequence[RequestRecord]
) -> AcceptanceFigures:
    """Of an endpoint: each level's best source, weighted by its steps where it counts them."""
    best = [source for level in levels if (source := level.acceptance.best) is not None]
    if not best:
        return AcceptanceFigures(None, None, None, (), (), ())
    weights = [source.steps or 0 for source in best]
    if not all(weights):
        weights = [1] * len(best)
    shares = [weight / sum(weights) for weight in weights]
    columns = zip_longest(*(source.by_position for source in best), fillvalue=0.0)
    by_position = tuple(sum(s * x for s, x in zip(shares, c, strict=True)) for c in columns)
    histograms = [r.counts.histogram or () for r in answered if r.counts is not None]
    accepted = [sum(column) for column in zip_longest(*histograms, fillvalue=0)]
    return AcceptanceFigures(
        tau=sum(s * (x.tau or 0.0) for s, x in zip(shares, best, strict=True)),
        tau_interval=best[0].tau_interval if len(best) == 1 else None,
        tau_ended=None,
        by_position=by_position,
        conditional=tuple(
            rate / before if before else None
            for before, rate in zip((1.0, *by_position), by_position, strict=False)
        ),
        histogram=(0, *accepted) if accepted else (),
    )

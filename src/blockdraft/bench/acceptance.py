"""Acceptance of one level, from the answers' own fields and from the engine's counters.

It fetches nothing. Each source keeps its own definition of a step; docs/bench.md compares them.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from blockdraft.bench.engine_metrics import DraftCounters, EngineMetrics, counters_since
from blockdraft.bench.records import RequestRecord
from blockdraft.decoding import AcceptanceStats
from blockdraft.evaluation.bootstrap import Interval, tau_interval

ROUNDING = 0.005
"""Sources that tell the same may differ by so much: engines round some figures to two digits."""

WITH_A_DRAFT = "1 + accepted / verifications with a draft"
ALL = "1 + accepted / verifications"
FROM_TOKENS = "tokens after the first / those of them that were not accepted drafts"
FROM_CALLS = "generated tokens after each answer's first / verifications"
OF_ENGINE = "the engine's own figure, over a span of its own choice"


class MetricsRead(NamedTuple):
    """A reading of the engine's metrics, or the reason why there is none."""

    metrics: EngineMetrics | None
    reason: str = ""


class SourceFigures(NamedTuple):
    """What one source says. `definition` is that of tau; counts are None where they aren't told.

    `by_position[k]` is how many steps accepted draft k, over all that had a draft.
    """

    name: str
    definition: str
    tau: float | None
    tau_interval: Interval | None = None
    accepted: int | None = None
    drafted: int | None = None
    steps: int | None = None
    acceptance_rate: float | None = None
    by_position: tuple[float, ...] = ()


class Acceptance(NamedTuple):
    """The sources, best first, and what is odd about them. `reason` says why there is no tau."""

    sources: tuple[SourceFigures, ...]
    reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> SourceFigures | None:
        return next((source for source in self.sources if source.tau is not None), None)


def acceptance_of(
    records: Sequence[RequestRecord], before: MetricsRead, after: MetricsRead
) -> Acceptance:
    """Everything that can be said of the requests between two readings."""
    answered = [record for record in records if record.is_ok]
    told, told_warnings = _told_by_answers(answered)
    counted, reason = _told_by_metrics(answered, before, after)
    rank = {WITH_A_DRAFT: 0, ALL: 0, FROM_CALLS: 1, FROM_TOKENS: 2, OF_ENGINE: 3}
    sources = sorted([*told, *counted], key=lambda source: rank[source.definition])
    warnings = [*told_warnings, *_disagreements(told, counted)]
    if any(source.tau is not None for source in sources):
        return Acceptance(tuple(sources), warnings=tuple(warnings))
    if not answered:
        reason = "no request was answered"
    elif sources:
        reason = "no draft was verified in this run"
    else:
        reason = f"the answers carry no counts of drafts, and {reason}"
    return Acceptance(tuple(sources), reason, tuple(warnings))


def counts_differ(acceptance: Acceptance) -> bool:
    """Whether two sources that count the same have another number of accepted drafts."""
    known = {source.accepted for source in acceptance.sources if source.accepted is not None}
    return len(known) > 1


def _told_by_answers(
    answered: Sequence[RequestRecord],
) -> tuple[list[SourceFigures], list[str]]:
    told = {record.counts.source for record in answered if record.counts is not None}
    sources: list[SourceFigures] = []
    warnings: list[str] = []
    for name in sorted(told):
        if name == "timings":
            sources.append(_from_timings(answered))
            continue
        having = [r for r in answered if r.counts is not None and r.counts.source == name]
        sources.append(_from_steps(name, having))
        if len(having) < len(answered):
            warnings.append(
                f"only {len(having)} of {len(answered)} answers carry {name}; its figures are of "
                "those"
            )
    return sources, warnings


def _from_steps(name: str, having: Sequence[RequestRecord]) -> SourceFigures:
    counts = [record.counts for record in having if record.counts is not None]
    steps = sum(one.steps or 0 for one in counts)
    accepted = sum(one.accepted for one in counts)
    drafted = [one.drafted for one in counts if one.drafted is not None]
    num_drafted = sum(drafted) if len(drafted) == len(counts) else None
    histogram = _added(one.histogram or () for one in counts)
    stats = _by_prompt(
        (record.id, (one.steps or 0) + one.accepted, one.steps or 0)
        for record in having
        if (one := record.counts) is not None
    )
    return SourceFigures(
        name=name,
        definition=ALL if name == "meta_info" else WITH_A_DRAFT,
        tau=1 + accepted / steps if steps else None,
        tau_interval=tau_interval(stats),
        accepted=accepted,
        drafted=num_drafted,
        steps=steps,
        acceptance_rate=accepted / num_drafted if num_drafted else None,
        by_position=_from_histogram(histogram),
    )


def _from_timings(answered: Sequence[RequestRecord]) -> SourceFigures:
    """llama.cpp leaves the counts out of an answer without a draft: those are zero."""
    accepted = [r.counts.accepted if r.counts is not None else 0 for r in answered]
    drafted = sum(r.counts.drafted or 0 for r in answered if r.counts is not None)
    tokens = [r.usage.completion for r in answered]
    stats = _by_prompt(
        (record.id, num - 1, num - 1 - kept)
        for record, num, kept in zip(answered, tokens, accepted, strict=True)
        if num is not None and num - 1 - kept > 0
    )
    steps = sum(one.steps for one in stats)
    is_known = steps > 0 and None not in tokens
    return SourceFigures(
        name="timings",
        definition=FROM_TOKENS,
        tau=sum(one.tokens for one in stats) / steps if is_known else None,
        tau_interval=tau_interval(stats) if is_known else None,
        accepted=sum(accepted),
        drafted=drafted,
        steps=steps if is_known else None,
        acceptance_rate=sum(accepted) / drafted if drafted else None,
    )


def _told_by_metrics(
    answered: Sequence[RequestRecord], before: MetricsRead, after: MetricsRead
) -> tuple[list[SourceFigures], str]:
    """The sources of /metrics, or the reason why there is none."""
    if before.metrics is None or after.metrics is None:
        return [], before.reason or after.reason
    sources: list[SourceFigures] = []
    reason = (
        "its metrics have no counts of drafts (it decodes plainly, or it does not count)"
        if after.metrics.has_engine_names
        else "its metrics are of no engine that is known here"
    )
    was, now = before.metrics.counters, after.metrics.counters
    if now is not None:
        # A counter with labels may show up with its first event only.
        since = counters_since(was or DraftCounters(now.prefix, 0, 0, 0, ()), now)
        if since is None:
            reason = "its counters went back: the engine was started anew in the middle"
        else:
            sources.append(_from_counters(since))
    calls, calls_now = before.metrics.verifications, after.metrics.verifications
    if calls is not None and calls_now is not None and calls_now.calls > calls.calls:
        num_calls = calls_now.calls - calls.calls
        tokens = calls_now.tokens - calls.tokens - len(answered)
        sources.append(
            SourceFigures(
                name="sglang: counters",
                definition=FROM_CALLS,
                tau=tokens / num_calls if tokens > 0 else None,
                steps=num_calls,
            )
        )
    gauges = after.metrics.gauges
    if gauges is not None:
        sources.append(
            SourceFigures(
                name=f"{gauges.prefix.rstrip(':_')}: gauges",
                definition=OF_ENGINE,
                tau=gauges.accept_length,
                acceptance_rate=gauges.accept_rate,
            )
        )
    return sources, reason


def _from_counters(since: DraftCounters) -> SourceFigures:
    drafts = since.drafts
    return SourceFigures(
        name=f"{since.prefix.rstrip(':')}: counters",
        definition=WITH_A_DRAFT,
        tau=1 + since.accepted / drafts if drafts else None,
        accepted=since.accepted,
        drafted=since.drafted,
        steps=drafts,
        acceptance_rate=since.accepted / since.drafted if since.drafted else None,
        by_position=tuple(num / drafts for num in since.by_position) if drafts else (),
    )


def _disagreements(told: Sequence[SourceFigures], counted: Sequence[SourceFigures]) -> list[str]:
    """Where answers and counters differ in what both mean alike, by more than rounding."""
    found: list[str] = []
    for one in told:
        for other in counted:
            if other.accepted is None or one.accepted is None:
                continue
            is_alike = one.definition == other.definition
            left, right = one.tau, other.tau
            if not is_alike:
                left, right = one.acceptance_rate, other.acceptance_rate
            if left is None or right is None or abs(left - right) <= ROUNDING:
                continue
            what = "tau" if is_alike else "acceptance rate"
            found.append(
                f"{one.name} and {other.name} disagree: {what} {left:.3f} against {right:.3f}, "
                f"{one.accepted} against {other.accepted} drafts accepted; other clients, or "
                "requests that failed, count in the engine's counters only"
            )
    return found


def _by_prompt(answers: Iterable[tuple[str, int, int]]) -> list[AcceptanceStats]:
    """Of (prompt, tokens, steps): a prompt that was asked twice says no more than one."""
    found: dict[str, AcceptanceStats] = {}
    for prompt, tokens, steps in answers:
        one = AcceptanceStats(tokens=tokens, steps=steps)
        found[prompt] = found.get(prompt, AcceptanceStats()).merge(one)
    return list(found.values())


def _added(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    total: tuple[int, ...] = ()
    for histogram in histograms:
        total = tuple(a + b for a, b in zip_longest(total, histogram, fillvalue=0))
    return total


def _from_histogram(histogram: Sequence[int]) -> tuple[float, ...]:
    steps = sum(histogram)
    if not steps:
        return ()
    return tuple(sum(histogram[k + 1 :]) / steps for k in range(len(histogram) - 1))

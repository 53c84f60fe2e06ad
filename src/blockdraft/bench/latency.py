"""Latencies and rates of a level, computed from its records.

It reads no clock. Percentiles are linear between the two nearest values, as in numpy's default.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from blockdraft.bench.records import RequestRecord


class Spread(NamedTuple):
    """How a figure is spread over requests (or over gaps between chunks)."""

    num: int
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float


class Speed(NamedTuple):
    """Figures over the requests that were answered, in seconds and tokens a second.

    `seconds` is from the first request's sending to the last answer's end. Totals are None where
    the endpoint counts no tokens.
    """

    seconds: float
    requests_per_second: float | None
    tokens_per_second: float | None
    tokens_per_second_per_user: Spread | None
    first_token: Spread | None
    inter_token: Spread | None
    chunk_gap: Spread | None
    end_to_end: Spread | None


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Over the values that are known; None without one."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(
        num=len(known),
        mean=math.fsum(known) / len(known),
        min=known[0],
        p50=quantile(known, 0.5),
        p90=quantile(known, 0.9),
        p99=quantile(known, 0.99),
        max=known[-1],
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that so much of `ordered` (sorted, at least one) lies below."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def speed_of(records: Sequence[RequestRecord]) -> Speed:
    """The figures of one level. Failed requests count nowhere but in the level's seconds."""
    answered = [record for record in records if record.is_ok]
    seconds = 0.0
    if records:
        seconds = max(r.end_s for r in records) - min(r.sent_s for r in records)
    tokens = [record.usage.completion for record in answered]
    total = sum(num for num in tokens if num is not None)
    is_known = bool(answered) and None not in tokens and seconds > 0
    return Speed(
        seconds=seconds,
        requests_per_second=len(answered) / seconds if seconds > 0 else None,
        tokens_per_second=total / seconds if is_known else None,
        tokens_per_second_per_user=spread_of(r.tokens_per_second for r in answered),
        first_token=spread_of(r.first_token_seconds for r in answered),
        inter_token=spread_of(r.inter_token_seconds for r in answered),
        chunk_gap=spread_of(
            later - earlier for r in answered for earlier, later in pairwise(r.chunks_s)
        ),
        end_to_end=spread_of(r.seconds for r in answered),
    )

"""One level of a bench as its part of the document, with all its records.

The figures of a level are made in `latency.py` and `acceptance.py`.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from blockdraft.bench.acceptance import Acceptance
from blockdraft.bench.config import Arrival
from blockdraft.bench.latency import Spread, speed_of
from blockdraft.bench.levels import LevelResult, StepTime
from blockdraft.bench.records import RequestRecord

LATENCIES = ("first_token", "inter_token", "chunk_gap", "end_to_end")


def level_document(level: LevelResult) -> dict[str, object]:
    """Its figures and its records, those in the order of their numbers."""
    records = level.records
    speed = speed_of(records)
    answered = level.answered
    return {
        "lane": level.lane,
        "repeat": level.repeat,
        "arrival": arrival_document(level.arrival),
        "complete": level.is_complete,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(level.started)),
        "seconds": speed.seconds,
        "requests": {
            "planned": level.num_planned,
            "distinct_prompts": level.num_distinct,
            "answered": len(answered),
            "failed": level.num_failed,
            "failures": _failures(records),
        },
        "tokens": {
            "prompt": _sum(record.usage.prompt for record in answered),
            "cached": _sum(record.usage.cached for record in answered),
            "completion": _sum(record.usage.completion for record in answered),
        },
        "throughput": {
            "requests_per_second": speed.requests_per_second,
            "tokens_per_second": speed.tokens_per_second,
            "tokens_per_second_per_user": spread_document(speed.tokens_per_second_per_user),
        },
        "latency": {f"{name}_seconds": spread_document(getattr(speed, name)) for name in LATENCIES},
        "acceptance": _acceptance(level.acceptance),
        "step_time": _step_time(level.step_time),
        "energy_joules": level.energy_joules,
        "records": [_record(record) for record in sorted(records, key=lambda r: r.number)],
    }


def arrival_document(arrival: Arrival) -> dict[str, object]:
    return {"concurrency": arrival.concurrency, "rate": arrival.rate}


def spread_document(spread: Spread | None) -> Mapping[str, object] | None:
    return None if spread is None else spread._asdict()


def pair_document(pair: Sequence[float] | None) -> list[float] | None:
    return None if pair is None else list(pair)


def _failures(records: Sequence[RequestRecord]) -> list[dict[str, object]]:
    """By kind, in the order in which they first came; the message is the first one's."""
    found: dict[str, dict[str, object]] = {}
    counts: dict[str, int] = {}
    for record in records:
        if record.failure is not None:
            kind = record.failure.kind
            counts[kind] = counts.get(kind, 0) + 1
            found.setdefault(
                kind, {"kind": kind, "count": 0, "id": record.id, "message": record.failure.message}
            )
    return [entry | {"count": counts[kind]} for kind, entry in found.items()]


def _acceptance(acceptance: Acceptance) -> dict[str, object]:
    best = acceptance.best
    return {
        "tau": None if best is None else best.tau,
        "tau_interval": pair_document(None if best is None else best.tau_interval),
        "source": None if best is None else best.name,
        "definition": None if best is None else best.definition,
        "reason": acceptance.reason or None,
        "warnings": list(acceptance.warnings),
        "sources": [
            source._asdict()
            | {
                "tau_interval": pair_document(source.tau_interval),
                "by_position": list(source.by_position),
            }
            for source in acceptance.sources
        ],
    }


def _step_time(time: StepTime | None) -> dict[str, object] | None:
    return None if time is None else time._asdict()


def _record(record: RequestRecord) -> dict[str, object]:
    counts, failure = record.counts, record.failure
    return {
        "number": record.number,
        "id": record.id,
        "category": record.category,
        "sent_s": record.sent_s,
        "first_s": record.first_s,
        "end_s": record.end_s,
        "chunks_s": list(record.chunks_s),
        "prompt_tokens": record.usage.prompt,
        "cached_tokens": record.usage.cached,
        "completion_tokens": record.usage.completion,
        "finish_reason": record.finish_reason,
        "drafts": None
        if counts is None
        else counts._asdict() | {"histogram": counts.histogram and list(counts.histogram)},
        "steps": None if record.steps is None else [list(step) for step in record.steps],
        "token_ids": None if record.token_ids is None else list(record.token_ids),
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
    }


def _sum(values: Iterable[int | None]) -> int | None:
    """None where one is not known, or none is there."""
    known = list(values)
    return None if not known or None in known else sum(value or 0 for value in known)

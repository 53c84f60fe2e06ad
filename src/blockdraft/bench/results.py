"""The document of a bench (docs/bench.md), and the folder that it is kept in.

It computes no figure of its own. Its shape changes only with `VERSION`.
"""

import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from blockdraft.bench.acceptance import Acceptance
from blockdraft.bench.latency import Spread, speed_of
from blockdraft.bench.records import RequestRecord
from blockdraft.bench.run import Bench, BenchOrder, Level
from blockdraft.data.durable import write_json
from blockdraft.errors import ConfigError

SCHEMA = "blockdraft.bench"
VERSION = 1
FILE_NAME = "results.json"
LATENCIES = ("first_token", "inter_token", "chunk_gap", "end_to_end")


class ResultsFolder:
    """Keeps the document of a run, replaced whole each time, so that a part of it is never lost."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError for a folder with a result in it, or that can't be made."""
        self.path = folder / FILE_NAME
        if self.path.exists():
            raise ConfigError(f"{self.path} is of an earlier run; give another --out, or move it")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"can't make --out {folder}: {error.strerror}") from error

    def write(self, document: Mapping[str, object]) -> None:
        """Raises ConfigError when the disk does not take it."""
        try:
            write_json(self.path, document)
        except OSError as error:
            raise ConfigError(f"can't write {self.path}: {error.strerror}") from error


def bench_document(bench: Bench, num_levels: int) -> dict[str, object]:
    """Everything so far; `complete` once `num_levels` were measured with all their requests."""
    levels = bench.levels
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "complete": len(levels) == num_levels and all(level.is_complete for level in levels),
        "endpoint": {
            "url": bench.order.endpoint.url,
            "model": bench.found.model,
            "engine": bench.found.engine,
        },
        "workload": _workload(bench.order),
        "settings": _settings(bench.order),
        "client": {
            "blockdraft": version("blockdraft"),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        },
        "levels": [level_document(level) for level in levels],
    }


def level_document(level: Level) -> dict[str, object]:
    records = level.records
    speed = speed_of(records)
    answered = [record for record in records if record.is_ok]
    return {
        "arrival": {"concurrency": level.arrival.concurrency, "rate": level.arrival.rate},
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
            "tokens_per_second_per_user": _spread(speed.tokens_per_second_per_user),
        },
        "latency": {f"{name}_seconds": _spread(getattr(speed, name)) for name in LATENCIES},
        "acceptance": _acceptance(level.acceptance),
        "records": [_record(record) for record in sorted(records, key=lambda r: r.number)],
    }


def _workload(order: BenchOrder) -> dict[str, object]:
    workload = order.workload
    return {
        "source": workload.source,
        "sha256": workload.sha256,
        "prompts": len(workload.prompts),
        "requests": order.num_requests,
        "warm_ups": order.num_warm_ups,
    }


def _settings(order: BenchOrder) -> dict[str, object]:
    settings: dict[str, object] = asdict(order.settings)
    settings["template_args"] = dict(order.settings.template_args)
    return settings | {"timeout": order.endpoint.timeout}


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
        "tau_interval": _pair(None if best is None else best.tau_interval),
        "source": None if best is None else best.name,
        "definition": None if best is None else best.definition,
        "reason": acceptance.reason or None,
        "warnings": list(acceptance.warnings),
        "sources": [
            source._asdict()
            | {
                "tau_interval": _pair(source.tau_interval),
                "by_position": list(source.by_position),
            }
            for source in acceptance.sources
        ],
    }


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
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
    }


def _spread(spread: Spread | None) -> Mapping[str, object] | None:
    return None if spread is None else spread._asdict()


def _pair(pair: Sequence[float] | None) -> list[float] | None:
    return None if pair is None else list(pair)


def _sum(values: Iterable[int | None]) -> int | None:
    """None where one is not known, or none is there."""
    known = list(values)
    return None if not known or None in known else sum(value or 0 for value in known)

"""tune.json: everything that `blockdraft tune` found, in a documented, versioned shape.

It computes no figure of its own; docs/tuning.md describes the keys.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blockdraft.tuning.flags import EngineFlags
from blockdraft.tuning.replay import PairCosts
from blockdraft.tuning.search import Choice, SettingPrediction
from blockdraft.tuning.tune import Tuned
from blockdraft.tuning.verify import Verified

SCHEMA = "blockdraft.tune"
VERSION = 1
FILE_NAME = "tune.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What figures depend on. `started` is a time of day as text, `seconds` the whole run's."""

    started: str
    seconds: float
    conditions: Mapping[str, object]
    workload: Mapping[str, object]


def tune_document(
    tuned: Tuned, around: Circumstances, flags: Sequence[EngineFlags], advice: str | None
) -> dict[str, object]:
    """All that is known so far; what is not known is null or empty."""
    known, choice = tuned.known, tuned.choice
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "complete": tuned.is_complete,
        "goal": tuned.goal,
        "started": around.started,
        "seconds": around.seconds,
        "conditions": dict(around.conditions),
        "workload": dict(around.workload),
        "acceptance": None
        if known is None
        else {
            "block_size": tuned.block_size,
            "tau": tuned.tau,
            "tau_interval": None if tuned.interval is None else list(tuned.interval),
            "by_position": list(known.survival.at(tuned.block_size)),
            "steps": tuned.num_steps,
        },
        "costs": None if known is None else costs_document(known.costs),
        "predictions": [_prediction(one) for one in tuned.predictions],
        "by_concurrency": [] if choice is None else _levels(choice, tuned),
        "verified": [_verified(one, tuned) for one in tuned.verified],
        "choice": None if choice is None else _choice(choice, tuned, advice),
        "flags": [flags_document(one) for one in flags],
    }


def costs_document(costs: PairCosts) -> dict[str, object]:
    return {
        "verify": [
            {"requests": requests, "rows": rows, "seconds": seconds}
            for requests, points in costs.rows.curves
            for rows, seconds in points
        ],
        "draft": [
            {"requests": requests, "width": width, "seconds": seconds}
            for width, curve in costs.passes.draft
            for requests, seconds in curve.points
        ],
        "step_overhead_seconds": costs.passes.overhead_seconds,
        "intake_seconds_per_token": costs.intake_seconds,
        "request_overhead_seconds": costs.request_seconds,
    }


def flags_document(flags: EngineFlags) -> dict[str, object]:
    return {
        "engine": flags.engine,
        "width": flags.width,
        "drafts": flags.drafts,
        "before": list(flags.before),
        "script": flags.script,
        "files": dict(flags.files),
        "notes": list(flags.notes),
        "measure": flags.measure,
    }


def _prediction(one: SettingPrediction) -> dict[str, object]:
    return {
        "width": str(one.mode),
        "concurrency": one.concurrency,
        "tokens_per_second": one.tokens_per_second,
        "latency_seconds": one.latency_seconds,
        "speedup": one.speedup,
        "latency_speedup": one.latency_speedup,
    }


def _levels(choice: Choice, tuned: Tuned) -> list[dict[str, object]]:
    return [
        {
            "concurrency": one.concurrency,
            "width": str(one.mode),
            "predicted": one.gain(tuned.goal),
            "pays": one.mode.kind != "off",
        }
        for one in choice.by_concurrency
    ]


def _verified(one: Verified, tuned: Tuned) -> dict[str, object]:
    gains = one.gains(tuned.goal)
    return {
        "width": str(one.mode),
        "concurrency": one.concurrency,
        "repeats": len(gains),
        "predicted": one.predicted.gain(tuned.goal),
        "measured": one.gain(tuned.goal),
        "measured_spread": [min(gains), max(gains)],
        "error": one.error(tuned.goal),
        "tokens_per_second": one.tokens_per_second,
        "identical": one.identical,
        "compared": one.compared,
        "verdict": one.verdict(tuned.goal),
    }


def _choice(choice: Choice, tuned: Tuned, advice: str | None) -> dict[str, object]:
    return {
        "width": None if tuned.verdict is None else str(tuned.chosen),
        "concurrency": choice.concurrency,
        "verdict": tuned.verdict,
        "speculate_up_to": choice.speculate_up_to,
        "advice": advice,
    }

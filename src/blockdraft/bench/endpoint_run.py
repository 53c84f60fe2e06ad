"""An endpoint and its baseline side by side: the order of levels, and the `Run` that they make.

It sends nothing; `run.py` does. What the document looks like is `results.py`.
"""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import NamedTuple

from blockdraft.bench.config import Arrival
from blockdraft.bench.levels import LaneInfo
from blockdraft.bench.results import Run
from blockdraft.bench.run import Bench
from blockdraft.bench.workload import workload_document
from blockdraft.errors import ConfigError

PLAIN_LANE = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPlan:
    """What will be measured: every arrival `repeats` times on each lane.

    `started` is seconds since 1970; `command` is the line that asked for it.
    """

    arrivals: Sequence[Arrival]
    repeats: int = 1
    command: str | None = None
    started: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ConfigError(f"--repeats is {self.repeats}; give at least 1")


class Turn(NamedTuple):
    """One level to be measured, on one lane."""

    repeat: int
    arrival: Arrival
    bench: Bench


def turns(plan: EndpointPlan, benches: Sequence[Bench]) -> Iterator[Turn]:
    """All levels in their order: the lanes take turns at each arrival, and begin by turns, so that
    a machine that slows down slows all of them alike.
    """
    for repeat in range(plan.repeats):
        for index, arrival in enumerate(plan.arrivals):
            for place in range(len(benches)):
                bench = benches[(place + repeat + index) % len(benches)]
                yield Turn(repeat, arrival, bench)


def check_baseline(endpoint: Bench, baseline: Bench, *, is_named: bool) -> None:
    """Raises ConfigError unless both serve the same model, as far as names tell.

    `is_named`: the user said under which name the baseline serves it.
    """
    ours, theirs = endpoint.found.model, baseline.found.model
    if endpoint.order.endpoint.api == baseline.order.endpoint.api:
        raise ConfigError(
            f"--baseline is --endpoint itself ({baseline.order.endpoint.shown}); start a second "
            "server of the same model without drafts"
        )
    if ours != theirs and not is_named:
        raise ConfigError(
            f"--baseline serves {theirs!r} and --endpoint {ours!r}: a speed-up needs the same "
            "model; if it is, under two names, say --baseline-model NAME"
        )


def endpoint_run(plan: EndpointPlan, benches: Sequence[Bench]) -> Run:
    """Everything so far; complete once every planned level has all its requests."""
    first = benches[0]
    levels = [level.result() for bench in benches for level in bench.levels]
    levels.sort(key=lambda level: level.started)
    num_planned = plan.repeats * len(plan.arrivals) * len(benches)
    return Run(
        mode="endpoint",
        preset=None,
        started=plan.started,
        seconds=time.time() - plan.started,
        conditions=_conditions(plan, benches),
        workload=workload_document(
            first.order.workload, first.order.num_requests, first.order.num_warm_ups
        ),
        settings=_settings(plan, first),
        lanes=[_lane(bench) for bench in benches],
        levels=levels,
        is_complete=len(levels) == num_planned and all(level.is_complete for level in levels),
    )


def _conditions(plan: EndpointPlan, benches: Sequence[Bench]) -> dict[str, object]:
    first = benches[0]
    return {
        "command": plan.command,
        "url": first.order.endpoint.shown,
        "model": first.found.model,
        "engine": first.found.engine,
        "baseline_url": benches[1].order.endpoint.shown if len(benches) > 1 else None,
        "blockdraft": version("blockdraft"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def _settings(plan: EndpointPlan, bench: Bench) -> dict[str, object]:
    settings = bench.order.settings
    told: dict[str, object] = asdict(settings)
    told["template_args"] = dict(settings.template_args)
    told["explicit"] = list(settings.explicit)
    logged = any(arrival.times is not None for arrival in plan.arrivals)
    return told | {
        "timeout": bench.order.endpoint.timeout,
        "repeats": plan.repeats,
        "arrivals": "logged" if logged else None,
    }


def _lane(bench: Bench) -> LaneInfo:
    is_plain = bench.order.lane == PLAIN_LANE
    note = f"{bench.found.engine} at {bench.order.endpoint.shown}, model {bench.found.model}"
    return LaneInfo(name=bench.order.lane, kind="plain" if is_plain else "endpoint", note=note)

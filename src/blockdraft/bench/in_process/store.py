"""An unfinished results.json read back, so that a run goes on where it ended.

Only complete levels count; everything else is measured again.
"""

import time
from calendar import timegm
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from blockdraft.bench.acceptance import Acceptance, SourceFigures
from blockdraft.bench.chunks import Usage
from blockdraft.bench.config import Arrival
from blockdraft.bench.in_process.draft_costs import DraftCost
from blockdraft.bench.in_process.pass_costs import PassCosts
from blockdraft.bench.levels import LevelResult, StepTime
from blockdraft.bench.records import Failure, FailureKind, RequestRecord, StepRecord
from blockdraft.bench.report.fields import check_fields, document_shape
from blockdraft.bench.report.nodes import Node
from blockdraft.bench.report.reading import FILE_NAME, check_version
from blockdraft.bench.response_fields import ResponseCounts
from blockdraft.data.durable import read_json
from blockdraft.errors import ConfigError
from blockdraft.evaluation.bootstrap import Interval

SAME_CONDITIONS = (
    *("target", "device", "dtype", "quantize", "engine", "threads", "batch_invariant"),
    *("hardware", "software"),
)
"""What must not have changed in between; the load of the machine may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What makes two runs one: parts of their documents."""

    conditions: Mapping[str, object]
    workload: Mapping[str, object]
    settings: Mapping[str, object]
    lanes: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What an earlier run left: its levels, its seconds, and the load of the machine before it."""

    levels: tuple[LevelResult, ...]
    costs: PassCosts | None
    started: float
    seconds: float
    load_average: float | None


def read_stored(folder: Path, order: Order, arrivals: Sequence[Arrival]) -> Stored | None:
    """The complete levels of the run in `folder`; None where there is no results.json yet.

    Raises ConfigError for a file that is damaged or is of another order, saying what differs.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return None
    top = Node(str(path), "", read_json(path))
    check_version(top)
    check_fields(top, document_shape("in-process"))
    difference = _difference(top, order)
    if difference is not None:
        raise ConfigError(
            f"{path} is of another order ({difference}); give the same arguments to go on, or "
            "another --out"
        )
    by_load = {(arrival.concurrency, arrival.rate): arrival for arrival in arrivals}
    levels: list[LevelResult] = []
    for node in top.nodes("levels"):
        load = node.node("arrival")
        arrival = by_load.get((load.maybe_count("concurrency"), load.maybe_number("rate")))
        if node.flag("complete") and arrival is not None:
            levels.append(_level(node, arrival))
    return Stored(
        levels=tuple(levels),
        costs=_costs(top.node("costs")) if top.has("costs") else None,
        started=_seconds(top, "started"),
        seconds=top.maybe_number("seconds") or 0.0,
        load_average=top.node("conditions").maybe_number("load_average"),
    )


def _difference(top: Node, order: Order) -> str | None:
    """The first thing that is not as it was, in words."""
    conditions = {key: order.conditions.get(key) for key in SAME_CONDITIONS}
    parts: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("conditions", conditions),
        ("workload", order.workload),
        ("settings", order.settings),
    )
    for name, wanted in parts:
        had = top.node(name).fields
        for key, value in wanted.items():
            if had.get(key) != value:
                return f"{name}: {key} was {had.get(key)!r} and is {value!r}"
    names = [node.text("name") for node in top.nodes("lanes")]
    wanted_names = [str(lane["name"]) for lane in order.lanes]
    if names != wanted_names:
        return f"lanes were {', '.join(names)} and are {', '.join(wanted_names)}"
    for node, lane in zip(top.nodes("lanes"), order.lanes, strict=True):
        if node.fields != dict(lane):
            return f"lane {lane['name']} was {node.fields!r} and is {dict(lane)!r}"
    return None


def _level(node: Node, arrival: Arrival) -> LevelResult:
    requests = node.node("requests")
    step_time = node.node("step_time")
    return LevelResult(
        lane=node.text("lane"),
        repeat=node.count("repeat"),
        arrival=arrival,
        num_planned=requests.count("planned"),
        num_distinct=requests.count("distinct_prompts"),
        started=_seconds(node, "started"),
        records=tuple(_record(one) for one in node.nodes("records")),
        acceptance=_acceptance(node.node("acceptance")),
        is_complete=True,
        step_time=StepTime(
            step_time.count("steps"),
            step_time.number("draft_seconds"),
            step_time.number("verify_seconds"),
            step_time.number("other_seconds"),
        )
        if node.has("step_time")
        else None,
        energy_joules=node.maybe_number("energy_joules"),
    )


def _record(node: Node) -> RequestRecord:
    failure = node.node("failure")
    return RequestRecord(
        number=node.count("number"),
        id=node.text("id"),
        category=node.text("category"),
        sent_s=node.number("sent_s"),
        first_s=node.maybe_number("first_s"),
        end_s=node.number("end_s"),
        chunks_s=node.numbers("chunks_s"),
        usage=Usage(
            node.maybe_count("prompt_tokens"),
            node.maybe_count("cached_tokens"),
            node.maybe_count("completion_tokens"),
        ),
        finish_reason=node.maybe_text("finish_reason"),
        counts=_counts(node.node("drafts")) if node.has("drafts") else None,
        failure=Failure(cast(FailureKind, failure.text("kind")), failure.text("message"))
        if node.has("failure")
        else None,
        steps=_steps(node),
        token_ids=_whole(node, "token_ids") if node.has("token_ids") else None,
    )


def _steps(node: Node) -> tuple[StepRecord, ...] | None:
    rows = node.fields.get("steps")
    if not isinstance(rows, list):
        return None
    found: list[StepRecord] = []
    for row in cast("list[object]", rows):
        values = Node(node.source, node.path, {"step": row}).numbers("step")
        if len(values) != len(StepRecord._fields):
            raise node.fail("steps", "a list of [committed, drafted, accepted, end_s]")
        found.append(StepRecord(int(values[0]), int(values[1]), int(values[2]), values[3]))
    return tuple(found)


def _counts(node: Node) -> ResponseCounts:
    return ResponseCounts(
        source="engine",
        accepted=node.count("accepted"),
        drafted=node.maybe_count("drafted"),
        steps=node.maybe_count("steps"),
        histogram=_whole(node, "histogram") if node.has("histogram") else None,
    )


def _acceptance(node: Node) -> Acceptance:
    sources = [
        SourceFigures(
            name=one.text("name"),
            definition=one.text("definition"),
            tau=one.maybe_number("tau"),
            tau_interval=None
            if (pair := one.pair("tau_interval")) is None
            else Interval(pair[0], pair[1]),
            accepted=one.maybe_count("accepted"),
            drafted=one.maybe_count("drafted"),
            steps=one.maybe_count("steps"),
            acceptance_rate=one.maybe_number("acceptance_rate"),
            by_position=one.numbers("by_position"),
        )
        for one in node.nodes("sources")
    ]
    return Acceptance(tuple(sources), node.maybe_text("reason") or "", node.texts("warnings"))


def _costs(node: Node) -> PassCosts:
    lengths = tuple(
        DraftCost(
            one.text("name"),
            one.text("kind"),
            one.text("weights"),
            1,
            one.count("tokens"),
            one.number("seconds"),
        )
        for one in node.nodes("draft")
    )
    kinds = {one.name: (one.kind, one.weights) for one in lengths}
    draft: list[DraftCost] = []
    for one in node.nodes("draft_by_requests"):
        name = one.text("name")
        if name not in kinds:
            raise one.fail("name", "a drafter whose drafts were timed one request at a time")
        kind, weights = kinds[name]
        num_requests, tokens = one.count("requests"), one.count("tokens")
        seconds = one.number("seconds")
        draft.append(DraftCost(name, kind, weights, num_requests, tokens, seconds))
    verify = tuple((one.count("rows"), one.number("seconds")) for one in node.nodes("verify"))
    return PassCosts(node.count("context_len"), verify, tuple(draft), lengths)


def _whole(node: Node, name: str) -> tuple[int, ...]:
    return tuple(int(value) for value in node.numbers(name))


def _seconds(node: Node, name: str) -> float:
    try:
        return float(timegm(time.strptime(node.text(name), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        raise node.fail(name, "a time like 2026-11-30T12:00:00Z") from None

"""results.json to `BenchDocument`, checked: another schema, version or shape is a clear error.

It computes nothing. Fields that no report shows are not read, and unknown ones refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from blockdraft.bench.report.document import (
    AnswerTimes,
    BenchDocument,
    Costs,
    Divergence,
    DraftCost,
    Figures,
    Group,
    Lane,
    Level,
    Load,
    Quality,
    Source,
    StackVerdict,
    StepTime,
    VerifyCost,
)
from blockdraft.bench.report.fields import check_fields, document_shape
from blockdraft.bench.report.nodes import Node
from blockdraft.errors import ConfigError

SCHEMA = "blockdraft.bench"
VERSION = 2
MODES = ("in-process", "endpoint")
FILE_NAME = "results.json"


def read_results(path: Path) -> BenchDocument:
    """The document in a file, or in the folder that `bench --out` wrote.

    Raises ConfigError, in one line, for anything else.
    """
    path = path / FILE_NAME if path.is_dir() else path
    return parse_document(read_value(path), str(path))


def read_value(path: Path) -> object:
    """What a results.json holds, unchecked. Raises ConfigError where it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"can't read {path} ({error.strerror}); give the results.json that `blockdraft bench "
            "--out DIR` wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}); give a results.json") from error


def parse_document(value: object, source: str = "the document") -> BenchDocument:
    """The document as values. Raises ConfigError."""
    if not isinstance(value, dict):
        raise ConfigError(f"{source} is not a JSON object; give a results.json")
    top = Node(source, "", cast("dict[str, object]", value))
    check_version(top)
    mode = _mode(top)
    check_fields(top, document_shape(mode))
    names = [node.text("name") for node in top.nodes("lanes")]
    if len(set(names)) < len(names):
        raise top.fail("lanes", "a list of lanes with different names")
    figures = tuple(_figures(node) for node in top.nodes("figures"))
    for idx, one in enumerate(figures):
        if one.lane not in names:
            raise top.fail(f"figures[{idx}].lane", f"one of the lanes ({', '.join(names)})")
    energy = top.node("energy")
    return BenchDocument(
        is_complete=top.flag("complete"),
        mode=mode,
        preset=top.maybe_text("preset"),
        started=top.maybe_text("started"),
        seconds=top.maybe_number("seconds"),
        conditions=top.node("conditions").fields,
        workload=top.node("workload").fields,
        settings=top.node("settings").fields,
        lanes=tuple(_lane(node) for node in top.nodes("lanes")),
        levels=tuple(_level(node) for node in top.nodes("levels")),
        figures=figures,
        costs=_costs(top.node("costs")) if top.has("costs") else None,
        quality=tuple(_quality(node) for node in top.nodes("quality")),
        energy_source=energy.maybe_text("source"),
        energy_reason=energy.maybe_text("reason"),
        stack=_stack(top),
    )


def check_version(top: Node) -> None:
    """Raises ConfigError for a document of another schema or version."""
    schema, version = top.fields.get("schema"), top.fields.get("version")
    if schema != SCHEMA:
        raise ConfigError(
            f"{top.source} is no result of `blockdraft bench` (its schema is {schema!r}, not "
            f"{SCHEMA!r}); give a results.json"
        )
    if version != VERSION:
        what = "measure again" if version == 1 else "use the Blockdraft that wrote it"
        raise ConfigError(
            f"{top.source} has version {version!r} of the schema and this Blockdraft reads "
            f"{VERSION}; {what}"
        )


def _mode(top: Node) -> str:
    mode = top.text("mode")
    if mode not in MODES:
        raise top.fail("mode", f"one of {', '.join(MODES)}")
    return mode


def _lane(node: Node) -> Lane:
    return Lane(
        name=node.text("name"),
        kind=node.text("kind"),
        drafter=node.maybe_text("drafter"),
        width=node.maybe_text("width"),
        block_size=node.maybe_count("block_size"),
        note=node.maybe_text("note"),
    )


def _load(node: Node) -> Load:
    load = Load(node.maybe_count("concurrency"), node.maybe_number("rate"))
    if (load.concurrency is None) == (load.rate is None):
        raise node.fail("concurrency", "given, or else rate (one of both)")
    return load


def _figures(node: Node) -> Figures:
    return Figures(
        lane=node.text("lane"),
        load=_load(node.node("arrival")),
        repeats=node.maybe_count("repeats") or 1,
        answers=node.maybe_count("answers"),
        tau=node.maybe_number("tau"),
        tau_interval=node.pair("tau_interval"),
        by_position=node.numbers("by_position"),
        conditional=node.numbers("conditional"),
        histogram=node.numbers("histogram"),
        tokens_per_second=node.maybe_number("tokens_per_second"),
        tokens_per_second_spread=node.pair("tokens_per_second_spread"),
        user_tokens_per_second=node.spread("user_tokens_per_second"),
        user_fairness=node.maybe_number("user_fairness"),
        first_token=node.spread("first_token_seconds"),
        inter_token=node.spread("inter_token_seconds"),
        end_to_end=node.spread("end_to_end_seconds"),
        speedup=node.maybe_number("speedup"),
        speedup_spread=node.pair("speedup_spread"),
        latency_speedup=node.maybe_number("latency_speedup"),
        draft_share=node.maybe_number("draft_share"),
        other_share=node.maybe_number("other_share"),
        joules_per_token=node.maybe_number("joules_per_token"),
        groups=_groups(node.node("groups")),
    )


def _groups(node: Node) -> Mapping[str, tuple[Group, ...]]:
    return {kind: tuple(_group(one) for one in node.nodes(kind)) for kind in node.fields}


def _group(node: Node) -> Group:
    return Group(
        name=node.maybe_text("name"),
        start=node.maybe_number("from"),
        end=node.maybe_number("to"),
        answers=node.maybe_count("answers"),
        tau=node.maybe_number("tau"),
        tau_interval=node.pair("tau_interval"),
        speedup=node.maybe_number("speedup"),
        tokens_per_second=node.maybe_number("tokens_per_second"),
    )


def _level(node: Node) -> Level:
    requests, acceptance = node.node("requests"), node.node("acceptance")
    return Level(
        lane=node.text("lane"),
        load=_load(node.node("arrival")),
        repeat=node.maybe_count("repeat") or 0,
        is_complete=node.flag("complete"),
        planned=requests.maybe_count("planned"),
        answered=requests.maybe_count("answered"),
        failed=requests.maybe_count("failed") or 0,
        failures=tuple(_failure(one) for one in requests.nodes("failures")),
        warnings=acceptance.texts("warnings"),
        reason=acceptance.maybe_text("reason"),
        sources=tuple(_source(one) for one in acceptance.nodes("sources")),
        step_time=_step_time(node.node("step_time")) if node.has("step_time") else None,
        times=tuple(_times(one) for one in node.nodes("records") if not one.has("failure")),
    )


def _times(node: Node) -> AnswerTimes:
    """As docs/measuring.md defines them; None where nothing was streamed or too little came."""
    sent, end, first = node.number("sent_s"), node.number("end_s"), node.maybe_number("first_s")
    chunks, tokens = node.numbers("chunks_s"), node.maybe_count("completion_tokens")
    between = None
    if first is not None and chunks and tokens is not None and tokens > 1:
        between = (chunks[-1] - first) / (tokens - 1)
    return AnswerTimes(None if first is None else first - sent, between, end - sent)


def _source(node: Node) -> Source:
    return Source(
        node.text("name"),
        node.text("definition"),
        node.maybe_number("tau"),
        node.pair("tau_interval"),
        node.maybe_count("accepted"),
        node.maybe_count("drafted"),
        node.maybe_count("steps"),
        node.maybe_number("acceptance_rate"),
        node.numbers("by_position"),
    )


def _failure(node: Node) -> str:
    count = node.maybe_count("count") or 1
    return f"{count} x {node.text('kind')}: {node.maybe_text('id')}: {node.maybe_text('message')}"


def _step_time(node: Node) -> StepTime:
    return StepTime(
        node.count("steps"),
        node.maybe_number("draft_seconds") or 0.0,
        node.maybe_number("verify_seconds") or 0.0,
        node.maybe_number("other_seconds") or 0.0,
    )


def _costs(node: Node) -> Costs:
    return Costs(
        context_len=node.maybe_count("context_len"),
        verify=tuple(
            VerifyCost(n.count("rows"), n.number("seconds")) for n in node.nodes("verify")
        ),
        draft=tuple(
            DraftCost(
                n.text("name"),
                n.text("kind"),
                n.text("weights"),
                n.count("tokens"),
                n.number("seconds"),
            )
            for n in node.nodes("draft")
        ),
        step_overhead=node.maybe_number("step_overhead_seconds"),
    )


def _quality(node: Node) -> Quality:
    return Quality(
        lane=node.text("lane"),
        compared=node.maybe_count("compared") or 0,
        identical=node.maybe_count("identical") or 0,
        epsilon=node.maybe_number("epsilon"),
        divergences=tuple(
            Divergence(
                n.text("id"), n.count("position"), n.maybe_number("margin"), n.flag("near_tie")
            )
            for n in node.nodes("divergences")
        ),
        reason=node.maybe_text("reason"),
    )


def _stack(top: Node) -> tuple[StackVerdict, ...] | None:
    if not top.has("stack"):
        return None
    return tuple(
        StackVerdict(
            node.text("engine"),
            node.text("verdict"),
            node.texts("findings"),
            node.maybe_text("drafter"),
        )
        for node in top.nodes("stack")
    )

"""An endpoint beside a plain server: turns, speed-ups, and baselines that are none."""

import json
from pathlib import Path
from statistics import median
from typing import cast

import pytest
from scripted_engine import ScriptedEngine, steps_of
from test_command import Capture, Document, Start, run

from blockdraft.bench import (
    Arrival,
    Bench,
    BenchOrder,
    Endpoint,
    EndpointPlan,
    RequestSettings,
    WorkloadSource,
    read_workload,
    turns,
)
from blockdraft.errors import ConfigError


def plain_engine(start: Start) -> ScriptedEngine:
    """As many tokens an answer, and much slower."""
    engine = start("vllm")
    engine.tells_counts = engine.has_metrics = False
    engine.delay = 0.015
    return engine


def order(engine: ScriptedEngine, prompts: Path, lane: str) -> BenchOrder:
    settings = RequestSettings()
    return BenchOrder(
        endpoint=Endpoint(url=engine.url),
        settings=settings,
        workload=read_workload(WorkloadSource(path=prompts), settings),
        lane=lane,
    )


def test_lanes_take_turns_and_begin_by_turns(start: Start, prompts: Path) -> None:
    engine = start("vllm")
    plan = EndpointPlan(arrivals=[Arrival(concurrency=n) for n in (1, 2, 4)], repeats=2)
    with (
        Bench(order(engine, prompts, "endpoint")) as first,
        Bench(order(engine, prompts, "plain")) as second,
    ):
        told = [
            (turn.repeat, turn.arrival.concurrency, turn.bench.order.lane)
            for turn in turns(plan, (first, second))
        ]
    assert len(told) == len(set(told)) == 12
    begins = [lane for _, _, lane in told[::2]]
    assert begins == ["endpoint", "plain", "endpoint", "plain", "endpoint", "plain"]
    assert [load for _, load, _ in told] == [1, 1, 2, 2, 4, 4] * 2
    with pytest.raises(ConfigError, match="--repeats is 0"):
        EndpointPlan(arrivals=[], repeats=0)


def test_the_speedup_is_that_of_the_same_repeat(
    start: Start, prompts: Path, tmp_path: Path, capsys: Capture
) -> None:
    engine, plain = start("vllm"), plain_engine(start)
    engine.delay = 0.002
    argv = ["--prompts", str(prompts), "--concurrency", "2", "--repeats", "2", "--json"]
    assert run(engine, *argv, "--baseline", plain.url, "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr()
    assert "2 at once, plain, repeat 2 of 2: 7 requests, 0 failed" in printed.err
    document = cast(Document, json.loads(printed.out))
    lanes = cast("list[Document]", document["lanes"])
    assert [(lane["name"], lane["kind"]) for lane in lanes] == [
        ("endpoint", "endpoint"),
        ("plain", "plain"),
    ]
    assert cast(Document, document["conditions"])["baseline_url"] == plain.url
    levels = cast("list[Document]", document["levels"])
    assert [(level["repeat"], level["lane"]) for level in levels] == [
        (0, "endpoint"),
        (0, "plain"),
        (1, "plain"),
        (1, "endpoint"),
    ]
    speeds = {
        (level["repeat"], level["lane"]): cast("dict[str, float]", level["throughput"])[
            "tokens_per_second"
        ]
        for level in levels
    }
    ratios = [speeds[repeat, "endpoint"] / speeds[repeat, "plain"] for repeat in range(2)]
    ours, base = cast("list[Document]", document["figures"])
    assert ours["speedup"] == pytest.approx(median(ratios)) and ratios[0] > 1.1
    assert ours["speedup_spread"] == pytest.approx([min(ratios), max(ratios)])
    assert base["speedup"] == 1
    steps = [kept for n in range(7) for kept in steps_of(f"question {n}")]
    assert ours["tau"] == pytest.approx(1 + sum(steps) / len(steps))
    # Both were asked the same, and each warmed up.
    asked, there = ([str(body["messages"]) for body in e.bodies[1:8]] for e in (engine, plain))
    assert sorted(asked) == sorted(there)
    assert len(engine.bodies) == len(plain.bodies) == 15


def test_baselines_that_are_none(start: Start, prompts: Path, capsys: Capture) -> None:
    engine, other = start("vllm"), plain_engine(start)
    file = ("--prompts", str(prompts))
    other.models = ["large"]
    with pytest.raises(ConfigError, match="--baseline serves 'large' and --endpoint 'tiny'"):
        run(engine, *file, "--baseline", other.url)
    assert run(engine, *file, "--baseline", other.url, "--baseline-model", "large", "--json") == 0
    with pytest.raises(ConfigError, match="--baseline is --endpoint itself"):
        run(engine, *file, "--baseline", f"{engine.url}/v1/")
    with pytest.raises(ConfigError, match="--baseline 'somewhere' is no http address"):
        run(engine, *file, "--baseline", "somewhere")
    with pytest.raises(ConfigError, match="--baseline-model is a name at --baseline"):
        run(engine, *file, "--baseline-model", "large")
    gone = start("vllm")
    gone.stop()
    with pytest.raises(ConfigError, match=r"does not answer .*or correct --baseline"):
        run(engine, *file, "--baseline", gone.url)
    capsys.readouterr()
    assert run(engine, *file, "--baseline", start("vllm").url) == 0
    assert "warning: the baseline drafts too" in capsys.readouterr().err


def test_a_baseline_that_dies_leaves_a_part(
    start: Start, prompts: Path, tmp_path: Path, capsys: Capture
) -> None:
    engine, plain = start("vllm"), plain_engine(start)
    plain.requests_until_death = 4
    argv = ["--prompts", str(prompts), "--baseline", plain.url, "--concurrency", "1", "2"]
    assert run(engine, *argv, "--out", str(tmp_path / "out")) == 1
    assert "stopped after 5 of 7 requests (1 at once, plain)" in capsys.readouterr().err
    document = cast(Document, json.loads((tmp_path / "out" / "results.json").read_text()))
    levels = cast("list[Document]", document["levels"])
    assert document["complete"] is False
    assert [(level["lane"], level["complete"]) for level in levels] == [
        ("endpoint", True),
        ("plain", False),
    ]
    figures = cast("list[Document]", document["figures"])
    assert figures[0]["tau"] is not None and figures[0]["speedup"] is None

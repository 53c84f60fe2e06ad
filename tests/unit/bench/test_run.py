"""Whole runs against engines of every dialect: figures recomputed from what the script accepts."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from scripted_engine import NUM_DRAFTS, ScriptedEngine, steps_of

from blockdraft.bench import (
    Arrival,
    Bench,
    BenchOrder,
    Endpoint,
    Level,
    RequestRecord,
    RequestSettings,
    WorkloadSource,
    read_workload,
)
from blockdraft.bench.arrivals import arrival_times
from blockdraft.errors import ConfigError

Start = Callable[[str], ScriptedEngine]
ONE = Arrival(concurrency=1)


def ignore(record: RequestRecord) -> None:
    pass


def order_for(
    engine: ScriptedEngine,
    prompts: Path | None,
    *,
    settings: RequestSettings | None = None,
    timeout: float = 20.0,
    model: str | None = None,
    warm_ups: int = 1,
    limit: int | None = None,
) -> BenchOrder:
    settings = settings or RequestSettings()
    return BenchOrder(
        endpoint=Endpoint(url=engine.url, timeout=timeout),
        settings=settings,
        workload=read_workload(WorkloadSource(path=prompts, limit=limit), settings),
        model=model,
        num_warm_ups=warm_ups,
    )


def measure(order: BenchOrder, arrival: Arrival = ONE) -> Level:
    with Bench(order) as bench:
        bench.connect()
        return bench.measure(arrival, ignore)


EXPECTED_SOURCES = {
    "blockdraft": ["metrics.speculative_decoding", "vllm: counters"],
    "vllm": ["metrics.speculative_decoding", "vllm: counters"],
    "llamacpp": ["llamacpp: counters", "timings"],
    "sglang": ["meta_info", "sglang: counters", "sglang: gauges"],
    "trtllm": ["trtllm: gauges"],
    "plain": [],
}


@pytest.mark.parametrize("dialect", EXPECTED_SOURCES)
def test_tau_is_what_the_script_accepts(start: Start, prompts: Path, dialect: str) -> None:
    engine = start(dialect)
    level = measure(order_for(engine, prompts), Arrival(concurrency=2))
    assert level.is_complete and level.num_failed == 0
    assert [source.name for source in level.acceptance.sources] == EXPECTED_SOURCES[dialect]

    steps = [kept for n in range(7) for kept in steps_of(f"question {n}")]
    tau, rate = 1 + sum(steps) / len(steps), sum(steps) / (NUM_DRAFTS * len(steps))
    by_position = tuple(
        sum(kept > position for kept in steps) / len(steps) for position in range(NUM_DRAFTS)
    )
    for source in level.acceptance.sources:
        if "gauges" in source.name:
            assert source.tau in (2.75, 2.5)
            continue
        assert source.tau == pytest.approx(tau, abs=1e-12)
        if source.accepted is not None:
            assert source.accepted == sum(steps)
        if source.acceptance_rate is not None:
            assert source.acceptance_rate == pytest.approx(rate)
        if source.by_position:
            assert source.by_position == pytest.approx(by_position)
    assert level.acceptance.warnings == ()
    assert bool(level.acceptance.reason) == (dialect == "plain")


def test_tokens_are_the_servers_count_and_not_of_chunks(start: Start, prompts: Path) -> None:
    engine = start("vllm")
    level = measure(order_for(engine, prompts))
    for record in level.records:
        steps = steps_of(f"question {record.number}")
        assert record.usage.completion == 1 + len(steps) + sum(steps)
        assert record.usage.cached == 2
        # The role came first and the usage last; neither is a chunk with text.
        assert len(record.chunks_s) == 1 + len(steps)
        assert record.first_s == record.chunks_s[0]
        assert record.sent_s <= record.chunks_s[0] <= record.chunks_s[-1] <= record.end_s


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_only_a_line_feed_ends_a_line(start: Start, prompts: Path, line_end: bytes) -> None:
    """Engines send U+2028 and its kin as they are; str.splitlines would cut an event there."""
    engine = start("vllm")
    engine.first_text, engine.line_end = "\x85a\u2028b\u2029", line_end
    level = measure(order_for(engine, prompts))
    assert level.is_complete and level.num_failed == 0


def test_times_are_those_of_the_script(start: Start, prompts: Path) -> None:
    engine = start("vllm")
    engine.delay = 0.02
    level = measure(order_for(engine, prompts))
    for record in level.records:
        num_steps = len(steps_of(f"question {record.number}"))
        decode = record.chunks_s[-1] - record.chunks_s[0]
        assert record.first_token_seconds is not None and record.first_token_seconds >= 0.02
        assert record.chunks_s[-1] - record.sent_s >= 0.02 * (num_steps + 1)
        assert record.seconds >= record.chunks_s[-1] - record.sent_s
        assert record.inter_token_seconds is not None and record.usage.completion is not None
        assert record.inter_token_seconds * (record.usage.completion - 1) == pytest.approx(decode)


def test_a_closed_loop_keeps_so_many_running(start: Start, prompts: Path) -> None:
    engine = start("plain")
    engine.delay = 0.01
    level = measure(order_for(engine, prompts), Arrival(concurrency=5))
    assert engine.most_running == 5
    assert (level.num_planned, level.num_distinct) == (10, 7)
    assert sorted(record.number for record in level.records) == list(range(10))


def test_arrivals_come_at_their_times(start: Start, prompts: Path) -> None:
    engine = start("plain")
    engine.delay = 0.03
    level = measure(order_for(engine, prompts), Arrival(rate=40))
    times = arrival_times(7, 40, seed=0)
    sent = sorted(record.sent_s for record in level.records)
    assert all(late >= at - 0.02 for late, at in zip(sent, times, strict=True))
    assert engine.most_running > 1  # nobody waited for an answer


def test_arrivals_have_the_rate_and_follow_the_seed() -> None:
    times = arrival_times(4001, 5.0, seed=3)
    gaps = [late - early for early, late in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.06) and times[0] == 0
    # Of an exponential distribution the deviation is the mean.
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)
    assert arrival_times(5, 5.0, 3) == times[:5] != arrival_times(5, 5.0, 4)
    assert arrival_times(0, 1.0, 0) == []


def test_what_is_asked(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text('{"prompt": "text", "system": "be brief"}\n{"prompt_ids": [5, 6, 7]}\n')
    engine = start("vllm")
    settings = RequestSettings(
        max_tokens=9,
        temperature=0.5,
        template_args={"enable_thinking": False},
        ignore_eos=True,
        seed=11,
    )
    measure(order_for(engine, path, settings=settings))
    warm_up, chat, ids = engine.bodies
    assert engine.paths == ["/v1/chat/completions", "/v1/chat/completions", "/v1/completions"]
    assert chat == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "text"},
        ],
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 11,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert (ids["prompt"], ids["seed"]) == ([5, 6, 7], 12) and "messages" not in ids
    assert warm_up["messages"] != chat["messages"]


def test_raw_prompts_go_without_a_template(start: Start, prompts: Path) -> None:
    engine = start("blockdraft")
    level = measure(order_for(engine, prompts, settings=RequestSettings(raw=True)))
    assert set(engine.paths) == {"/v1/completions"} and level.num_failed == 0
    assert engine.bodies[1]["prompt"] == "question 0" and "seed" not in engine.bodies[1]
    assert level.records[0].first_s is not None


def test_the_builtin_prompts(start: Start) -> None:
    engine = start("vllm")
    engine.context = 5000
    level = measure(order_for(engine, None))
    assert len(level.records) == level.num_planned == 14 and level.num_failed == 0
    assert {record.category for record in level.records} >= {"math", "code"}


def test_an_endpoint_that_does_not_stream_or_count(start: Start, prompts: Path) -> None:
    engine = start("plain")
    engine.streams = engine.tells_usage = False
    level = measure(order_for(engine, prompts))
    assert level.is_complete and level.num_failed == 0
    assert all(r.first_s is None and r.usage.completion is None for r in level.records)


def test_failures_are_told_apart_and_others_go_on(start: Start, prompts: Path) -> None:
    engine = start("vllm")
    engine.context = 60
    with prompts.open("a") as file:
        file.write('{"id": "long", "prompt": "' + "x" * 61 + '"}\n')
    hows = ("hangs", "error", "cut", "500")
    engine.broken = {f"question {n}": how for n, how in enumerate(hows)}
    level = measure(order_for(engine, prompts, timeout=5.0), Arrival(concurrency=8))
    kinds = {r.id: r.failure.kind for r in level.records if r.failure is not None}
    assert kinds == {
        "p0": "timeout",
        "p1": "broken off",
        "p2": "broken off",
        "p3": "refused",
        "long": "prompt too long",
    }
    messages = {r.id: r.failure.message for r in level.records if r.failure is not None}
    assert messages["p1"] == "the engine failed"
    assert messages["long"].startswith("status 400: This model's maximum context length is 60")
    assert level.is_complete and level.ended_by is None


def test_a_server_that_dies_ends_the_run_and_keeps_its_part(start: Start, prompts: Path) -> None:
    engine = start("vllm")
    engine.requests_until_death = 4  # the warm-up and three more
    level = measure(order_for(engine, prompts))
    assert [record.is_ok for record in level.records[:3]] == [True] * 3
    assert not level.is_complete and level.num_failed == 2
    assert level.ended_by is not None and level.ended_by.kind == "no connection"
    best = level.acceptance.best
    assert best is not None and best.name == "metrics.speculative_decoding"


def test_mistakes_end_before_anything_is_measured(start: Start, prompts: Path) -> None:
    def told(order: BenchOrder) -> str:
        with Bench(order) as bench, pytest.raises(ConfigError) as caught:
            bench.connect()
        return str(caught.value)

    engine = start("vllm")
    assert "serves no 'tniy', only tiny" in told(order_for(engine, prompts, model="tniy"))
    engine.models = ["tiny", "large"]
    assert "several models: tiny, large; choose" in told(order_for(engine, prompts))
    engine.models = []
    assert "lists no models; choose with --model" in told(order_for(engine, prompts))
    refused = told(order_for(engine, prompts, model="ghost"))
    assert "no answer to the warm-up request (refused): status 404" in refused
    engine.models, engine.key = ["tiny"], "secret"
    assert "wants a key (status 401)" in told(order_for(engine, prompts))
    gone = order_for(engine, prompts)
    engine.stop()
    assert "does not answer (ConnectError" in told(gone)
    engine = start("vllm")
    engine.url += "/api"
    assert "no OpenAI interface is there" in told(order_for(engine, prompts))
    assert "no OpenAI interface is there" in told(order_for(engine, prompts, model="tiny"))
    with pytest.raises(ConfigError, match="no http address"):
        Endpoint(url="127.0.0.1:8000")
    with pytest.raises(ConfigError, match="no http address"):
        Endpoint(url="http://host:port")


def test_addresses() -> None:
    for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert (Endpoint(url=url).api, Endpoint(url=url).root) == ("http://h:1/v1", "http://h:1")
    other = Endpoint(url="https://h/v3")
    assert (other.api, other.root, other.is_local) == ("https://h/v3", "https://h", False)
    assert "k" not in repr(Endpoint(url="http://h", api_key="kkk")).partition("http")[0]
    assert "kkk" not in repr(Endpoint(url="http://h", api_key="kkk"))

"""What a scrape says equals what the engine did: counts, acceptance, times in order.

Engines are real and small; clients' own arithmetic is done on the exposed text.
"""

import asyncio
import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from blockdraft.decoding import AcceptanceStats, Commit, Drafter, NoDrafter, SamplingParams
from blockdraft.decoding.stats import StepCount
from blockdraft.engine import Engine, EngineConfig, EngineStats, build_engine, parse_width
from blockdraft.errors import ConfigError, Error, RequestError
from blockdraft.native import NativeTarget
from blockdraft.serving.metrics import CATALOG, CONTENT_TYPE, MetricsConfig, ServingMetrics
from blockdraft.serving.runner import EngineRunner, RequestRecord, StepRecord
from blockdraft.testing import OracleDrafter
from blockdraft.testing.tiny import tiny_model

CONFIG = MetricsConfig(
    model_name="tiny",
    slots=2,
    max_waiting=50,
    num_draft_positions=4,
    info={"drafter": "oracle", "width": "fixed:5"},
)
PARAMS = SamplingParams(max_new_tokens=13, ignore_eos=True)
PROMPTS = [tuple(range(start, start + 20)) for start in (5, 30, 55, 5, 30)]


@pytest.fixture(scope="module")
def target() -> NativeTarget:
    return NativeTarget(tiny_model("llama"))


def engine_of(target: NativeTarget, drafter: Drafter) -> Engine:
    config = EngineConfig(
        slots=2, max_context=64, kv_memory=10**6, width=parse_width(f"fixed:{drafter.block_size}")
    )
    return build_engine(target, drafter, config).engine


class Scrape:
    """Values of an exposition, by exposed name and further labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: dict[str, str] = {}
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                labels = dict(sample.labels)
                assert (labels.pop("model_name"), labels.pop("engine")) == ("tiny", "0")
                self.values[sample.name, frozenset(labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self.values[name, frozenset(labels.items())]

    def all(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (found, labels), value in self.values.items() if found == name}


def scrape(metrics: ServingMetrics) -> Scrape:
    return Scrape(metrics.render().decode())


def serve(
    engine: Engine, requests: Sequence[tuple[Sequence[int], SamplingParams]]
) -> tuple[ServingMetrics, EngineStats]:
    """Answer `requests` through a runner; one that is refused or fails has no answer."""
    metrics = ServingMetrics(CONFIG)
    runner = EngineRunner(engine, max_waiting=CONFIG.max_waiting, num_slots=2, observer=metrics)
    metrics.watch(runner)

    async def ask(prompt: Sequence[int], params: SamplingParams) -> None:
        try:
            async for _ in await runner.submit(prompt, params):
                pass
        except Error:
            pass

    async def main() -> None:
        await asyncio.gather(*(ask(*request) for request in requests))

    runner.start()
    asyncio.run(main())
    runner.stop()
    return metrics, engine.stats()


def derived_acceptance_length(text: str) -> float:
    """As benchmark clients do it: sums of lines by prefix, suffix `_total`."""
    sums = {"num_drafts": 0.0, "num_accepted_tokens": 0.0}
    for line in text.splitlines():
        found = re.match(r"vllm:spec_decode_(\w+)_total\b", line)
        if found is not None and found[1] in sums:
            sums[found[1]] += float(line.split()[-1])
    return 1 + sums["num_accepted_tokens"] / sums["num_drafts"]


# Names


def test_the_registry_exposes_exactly_the_catalog(target: NativeTarget) -> None:
    """What docs/metrics.md lists is what a scrape has, from the first scrape on."""
    engine = engine_of(target, OracleDrafter(target, 5))
    for requests in ([], [(PROMPTS[0], PARAMS)]):
        metrics, _ = serve(engine, requests)
        found = scrape(metrics)
        assert found.kinds == {info.name: info.kind for info in CATALOG}
        for info in CATALOG:
            bare = [labels for (name, labels) in found.values if name == info.exposed_name]
            for labels in bare:
                assert {name for name, _ in labels} == set(info.labels)
        assert "_created" not in found.text
    assert "text/plain" in CONTENT_TYPE


def test_series_begin_with_zero() -> None:
    found = scrape(ServingMetrics(CONFIG))
    for position in range(4):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        assert found.value(name, position=str(position)) == 0
    assert found.value("vllm:request_success_total", finished_reason="abort") == 0
    assert found.value("blockdraft:requests_refused_total", reason="overloaded") == 0
    assert found.value("vllm:time_to_first_token_seconds_count") == 0


# Acceptance


@pytest.mark.parametrize("num_right", [0, 1, 3, None])
def test_acceptance_as_clients_derive_it(target: NativeTarget, num_right: int | None) -> None:
    """Without a stop inside the drafts, 1 + accepted / drafts is tau over drafted steps."""
    drafter = OracleDrafter(target, 5, num_right=num_right)
    metrics, stats = serve(engine_of(target, drafter), [(p, PARAMS) for p in PROMPTS])
    found, acceptance = scrape(metrics), stats.acceptance
    assert acceptance.tau_drafted is not None and acceptance.requests == len(PROMPTS)
    assert derived_acceptance_length(found.text) == pytest.approx(acceptance.tau_drafted)
    drafts = found.value("vllm:spec_decode_num_drafts_total")
    assert drafts == acceptance.drafted_steps
    tokens = found.value("blockdraft:drafted_step_tokens_total")
    assert tokens / drafts == acceptance.tau_drafted
    assert found.value("blockdraft:acceptance_length") == acceptance.tau_drafted
    assert found.value("vllm:spec_decode_num_draft_tokens_total") == sum(acceptance.drafted)
    assert found.value("blockdraft:verifications_total") == acceptance.steps
    for position, accepted in enumerate(acceptance.accepted):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        assert found.value(name, position=str(position)) == accepted


def test_a_stop_inside_the_drafts_is_the_only_difference(target: NativeTarget) -> None:
    """AL - tau = (requests that ended on a draft) / drafts, exactly."""
    engine = engine_of(target, OracleDrafter(target, 5))
    key = engine.submit(PROMPTS[0], PARAMS)
    ids: list[int] = []
    while engine.knows(key):
        ids += [i for e in engine.step() if isinstance(e.outcome, Commit) for i in e.outcome.ids]
    # With all drafts right, blocks are [0], [1..5], [6..10], ..: token 8 is a draft, 5 is not.
    on_draft = replace(PARAMS, stop_ids=(ids[8],))
    on_bonus = replace(PARAMS, stop_ids=(ids[5],))
    assert ids.index(ids[8]) == 8 and ids.index(ids[5]) == 5
    requests = [(PROMPTS[0], on_draft)] * 3 + [(PROMPTS[0], on_bonus)] * 2
    metrics, stats = serve(engine_of(target, OracleDrafter(target, 5)), requests)
    drafts = stats.acceptance.drafted_steps
    assert stats.acceptance.tau_drafted is not None
    difference = derived_acceptance_length(metrics.render().decode()) - stats.acceptance.tau_drafted
    assert difference == pytest.approx(3 / drafts)


def test_speculation_is_counted_commit_by_commit() -> None:
    """Counts of a commit are the difference of the statistics before and after it."""
    metrics = ServingMetrics(CONFIG)
    record = RequestRecord(request_id="a", prompt_len=7, submitted=0.0, admitted=1.0)
    stats = AcceptanceStats().with_prefill_token()
    steps = [
        StepCount(num_committed=3, num_drafted=4, num_accepted=2, num_unusable=1),
        StepCount(num_committed=1, num_drafted=0, num_accepted=0),
        StepCount(num_committed=2, num_drafted=4, num_accepted=2, num_cut=1),
    ]
    now = 2.0
    for step in (None, *steps):
        stats = stats if step is None else stats.with_step(step)
        ids = (1,) * (1 if step is None else step.num_committed)
        commit = Commit(
            ids=ids, num_accepted=0, text="", logprobs=(), stats=stats, finish_reason=None
        )
        metrics.committed(record, commit, now)
        record.take(commit, now)
        now += 1.0
    metrics.ended(record, "stop", 5.0)
    found = scrape(metrics)
    expected = {
        "vllm:spec_decode_num_drafts_total": 2,
        "vllm:spec_decode_num_draft_tokens_total": 4 + 3,
        "vllm:spec_decode_num_accepted_tokens_total": 4,
        "blockdraft:verifications_total": 3,
        "blockdraft:drafted_step_tokens_total": 5,
        "blockdraft:unusable_drafts_total": 1,
        "vllm:generation_tokens_total": 7,
        "vllm:prompt_tokens_total": 7,
        "vllm:time_to_first_token_seconds_sum": 2.0,
        "vllm:inter_token_latency_seconds_sum": 3.0,
        "vllm:inter_token_latency_seconds_count": 3,
        "vllm:e2e_request_latency_seconds_sum": 5.0,
        "vllm:request_queue_time_seconds_sum": 1.0,
        "vllm:request_prefill_time_seconds_sum": 1.0,
        "vllm:request_decode_time_seconds_sum": 3.0,
        "vllm:request_inference_time_seconds_sum": 4.0,
        "vllm:request_time_per_output_token_seconds_sum": 0.5,
    }
    assert {name: found.value(name) for name in expected} == expected


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    metrics = ServingMetrics(CONFIG)
    record = RequestRecord(
        request_id="a",
        prompt_len=2,
        submitted=0.0,
        admitted=1.0,
        first_token=2.0,
        last_token=2.0,
        num_tokens=1,
    )
    metrics.ended(record, "length", 2.0)
    found = scrape(metrics)
    assert found.value("vllm:request_time_per_output_token_seconds_count") == 0
    assert found.value("vllm:e2e_request_latency_seconds_count") == 1


# Requests and the engine


def test_requests_and_tokens_add_up(target: NativeTarget) -> None:
    bad = (10**6,)
    requests = [*((p, PARAMS) for p in PROMPTS), (bad, PARAMS), (PROMPTS[0], PARAMS)]
    metrics, stats = serve(engine_of(target, NoDrafter()), requests)
    found = scrape(metrics)
    assert found.value("vllm:request_success_total", finished_reason="length") == 6
    assert found.value("blockdraft:requests_refused_total", reason="invalid") == 1
    num_tokens = found.value("vllm:generation_tokens_total")
    assert num_tokens == stats.acceptance.tokens == 6 * 13
    assert found.value("vllm:prompt_tokens_total") == 6 * 20
    step_tokens = found.value("vllm:iteration_tokens_total_sum")
    assert step_tokens == num_tokens + found.value("vllm:prompt_tokens_total")
    assert found.value("vllm:iteration_tokens_total_count") == stats.steps
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        *(f"request_{part}_time_seconds" for part in ("queue", "prefill", "decode", "inference")),
        "request_time_per_output_token_seconds",
    ):
        assert found.value(f"vllm:{name}_count") == 6
        assert found.value(f"vllm:{name}_sum") >= 0
    assert found.value("vllm:prefix_cache_queries_total") == stats.prefixes.prompt_rows
    assert found.value("vllm:prefix_cache_hits_total") == stats.prefixes.hit_rows > 0
    assert found.value("blockdraft:prefix_hits_total") == stats.prefixes.hits


def test_what_the_engine_says_of_itself(target: NativeTarget) -> None:
    metrics, stats = serve(engine_of(target, NoDrafter()), [(PROMPTS[0], PARAMS)])
    found = scrape(metrics)
    assert found.value("blockdraft:engine_steps_total") == stats.steps
    reasons = found.all("blockdraft:width_decisions_total")
    by_reason = {dict(labels)["reason"]: value for labels, value in reasons.items()}
    assert by_reason == stats.widths["reasons"]
    pairs = found.all("blockdraft:verify_width_requests_total")
    assert sum(pairs.values()) == stats.acceptance.steps
    rows = {dict(key)["state"]: n for key, n in found.all("blockdraft:kv_rows").items()}
    assert sum(rows.values()) == stats.rows_total and rows["running"] == 0
    assert rows["kept"] == stats.rows_kept > 0
    assert found.value("vllm:kv_cache_usage_perc") == 0
    assert found.value("blockdraft:serving_info", key="drafter", value="oracle") == 1
    assert found.value("blockdraft:slots") == 2 and found.value("blockdraft:queue_limit") == 50
    assert found.value("blockdraft:engine_alive") == found.value("blockdraft:ready") == 0


def test_states_of_a_runner_that_serves(target: NativeTarget) -> None:
    metrics = ServingMetrics(CONFIG)
    runner = EngineRunner(engine_of(target, OracleDrafter(target, 5)), max_waiting=3)
    metrics.watch(runner)
    runner.start()
    found = scrape(metrics)
    assert found.value("blockdraft:engine_alive") == found.value("blockdraft:ready") == 1
    assert asyncio.run(runner.drain(None))
    found = scrape(metrics)
    assert found.value("blockdraft:engine_alive") == 1 and found.value("blockdraft:ready") == 0
    runner.stop()


def test_aborts_errors_and_refusals() -> None:
    metrics = ServingMetrics(CONFIG)
    record = RequestRecord(request_id="a", prompt_len=2, submitted=0.0)
    metrics.submitted(record)
    metrics.ended(record, "abort", 1.0)
    metrics.ended(replace(record, admitted=0.5), "error", 1.0)
    metrics.refused("overloaded")
    metrics.stepped(StepRecord(2, 3, 0.1))
    found = scrape(metrics)
    for reason in ("abort", "error"):
        assert found.value("vllm:request_success_total", finished_reason=reason) == 1
    assert found.value("blockdraft:requests_refused_total", reason="overloaded") == 1
    assert found.value("vllm:e2e_request_latency_seconds_count") == 0
    assert found.value("vllm:iteration_tokens_total_bucket", le="8.0") == 1


def test_two_registries_do_not_meet() -> None:
    """Nothing is kept in a global registry: a second server in one process is fine."""
    first, second = ServingMetrics(CONFIG), ServingMetrics(CONFIG)
    first.refused("invalid")
    name = "blockdraft:requests_refused_total"
    assert scrape(first).value(name, reason="invalid") == 1
    assert scrape(second).value(name, reason="invalid") == 0


def test_bad_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="counts"):
        MetricsConfig(model_name="m", slots=-1, max_waiting=1, num_draft_positions=0)


def test_without_prometheus_client_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("blockdraft.serving.metrics")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", cast("object", None))
    with pytest.raises(ConfigError, match=r"pip install 'blockdraft\[serve\]'"):
        importlib.import_module("blockdraft.serving.metrics")
    assert issubclass(RequestError, Error)

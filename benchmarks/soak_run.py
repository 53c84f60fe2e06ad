"""The soak itself: clients at random for a while, a watch beside them, and the account at the end.

Requests, answers and the process are elsewhere; here is who does what when, and what must add up.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from soak_answers import Known
from soak_client import carry_out, new_client
from soak_orders import draw
from soak_process import Metrics, Sample, ServerProcess, access_counts, read_metrics
from soak_report import MemoryFigures, Report, memory_figures, thinned

MEAN_PAUSE_SECONDS = 0.15
SAMPLE_SECONDS = 0.5
SAY_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
MOST_COMPLAINTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is asked, and for how long."""

    seconds: float
    clients: int = 10
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    load: Load
    known: tuple[Known, ...]


@dataclass(slots=True)
class _Account:
    """What the clients saw. Choices are counted, since each is one request of the engine."""

    orders: Counter[str] = field(default_factory=Counter[str])
    statuses: Counter[str] = field(default_factory=Counter[str])
    choices: Counter[str] = field(default_factory=Counter[str])
    ids: Counter[str] = field(default_factory=Counter[str])
    num_compared: int = 0
    num_probes: int = 0
    slowest_probe: float = 0.0
    complaints: list[str] = field(default_factory=list[str])

    def complain(self, text: str) -> None:
        if len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.append(text)


async def soak(server: ServerProcess, plan: Plan) -> Report:
    """Wait for the server, load it, end it; the report says what was wrong."""
    await server.up()
    account, samples = _Account(), list[Sample]()
    load = plan.load
    async with new_client(server.url) as probe:
        before = server.sample()
        ended = asyncio.Event()
        watch = asyncio.create_task(_watch(server, account, samples, ended))
        until = time.monotonic() + load.seconds
        async with asyncio.TaskGroup() as group:
            for number in range(load.clients):
                seed = load.seed * 1000 + number
                group.create_task(_client(server.url, plan, account, random.Random(seed), until))
        ended.set()
        await watch
        metrics = await _settled(probe, account)
    await asyncio.sleep(1.0)  # connections are closed by now
    after = server.sample()
    if server.end() != 0:
        account.complain("the server did not exit with 0 after SIGTERM")
    _check_files(account, before, after)
    memory = memory_figures(samples)
    _check_memory(account, memory, load.seconds)
    _check_log(account, server)
    _check_counts(account, metrics)
    return _report(plan, account, metrics, samples, (before, after))


async def _client(
    url: str, plan: Plan, account: _Account, rng: random.Random, until: float
) -> None:
    client = new_client(url)
    try:
        while time.monotonic() < until:
            await asyncio.sleep(rng.expovariate(1 / MEAN_PAUSE_SECONDS))
            order = draw(rng, plan.known)
            outcome = await carry_out(client, order, rng)
            account.orders[order.kind] += 1
            account.statuses[outcome.status] += 1
            account.choices[outcome.status] += order.num_choices
            account.num_compared += order.known is not None and outcome.status == "answered"
            if outcome.request_id is not None:
                account.ids[outcome.request_id] += 1
            if outcome.complaint:
                account.complain(outcome.complaint)
            if outcome.status == "left" and rng.random() < 0.5:
                await client.aclose()
                client = new_client(url)
    finally:
        await client.aclose()


async def _watch(
    server: ServerProcess, account: _Account, samples: list[Sample], ended: asyncio.Event
) -> None:
    """Ask for /health and look at the process, again and again."""
    said = time.monotonic()
    async with new_client(server.url) as client:
        while not ended.is_set():
            began = time.monotonic()
            try:
                status = (await client.get("/health")).status_code
            except httpx.HTTPError as error:
                account.complain(f"/health failed: {type(error).__name__} {error}")
            else:
                if status != 200:
                    account.complain(f"/health answered {status}")
            account.num_probes += 1
            account.slowest_probe = max(account.slowest_probe, time.monotonic() - began)
            samples.append(server.sample())
            if began - said >= SAY_SECONDS:
                said = began
                sys.stderr.write(f"{samples[-1].seconds:.0f} s: {dict(account.statuses)}\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), SAMPLE_SECONDS)


async def _settled(client: httpx.AsyncClient, account: _Account) -> Metrics:
    """The metrics once nothing runs any more; requests whose clients left end by then."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        metrics = await read_metrics(client)
        left = {
            name: metrics.total(name)
            for name in (
                "vllm:num_requests_running",
                "vllm:num_requests_waiting",
                "vllm:kv_cache_usage_perc",
            )
            if metrics.total(name)
        }
        if metrics.total("blockdraft:kv_rows", 'state="running"'):
            left["rows of running requests"] = 1
        if not left:
            return metrics
        if time.monotonic() > until:
            account.complain(f"left over at the end: {left}")
            return metrics
        await asyncio.sleep(0.2)


def _check_counts(account: _Account, metrics: Metrics) -> None:
    """Every accepted request ended once: as the clients saw it, or behind their backs."""
    ended = {
        reason: metrics.total("vllm:request_success_total", f'finished_reason="{reason}"')
        for reason in ("stop", "length", "abort", "error")
    }
    answered = account.choices["answered"]
    unseen = account.choices["left"] + account.choices["overloaded"]
    if not answered <= ended["stop"] + ended["length"] <= answered + unseen:
        account.complain(f"{answered} choices were answered, and the server counts {ended}")
    if ended["abort"] > unseen:
        account.complain(f"{ended['abort']:.0f} requests aborted, and {unseen} could be")
    for name in ("blockdraft:engine_faults_total", "blockdraft:drafter_failures_total"):
        if metrics.total(name):
            account.complain(f"{name} is {metrics.total(name):.0f}")
    dead = metrics.total("blockdraft:requests_refused_total", 'reason="dead"')
    if ended["error"] or dead:
        account.complain(f"{ended['error']:.0f} requests failed, {dead:.0f} met a dead engine")


def _check_log(account: _Account, server: ServerProcess) -> None:
    """One line for each response, and none of a server error."""
    logged, statuses = access_counts(server.log_lines())
    for request_id, count in account.ids.items():
        if count != 1 or logged[request_id] != 1:
            account.complain(
                f"{request_id} was seen {count} times and logged {logged[request_id]} times"
            )
    wrong = {status: n for status, n in statuses.items() if status >= 500 and status != 503}
    if wrong:
        account.complain(f"server errors in the log: {wrong}")
    bad = [line for line in server.log_lines() if line["level"] in ("error", "critical")]
    for line in bad[:3]:
        account.complain(f"the log says: {str(line)[:1500]}")


def _check_files(account: _Account, before: Sample, after: Sample) -> None:
    if after.num_files > before.num_files + 8:
        account.complain(f"open files grew from {before.num_files} to {after.num_files}")


def _check_memory(account: _Account, memory: MemoryFigures, seconds: float) -> None:
    """Flat after warm-up; a short soak is all warm-up."""
    if seconds >= 300 and memory.growth > 8 + 0.02 * memory.warm:
        account.complain(
            f"memory grew by {memory.growth:.1f} MiB after warm-up, from {memory.warm:.1f}"
        )


def _report(
    plan: Plan,
    account: _Account,
    metrics: Metrics,
    samples: list[Sample],
    ends: tuple[Sample, Sample],
) -> Report:
    drafts = metrics.total("vllm:spec_decode_num_drafts_total")
    accepted = metrics.total("vllm:spec_decode_num_accepted_tokens_total")
    return Report(
        seconds=plan.load.seconds,
        clients=plan.load.clients,
        orders=dict(sorted(account.orders.items())),
        statuses=dict(sorted(account.statuses.items())),
        choices=dict(sorted(account.choices.items())),
        num_compared=account.num_compared,
        ended={
            reason: int(metrics.total("vllm:request_success_total", f'"{reason}"'))
            for reason in ("stop", "length", "abort", "error")
        },
        tokens=int(metrics.total("vllm:generation_tokens_total")),
        acceptance_length=1 + accepted / drafts if drafts else None,
        preemptions=int(metrics.total("vllm:num_preemptions_total")),
        prefix_hits=int(metrics.total("blockdraft:prefix_hits_total")),
        probes=account.num_probes,
        slowest_probe=account.slowest_probe,
        memory=memory_figures(samples),
        rss=thinned(samples),
        files=(ends[0].num_files, ends[1].num_files),
        threads=(ends[0].num_threads, ends[1].num_threads),
        complaints=account.complaints,
    )

"""`ServingMetrics`: an observer of requests that answers scrapes in Prometheus' text format.

What is counted is listed in `catalog.py`; what is read from the engine, in `collector.py`.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from blockdraft.decoding import AcceptanceStats, Commit
from blockdraft.errors import ConfigError
from blockdraft.serving.metrics.catalog import CATALOG, COMMON_LABELS
from blockdraft.serving.metrics.collector import EngineCollector
from blockdraft.serving.metrics.readings import MetricsConfig, Watched
from blockdraft.serving.runner import EndReason, RefusalReason, RequestRecord, StepRecord

try:
    from prometheus_client import (
        CONTENT_TYPE_PLAIN_0_0_4,
        CollectorRegistry,
        Counter,
        Histogram,
        Metric,
        generate_latest,
    )
except ImportError as error:
    raise ConfigError(
        f"metrics need prometheus_client ({error}): pip install 'blockdraft[serve]'"
    ) from error

CONTENT_TYPE: str = CONTENT_TYPE_PLAIN_0_0_4

REASONS: dict[str, tuple[str, ...]] = {
    "vllm:request_success": ("stop", "length", "abort", "error"),
    "blockdraft:requests_refused": ("invalid", "overloaded", "draining", "dead"),
}
"""Series that exist from the start, so that a rate over them has a zero to begin with."""


class ServingMetrics:
    """Give it to the runner as its observer, then `watch` that runner; `render` at each scrape.

    All methods may be called from any thread.
    """

    def __init__(self, config: MetricsConfig) -> None:
        self._common = (config.model_name, config.engine)
        self._registry = CollectorRegistry()
        self._engine = EngineCollector(config)
        self._counters: dict[str, Counter] = {}
        # Looking a series up by its labels costs far more than counting.
        self._series: dict[tuple[str, ...], Counter] = {}
        self._timings: dict[str, Histogram] = {}
        for info in CATALOG:
            labels = (*COMMON_LABELS, *info.labels)
            if info.source == "engine":
                continue
            if info.kind == "counter":
                self._counters[info.name] = Counter(
                    info.name, info.help, labels, registry=self._registry
                )
            else:
                histogram = Histogram(
                    info.name, info.help, labels, registry=self._registry, buckets=info.buckets
                )
                self._timings[info.name] = histogram.labels(*self._common)
        self._registry.register(self._engine)
        self._begin_with_zeros(config.num_draft_positions)

    def watch(self, runner: Watched) -> None:
        """Read the engine's own figures from `runner` at each scrape."""
        self._engine.watch(runner)

    def render(self) -> bytes:
        """All metrics now, as the body of an answer with the type `CONTENT_TYPE`."""
        return generate_latest(_WithoutCreated(self._registry))

    def refused(self, reason: RefusalReason) -> None:
        self._add("blockdraft:requests_refused", 1, reason)

    def submitted(self, record: RequestRecord) -> None:
        pass

    def admitted(self, record: RequestRecord) -> None:
        pass

    def committed(self, record: RequestRecord, commit: Commit, now: float) -> None:
        self._add("vllm:generation_tokens", len(commit.ids))
        if record.last_token is None:
            self._add("vllm:prompt_tokens", record.prompt_len)
            self._observe("vllm:time_to_first_token_seconds", now - record.submitted)
        else:
            self._observe("vllm:inter_token_latency_seconds", now - record.last_token)
        self._count_drafts(record.stats, commit.stats)

    def ended(self, record: RequestRecord, reason: EndReason, now: float) -> None:
        self._add("vllm:request_success", 1, reason)
        if reason not in ("stop", "length"):
            return
        admitted, first, last = record.admitted, record.first_token, record.last_token
        assert admitted is not None and first is not None and last is not None
        self._observe("vllm:e2e_request_latency_seconds", now - record.submitted)
        self._observe("vllm:request_queue_time_seconds", admitted - record.submitted)
        self._observe("vllm:request_prefill_time_seconds", first - admitted)
        self._observe("vllm:request_decode_time_seconds", last - first)
        self._observe("vllm:request_inference_time_seconds", last - admitted)
        if record.num_tokens > 1:
            per_token = (last - first) / (record.num_tokens - 1)
            self._observe("vllm:request_time_per_output_token_seconds", per_token)

    def stepped(self, step: StepRecord) -> None:
        self._observe("vllm:iteration_tokens_total", step.num_prompt_tokens + step.num_new_tokens)

    def _count_drafts(self, before: AcceptanceStats, after: AcceptanceStats) -> None:
        """What one commit added, in the terms of `AcceptanceStats`."""
        added = {
            "blockdraft:verifications": after.steps - before.steps,
            "blockdraft:drafted_step_tokens": (
                after.drafted_step_tokens - before.drafted_step_tokens
            ),
            "blockdraft:unusable_drafts": after.unusable_drafts - before.unusable_drafts,
            "vllm:spec_decode_num_drafts": after.drafted_steps - before.drafted_steps,
            "vllm:spec_decode_num_draft_tokens": sum(after.drafted) - sum(before.drafted),
            "vllm:spec_decode_num_accepted_tokens": sum(after.accepted) - sum(before.accepted),
        }
        for name, amount in added.items():
            self._add(name, amount)
        pairs = zip_longest(before.accepted, after.accepted, fillvalue=0)
        for position, (old, new) in enumerate(pairs):
            if new > old:
                self._add("vllm:spec_decode_num_accepted_tokens_per_pos", new - old, str(position))

    def _begin_with_zeros(self, num_draft_positions: int) -> None:
        first: dict[str, Sequence[str]] = {
            **REASONS,
            "vllm:spec_decode_num_accepted_tokens_per_pos": [
                str(position) for position in range(num_draft_positions)
            ],
        }
        for name, counter in self._counters.items():
            for label in first.get(name, ()):
                self._series[name, label] = counter.labels(*self._common, label)
            if name not in first:
                self._series[(name,)] = counter.labels(*self._common)

    def _add(self, name: str, amount: int, *labels: str) -> None:
        if not amount:
            return
        series = self._series.get((name, *labels))
        if series is None:
            series = self._counters[name].labels(*self._common, *labels)
            self._series[(name, *labels)] = series
        series.inc(amount)

    def _observe(self, name: str, value: float) -> None:
        self._timings[name].observe(value)


class _WithoutCreated:
    """A registry without the times at which series were made.

    They share the prefix of what they belong to, and clients that add up all lines with a prefix
    would count them in.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric

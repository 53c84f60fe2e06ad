"""The list of all metrics: name, kind, labels and what exactly is counted.

Plain values: the registry is made from this list and docs/metrics.md shows it. Names that begin
with `vllm:` are those that dashboards and benchmark clients already know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Source = Literal["requests", "engine"]

COMMON_LABELS = ("model_name", "engine")
"""On every metric."""

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)
FIRST = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
TOKENS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric; a counter's exposed name has the suffix `_total`, which `name` lacks.

    `source` "requests": counted as events happen; "engine": read from the engine at each scrape.
    `labels` come after the common ones; `buckets` are upper bounds of a histogram.
    """

    name: str
    kind: Kind
    source: Source
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _counted(name: str, text: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "counter", "requests", text, labels)


def _timed(name: str, text: str, buckets: Sequence[float]) -> MetricInfo:
    return MetricInfo(name, "histogram", "requests", text, (), tuple(buckets))


def _total(name: str, text: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "counter", "engine", text, labels)


def _gauge(name: str, text: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "gauge", "engine", text, labels)


SPECULATION = (
    _counted(
        "vllm:spec_decode_num_drafts",
        "Verifications of requests that had at least one draft, canceled and failed ones included.",
    ),
    _counted(
        "vllm:spec_decode_num_draft_tokens",
        "Drafts verified, without those that a stop cut off.",
    ),
    _counted(
        "vllm:spec_decode_num_accepted_tokens",
        "Drafts accepted and emitted. 1 + accepted / drafts is the acceptance length with the "
        "bonus token; it counts a bonus also where a stop inside the drafts left none.",
    ),
    _counted(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "The same by position in the block, 0 = the first draft.",
        "position",
    ),
)

REQUESTS = (
    _counted("vllm:prompt_tokens", "Prompt tokens of requests that emitted their first token."),
    _counted("vllm:generation_tokens", "Tokens emitted, stop tokens included."),
    _counted(
        "vllm:request_success",
        "Accepted requests that ended: stop or length (an answer), abort (canceled), error.",
        "finished_reason",
    ),
    _timed(
        "vllm:time_to_first_token_seconds",
        "From submission to the end of the step that emitted the first token.",
        FIRST,
    ),
    _timed(
        "vllm:inter_token_latency_seconds",
        "From one commit of a request to its next; a commit may hold several tokens.",
        SHORT,
    ),
    _timed(
        "vllm:request_time_per_output_token_seconds",
        "Decode time per token after the first, of answers with more than one token.",
        SHORT,
    ),
    _timed("vllm:e2e_request_latency_seconds", "From submission to the end of an answer.", LONG),
    _timed(
        "vllm:request_queue_time_seconds",
        "From submission to the beginning of the step that gave a slot, of answers.",
        FIRST,
    ),
    _timed(
        "vllm:request_prefill_time_seconds", "From the slot to the first token, of answers.", FIRST
    ),
    _timed(
        "vllm:request_decode_time_seconds", "From the first token to the last, of answers.", LONG
    ),
    _timed(
        "vllm:request_inference_time_seconds", "From the slot to the last token, of answers.", LONG
    ),
    _timed(
        "vllm:iteration_tokens_total",
        "Tokens of one engine step: emitted ones, and each prompt in the step that completes it.",
        TOKENS,
    ),
)

ENGINE = (
    _gauge("vllm:num_requests_running", "Requests that have a slot."),
    _gauge("vllm:num_requests_waiting", "Requests that wait for a slot, preempted ones included."),
    _gauge(
        "vllm:kv_cache_usage_perc",
        "Share (0 to 1) of the key/value rows that running requests hold; kept prefixes are free.",
    ),
    _total("vllm:num_preemptions", "Requests that had to give their slot back and wait again."),
    _total("vllm:prefix_cache_queries", "Prompt tokens looked for in the prefix cache."),
    _total("vllm:prefix_cache_hits", "Prompt tokens found there and not computed again."),
)

OWN = (
    _counted(
        "blockdraft:drafted_step_tokens",
        "Tokens emitted by the verifications that had a draft: divided by "
        "vllm:spec_decode_num_drafts_total it is the acceptance length exactly.",
    ),
    _counted("blockdraft:verifications", "Verifications of requests, with a draft or without."),
    _counted("blockdraft:unusable_drafts", "Draft slots that were not finite or out of range."),
    _counted(
        "blockdraft:requests_refused",
        "Requests not accepted: invalid, overloaded (queue full), draining, dead (no engine).",
        "reason",
    ),
    _gauge(
        "blockdraft:acceptance_length",
        "Tokens emitted per verification with a draft since the start, of requests that ended with "
        "an answer; 0 before the first.",
    ),
    _total("blockdraft:engine_steps", "Steps of the engine."),
    _total(
        "blockdraft:width_decisions",
        "Steps with decoding requests, by why their width was chosen (docs/engine.md).",
        "reason",
    ),
    _total(
        "blockdraft:draft_width_steps", "The same steps by draft width, anchor counted.", "width"
    ),
    _total(
        "blockdraft:verify_width_requests",
        "Verifications by draft width and rows verified, anchor counted.",
        "draft_width",
        "verify_width",
    ),
    _gauge("blockdraft:slots", "Requests that can run at a time."),
    _gauge("blockdraft:queue_limit", "Requests that may wait beside those that free slots take."),
    _gauge("blockdraft:kv_rows", "Key/value rows, one a token.", "state"),
    _total("blockdraft:prefix_lookups", "Requests looked up in the prefix cache."),
    _total("blockdraft:prefix_hits", "Requests that found a prefix there."),
    _total(
        "blockdraft:drafter_failures", "Steps in which the drafter failed; they went on plainly."
    ),
    _total("blockdraft:engine_faults", "Steps that failed and took their running requests along."),
    _gauge("blockdraft:engine_alive", "1 while the engine's thread runs."),
    _gauge("blockdraft:ready", "1 while new requests are taken."),
    _gauge(
        "blockdraft:serving_info", "Always 1; says by its labels what is served.", "key", "value"
    ),
)

CATALOG = (*REQUESTS, *ENGINE, *SPECULATION, *OWN)


def catalog_table() -> str:
    """The catalog as a Markdown table, one line a metric."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{m.exposed_name}` | {m.kind} | {', '.join(f'`{x}`' for x in m.labels)} | {m.help} |"
        for m in CATALOG
    ]
    return "\n".join(lines) + "\n"

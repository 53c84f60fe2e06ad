"""What the Grafana dashboard shows: its panels, row by row, with their queries.

How they are laid out and written down is in `dashboard.py`.
"""

from dataclasses import dataclass

SCOPE = '{model_name=~"$model_name"}'


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the name of its lines."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `kind` is Grafana's name, `width` in columns of 24."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    about: str = ""


def _rate(name: str, *by: str) -> str:
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (rate({name}{SCOPE}[$__rate_interval]))"


def _now(name: str, *by: str) -> str:
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} ({name}{SCOPE})"


def _quantiles(title: str, name: str, unit: str = "s") -> Panel:
    rates = _rate(f"{name}_bucket", "le")
    quantiles = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    queries = tuple(Query(f"histogram_quantile({q}, {rates})", label) for q, label in quantiles)
    return Panel(title, queries, unit)


DRAFTS = _rate("vllm:spec_decode_num_drafts_total")
ACCEPTED = _rate("vllm:spec_decode_num_accepted_tokens_total")
STEP_TOKENS = _rate("blockdraft:drafted_step_tokens_total")

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Now",
        (
            Panel(
                "Acceptance length",
                (Query(f"{STEP_TOKENS} / {DRAFTS}", "tau"),),
                kind="stat",
                width=5,
                height=4,
                about="Tokens emitted per verification that had a draft.",
            ),
            Panel(
                "Tokens per second",
                (Query(_rate("vllm:generation_tokens_total"), "tok/s"),),
                kind="stat",
                width=5,
                height=4,
            ),
            Panel(
                "Running",
                (Query(_now("vllm:num_requests_running"), "running"),),
                kind="stat",
                width=5,
                height=4,
            ),
            Panel(
                "Waiting",
                (Query(_now("vllm:num_requests_waiting"), "waiting"),),
                kind="stat",
                width=5,
                height=4,
            ),
            Panel(
                "Engine alive",
                (Query(f"min (blockdraft:engine_alive{SCOPE})", "alive"),),
                kind="stat",
                width=4,
                height=4,
            ),
        ),
    ),
    (
        "Speculation",
        (
            Panel(
                "Acceptance length",
                (
                    Query(f"{STEP_TOKENS} / {DRAFTS}", "tokens per drafted step"),
                    Query(f"1 + {ACCEPTED} / {DRAFTS}", "1 + accepted / drafts"),
                ),
            ),
            Panel(
                "Draft acceptance rate",
                (
                    Query(
                        f"{ACCEPTED} / {_rate('vllm:spec_decode_num_draft_tokens_total')}",
                        "accepted / drafted",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Acceptance by position",
                (
                    Query(
                        _rate("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position")
                        + f" / scalar({DRAFTS})",
                        "{{position}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Steps by draft width",
                (Query(_rate("blockdraft:draft_width_steps_total", "width"), "{{width}}"),),
                "ops",
            ),
            Panel(
                "Why a width was chosen",
                (Query(_rate("blockdraft:width_decisions_total", "reason"), "{{reason}}"),),
                "ops",
            ),
            Panel(
                "Verifications by draft and verify width",
                (
                    Query(
                        _rate(
                            "blockdraft:verify_width_requests_total", "draft_width", "verify_width"
                        ),
                        "{{draft_width}}x{{verify_width}}",
                    ),
                ),
                "ops",
            ),
        ),
    ),
    (
        "Latency",
        (
            _quantiles("Time to first token", "vllm:time_to_first_token_seconds"),
            _quantiles("Time between commits", "vllm:inter_token_latency_seconds"),
            _quantiles("Time per output token", "vllm:request_time_per_output_token_seconds"),
            _quantiles("End to end", "vllm:e2e_request_latency_seconds"),
            _quantiles("Queue", "vllm:request_queue_time_seconds"),
            _quantiles("Prefill", "vllm:request_prefill_time_seconds"),
            _quantiles("Decode", "vllm:request_decode_time_seconds"),
            _quantiles("Inference", "vllm:request_inference_time_seconds"),
            _quantiles("Tokens of a step", "vllm:iteration_tokens_total", "short"),
        ),
    ),
    (
        "Load and memory",
        (
            Panel(
                "Requests",
                (
                    Query(_now("vllm:num_requests_running"), "running"),
                    Query(_now("vllm:num_requests_waiting"), "waiting"),
                    Query(_now("blockdraft:slots"), "slots"),
                    Query(_now("blockdraft:queue_limit"), "queue limit"),
                ),
            ),
            Panel(
                "Tokens per second",
                (
                    Query(_rate("vllm:generation_tokens_total"), "generated"),
                    Query(_rate("vllm:prompt_tokens_total"), "prompt"),
                ),
            ),
            Panel(
                "Requests that ended",
                (
                    Query(
                        _rate("vllm:request_success_total", "finished_reason"),
                        "{{finished_reason}}",
                    ),
                ),
                "reqps",
            ),
            Panel(
                "Key/value rows",
                (Query(_now("blockdraft:kv_rows", "state"), "{{state}}"),),
            ),
            Panel(
                "Key/value use",
                (Query(f"max (vllm:kv_cache_usage_perc{SCOPE})", "in use"),),
                "percentunit",
            ),
            Panel(
                "Prefix cache hit rate",
                (
                    Query(
                        f"{_rate('vllm:prefix_cache_hits_total')} / "
                        f"{_rate('vllm:prefix_cache_queries_total')}",
                        "tokens",
                    ),
                    Query(
                        f"{_rate('blockdraft:prefix_hits_total')} / "
                        f"{_rate('blockdraft:prefix_lookups_total')}",
                        "requests",
                    ),
                ),
                "percentunit",
            ),
        ),
    ),
    (
        "Trouble",
        (
            Panel(
                "Refused requests",
                (Query(_rate("blockdraft:requests_refused_total", "reason"), "{{reason}}"),),
                "reqps",
            ),
            Panel(
                "Faults",
                (
                    Query(_rate("blockdraft:engine_faults_total"), "engine faults"),
                    Query(_rate("blockdraft:drafter_failures_total"), "drafter failures"),
                    Query(_rate("blockdraft:unusable_drafts_total"), "unusable drafts"),
                    Query(_rate("vllm:num_preemptions_total"), "preemptions"),
                ),
                "ops",
            ),
            Panel(
                "Steps and verifications",
                (
                    Query(_rate("blockdraft:engine_steps_total"), "steps"),
                    Query(_rate("blockdraft:verifications_total"), "verifications"),
                    Query(f"max (blockdraft:ready{SCOPE})", "ready"),
                ),
                "ops",
            ),
            Panel(
                "What is served",
                (Query(f"blockdraft:serving_info{SCOPE}", "{{key}} = {{value}}"),),
                kind="stat",
                width=24,
                height=5,
            ),
        ),
    ),
)

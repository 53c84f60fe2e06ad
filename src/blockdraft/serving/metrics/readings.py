"""What the engine says about itself at a scrape, as values for the metrics of the catalog.

Pure: from `EngineStats` to numbers; no Prometheus here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from blockdraft.engine import EngineStats
from blockdraft.errors import ConfigError

Readings = dict[str, dict[tuple[str, ...], float]]
"""Metric name to values by label values (`()` for a metric without labels of its own)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """What does not change while the server runs.

    `num_draft_positions` is the drafter's block without the anchor (0 = plain decoding). `info`
    says what is served (drafter, width, dtype, whether it fell back to plain decoding, ...).
    """

    model_name: str
    slots: int
    max_waiting: int
    num_draft_positions: int
    engine: str = "0"
    info: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if min(self.slots, self.max_waiting, self.num_draft_positions) < 0:
            raise ConfigError("metrics: slots, max_waiting and num_draft_positions are counts")


class Watched(Protocol):
    """The part of an `EngineRunner` that is read; from any thread, at any time."""

    @property
    def is_alive(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    def stats(self) -> EngineStats: ...


def read_engine(config: MetricsConfig, runner: Watched) -> Readings:
    """All values of the metrics whose source is the engine."""
    stats = runner.stats()
    return {
        **_state(config, runner, stats),
        **_rows(stats),
        **_widths(stats.widths),
        "blockdraft:engine_steps": {(): stats.steps},
        "blockdraft:drafter_failures": {(): stats.drafter_failures},
        "blockdraft:engine_faults": {(): stats.faults},
        "blockdraft:acceptance_length": {(): stats.acceptance.tau_drafted or 0.0},
    }


def _state(config: MetricsConfig, runner: Watched, stats: EngineStats) -> Readings:
    return {
        "vllm:num_requests_running": {(): stats.num_running},
        "vllm:num_requests_waiting": {(): stats.num_waiting},
        "vllm:num_preemptions": {(): stats.num_preempted},
        "blockdraft:slots": {(): config.slots},
        "blockdraft:queue_limit": {(): config.max_waiting},
        "blockdraft:engine_alive": {(): float(runner.is_alive)},
        "blockdraft:ready": {(): float(runner.is_ready)},
        "blockdraft:serving_info": {pair: 1.0 for pair in sorted(config.info.items())},
    }


def _rows(stats: EngineStats) -> Readings:
    running, prefixes = stats.rows_used - stats.rows_kept, stats.prefixes
    return {
        "vllm:kv_cache_usage_perc": {(): running / stats.rows_total if stats.rows_total else 0.0},
        "blockdraft:kv_rows": {
            ("running",): running,
            ("kept",): stats.rows_kept,
            ("free",): stats.rows_total - stats.rows_used,
        },
        "vllm:prefix_cache_queries": {(): prefixes.prompt_rows},
        "vllm:prefix_cache_hits": {(): prefixes.hit_rows},
        "blockdraft:prefix_lookups": {(): prefixes.lookups},
        "blockdraft:prefix_hits": {(): prefixes.hits},
    }


def _widths(widths: Mapping[str, Mapping[str, int]]) -> Readings:
    pairs = {tuple(pair.split("x")): float(n) for pair, n in widths["widths"].items()}
    return {
        "blockdraft:width_decisions": {(why,): float(n) for why, n in widths["reasons"].items()},
        "blockdraft:draft_width_steps": {
            (width,): float(n) for width, n in widths["draft_widths"].items()
        },
        "blockdraft:verify_width_requests": pairs,
    }

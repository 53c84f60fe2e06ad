"""The counters of drafts in a /metrics page, under the names of each engine.

It fetches nothing and computes no acceptance; that is `acceptance.py`.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
COUNTERS = ("vllm:", "llamacpp:")
"""Engines that count drafts under the names spec_decode_num_..., in order of preference."""
GAUGES = ("sglang:", "trtllm:", "trtllm_")
PREFIXES = (*COUNTERS, *GAUGES)


class Sample(NamedTuple):
    """One line of a page."""

    labels: Mapping[str, str]
    value: float


Page = dict[str, list[Sample]]


class DraftCounters(NamedTuple):
    """What was drafted since the engine started. `prefix` says whose names were found."""

    prefix: str
    drafts: int
    drafted: int
    accepted: int
    by_position: tuple[int, ...]


class VerifyCounters(NamedTuple):
    """SGLang's: verifications, and tokens generated."""

    calls: int
    tokens: int


class DraftGauges(NamedTuple):
    """An acceptance length that the engine computed, over a span of its own."""

    prefix: str
    accept_length: float
    accept_rate: float | None


class EngineMetrics(NamedTuple):
    """All that a page says on drafts; `has_engine_names` even where that is nothing."""

    counters: DraftCounters | None
    verifications: VerifyCounters | None
    gauges: DraftGauges | None
    has_engine_names: bool


def read_metrics(text: str, model: str) -> EngineMetrics:
    """What a page says of `model`, of all models where none of its series names that one."""
    page = _of_model(parse_page(text), model)
    return EngineMetrics(
        counters=_counters(page),
        verifications=_verifications(page),
        gauges=_gauges(page),
        has_engine_names=any(name.startswith(PREFIXES) for name in page),
    )


def parse_page(text: str) -> Page:
    """The samples of a page in Prometheus' text format; lines of another form are left out."""
    page: Page = {}
    for line in text.splitlines():
        match = LINE.match(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = {name: inner for name, inner in LABEL.findall(match[2] or "")}
            page.setdefault(match[1], []).append(Sample(labels, value))
    return page


def counters_since(before: DraftCounters, after: DraftCounters) -> DraftCounters | None:
    """What was counted in between; None where a counter went down, so the engine began anew."""
    width = max(len(before.by_position), len(after.by_position))
    positions = tuple(
        _entry(after.by_position, k) - _entry(before.by_position, k) for k in range(width)
    )
    since = DraftCounters(
        prefix=after.prefix,
        drafts=after.drafts - before.drafts,
        drafted=after.drafted - before.drafted,
        accepted=after.accepted - before.accepted,
        by_position=positions,
    )
    is_down = min(since.drafts, since.drafted, since.accepted, *positions, 0) < 0
    return None if is_down else since


def _entry(values: tuple[int, ...], index: int) -> int:
    return values[index] if index < len(values) else 0


def _of_model(page: Page, model: str) -> Page:
    is_named = any(s.labels.get("model_name") == model for many in page.values() for s in many)
    if not is_named:
        return page
    return {
        name: kept
        for name, samples in page.items()
        if (kept := [s for s in samples if s.labels.get("model_name", model) == model])
    }


def _counters(page: Page) -> DraftCounters | None:
    for prefix in COUNTERS:
        head = f"{prefix}spec_decode_num_"
        drafts, accepted = _sum(page, f"{head}drafts"), _sum(page, f"{head}accepted_tokens")
        if drafts is None or accepted is None:
            continue
        return DraftCounters(
            prefix=prefix,
            drafts=drafts,
            drafted=_sum(page, f"{head}draft_tokens") or 0,
            accepted=accepted,
            by_position=_by_position(page, f"{head}accepted_tokens_per_pos"),
        )
    return None


def _by_position(page: Page, name: str) -> tuple[int, ...]:
    found: dict[int, int] = {}
    for sample in _samples(page, name):
        text = sample.labels.get("position", "")
        if text.isdigit():
            position = int(text)
            found[position] = found.get(position, 0) + round(sample.value)
    return tuple(found.get(k, 0) for k in range(max(found) + 1)) if found else ()


def _verifications(page: Page) -> VerifyCounters | None:
    calls = _sum(page, "sglang:spec_verify_calls")
    tokens = _sum(page, "sglang:generation_tokens")
    return None if calls is None or tokens is None else VerifyCounters(calls, tokens)


def _gauges(page: Page) -> DraftGauges | None:
    for prefix in GAUGES:
        lengths = page.get(f"{prefix}spec_accept_length", [])
        # 0 is what a gauge says before the first draft.
        known = [sample.value for sample in lengths if sample.value > 0]
        if not known:
            continue
        rates = [sample.value for sample in page.get(f"{prefix}spec_accept_rate", [])]
        rate = sum(rates) / len(rates) if rates else None
        return DraftGauges(prefix, sum(known) / len(known), rate)
    return None


def _samples(page: Page, name: str) -> list[Sample]:
    """Of a counter, which is exposed with `_total` behind its name or without."""
    return page.get(f"{name}_total") or page.get(name, [])


def _sum(page: Page, name: str) -> int | None:
    samples = _samples(page, name)
    return round(sum(sample.value for sample in samples)) if samples else None

"""Total throughput as requests run side by side: plain decoding against width `auto`, in turn."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import ours
from blockdraft.api import load_drafter
from blockdraft.engine import BuiltEngine
from blockdraft.native import NativeTarget

LEVELS = (1, 2, 4, 8, 16, 32)
MIN_REQUESTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens a second over all requests, medians; `ratio` is the median of each round's ratio."""

    concurrency: int
    num_requests: int
    off_tokens_per_second: float
    auto_tokens_per_second: float
    ratio: float
    off_slowest_share: float
    """The slowest request's rate over the fastest one's (1 = all alike), plain."""


def measure_concurrency(
    target: NativeTarget,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    repeats: int,
    levels: Sequence[int] = LEVELS,
) -> list[Throughput]:
    """Closed loop: a request that ends makes room for the next, until all are answered."""
    drafter = load_drafter("smollm2", target)
    rows: list[Throughput] = []
    for level in levels:
        count = max(MIN_REQUESTS, 2 * level)
        work = [prompts[i % len(prompts)] for i in range(count)]
        off = ours.make_engine(target, None, "off", slots=level)
        auto = ours.make_engine(target, drafter, "auto", slots=level)
        rounds: list[tuple[float, float, float]] = []
        for repeat in range(repeats + 1):
            plain, share = _rate(off, work, max_new_tokens)
            drafted, _ = _rate(auto, work, max_new_tokens)
            if repeat:  # the first round warms up
                rounds.append((plain, drafted, share))
        rows.append(
            Throughput(
                concurrency=level,
                num_requests=count,
                off_tokens_per_second=median(r[0] for r in rounds),
                auto_tokens_per_second=median(r[1] for r in rounds),
                ratio=median(r[1] / r[0] for r in rounds),
                off_slowest_share=median(r[2] for r in rounds),
            )
        )
    return rows


def _rate(
    built: BuiltEngine, work: Sequence[Sequence[int]], max_new_tokens: int
) -> tuple[float, float]:
    started = time.perf_counter()
    answers = ours.run_all(built, work, max_new_tokens)
    seconds = time.perf_counter() - started
    num_tokens = sum(len(commit.ids) for answer in answers for commit in answer)
    rates = [a[-1].stats.tokens_per_second or 0.0 for a in answers if a[-1].stats.tokens > 8]
    return num_tokens / seconds, min(rates) / max(rates) if rates else 1.0

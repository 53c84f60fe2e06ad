"""Measures chosen settings beside plain decoding, in turn, and compares with what was predicted.

It predicts nothing. Ratios are taken within a repeat, so that both sides met the same machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from blockdraft.engine import WidthMode
from blockdraft.tuning.measure import Bench
from blockdraft.tuning.observed import Observed
from blockdraft.tuning.search import OFF, Goal, SettingPrediction

Verdict = Literal["speculate", "unclear", "off"]

LEAST_GAIN = 1.01
"""Below this a measured speed-up is none: nobody would notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """`speedups` and `latency_speedups` have an entry a repeat, in order.

    Of `compared` answers `identical` have the very tokens of plain decoding.
    """

    mode: WidthMode
    concurrency: int
    predicted: SettingPrediction
    speedups: tuple[float, ...]
    latency_speedups: tuple[float, ...]
    tokens_per_second: float
    identical: int
    compared: int

    def gains(self, goal: Goal) -> tuple[float, ...]:
        return self.latency_speedups if goal == "latency" else self.speedups

    def gain(self, goal: Goal) -> float:
        return median(self.gains(goal))

    def error(self, goal: Goal) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.gain(goal) / self.gain(goal) - 1

    def verdict(self, goal: Goal) -> Verdict:
        """A range that holds no gain is no gain; one that only reaches into it is unclear."""
        gains = self.gains(goal)
        if min(gains) >= LEAST_GAIN:
            return "speculate"
        return "unclear" if max(gains) >= LEAST_GAIN else "off"


def verify_settings(
    bench: Bench, settings: Sequence[SettingPrediction], num_repeats: int
) -> list[Verified]:
    """Every setting (all at one concurrency) and plain decoding, `num_repeats` times, the order
    rotated at each."""
    if not settings:
        return []
    concurrency = settings[0].concurrency
    modes = [OFF, *(one.mode for one in settings)]
    runs: dict[str, list[Observed]] = {str(mode): [] for mode in modes}
    for repeat in range(num_repeats):
        first = repeat % len(modes)
        for mode in modes[first:] + modes[:first]:
            runs[str(mode)].append(bench.run(mode, concurrency, f"repeat {repeat + 1}"))
    plain = runs[str(OFF)]
    return [_compared(one, plain, runs[str(one.mode)]) for one in settings]


def _compared(
    predicted: SettingPrediction, plain: Sequence[Observed], drafted: Sequence[Observed]
) -> Verified:
    pairs = list(zip(plain, drafted, strict=True))
    same = [x == y for x, y in zip(plain[0].digests, drafted[0].digests, strict=True)]
    return Verified(
        mode=predicted.mode,
        concurrency=predicted.concurrency,
        predicted=predicted,
        speedups=tuple(speedup(slow, fast) for slow, fast in pairs),
        latency_speedups=tuple(_latency_speedup(slow, fast) for slow, fast in pairs),
        tokens_per_second=median(run.tokens_per_second for run in drafted),
        identical=sum(same),
        compared=len(same),
    )


def speedup(plain: Observed, drafted: Observed) -> float:
    """Seconds a token plainly over seconds a token drafted, end to end."""
    return drafted.tokens_per_second / plain.tokens_per_second


def _latency_speedup(plain: Observed, drafted: Observed) -> float:
    """The same of the mean answer, by its tokens."""
    slow, fast = (run.latency_seconds * len(run.requests) / run.tokens for run in (plain, drafted))
    return slow / fast

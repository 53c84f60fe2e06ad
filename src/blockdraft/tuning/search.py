"""Predicts every width at every concurrency for a workload, and picks what pays most.

It measures nothing; docs/tuning.md says what the goals are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from blockdraft.engine import WidthMode
from blockdraft.engine.width import candidate_widths
from blockdraft.tuning.policy import policy_of
from blockdraft.tuning.replay import NUM_DRAWS, PairCosts, Replayed, ReplayRequest, replay
from blockdraft.tuning.survival import Survival

Goal = Literal["latency", "throughput"]

Item = TypeVar("Item")

WORTH = 1.03
"""A predicted speed-up below this is no advice: the prediction itself is not that exact."""

OFF = WidthMode("off")
AUTO = WidthMode("auto")


class SettingPrediction(NamedTuple):
    """`speedup` is plain seconds over these for the whole workload, `latency_speedup` the same for
    the mean answer."""

    mode: WidthMode
    concurrency: int
    tokens_per_second: float
    latency_seconds: float
    speedup: float
    latency_speedup: float

    def gain(self, goal: Goal) -> float:
        return self.latency_speedup if goal == "latency" else self.speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What is known of a pair and a workload. `requests` are in the order they are asked."""

    block_size: int
    survival: Survival
    costs: PairCosts
    requests: tuple[ReplayRequest, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The best setting at each concurrency, and the one that the goal asks for.

    `finalists` are worth measuring at the goal's concurrency, best first; empty where nothing
    pays. `speculate_up_to` is the most requests at a time up to which speculation pays everywhere
    below; None where it does not pay even for the fewest.
    """

    concurrency: int
    by_concurrency: tuple[SettingPrediction, ...]
    finalists: tuple[SettingPrediction, ...]
    speculate_up_to: int | None


def predict_settings(
    known: Knowledge, modes: Sequence[WidthMode], levels: Sequence[int]
) -> list[SettingPrediction]:
    """Plain decoding first, then `modes`, at each concurrency of `levels`."""
    found: list[SettingPrediction] = []
    for concurrency in levels:
        plain = predict_run(known, OFF, concurrency)
        found.append(_compared(OFF, concurrency, plain, plain))
        for mode in modes:
            run = predict_run(known, mode, concurrency)
            found.append(_compared(mode, concurrency, plain, run))
    return found


def predict_run(known: Knowledge, mode: WidthMode, concurrency: int) -> Replayed:
    """The workload at one setting, prompts in turn until every slot had two."""
    requests = level_requests(known.requests, concurrency)
    policy = policy_of(mode, known.block_size, known.survival, known.costs.at(concurrency))
    num_draws = 1 if mode.kind == "off" else NUM_DRAWS
    return replay(requests, concurrency, policy, known.survival, known.costs, num_draws=num_draws)


def level_requests(items: Sequence[Item], concurrency: int) -> list[Item]:
    """Every item once, and at least two for each request that runs at a time, in turn."""
    num = max(len(items), 2 * concurrency)
    return [items[number % len(items)] for number in range(num)]


def all_modes(block_size: int) -> list[WidthMode]:
    """Fixed widths worth a try, narrowest first, and auto."""
    return [*(WidthMode("fixed", width) for width in candidate_widths(block_size)), AUTO]


def choose(predictions: Sequence[SettingPrediction], goal: Goal) -> Choice:
    """The settings that pay most. For `latency` the fewest requests at a time count, for
    `throughput` the level with the most tokens a second."""
    levels = sorted({one.concurrency for one in predictions})
    best = [_best(predictions, level, goal) for level in levels]
    if goal == "latency":
        chosen = levels[0]
    else:
        chosen = max(best, key=lambda one: one.tokens_per_second).concurrency
    ranked = sorted(
        (p for p in predictions if p.concurrency == chosen and p.gain(goal) >= WORTH),
        key=lambda one: -one.gain(goal),
    )
    fixed = [one for one in ranked if one.mode.kind == "fixed"][:1]
    auto = [one for one in ranked if one.mode.kind == "auto"]
    up_to: int | None = None
    for one in best:
        if one.mode.kind == "off":
            break
        up_to = one.concurrency
    finalists = sorted([*fixed, *auto], key=lambda one: -one.gain(goal))
    return Choice(chosen, tuple(best), tuple(finalists), up_to)


def best_fixed(
    predictions: Sequence[SettingPrediction], concurrency: int, goal: Goal
) -> SettingPrediction | None:
    """The fixed width for engines that know no other; None where none pays."""
    fixed = [
        one
        for one in predictions
        if one.concurrency == concurrency and one.mode.kind == "fixed" and one.gain(goal) >= WORTH
    ]
    return max(fixed, key=lambda one: one.gain(goal), default=None)


def _best(
    predictions: Sequence[SettingPrediction], concurrency: int, goal: Goal
) -> SettingPrediction:
    """Plain decoding unless another setting is worth it."""
    here = [one for one in predictions if one.concurrency == concurrency]
    best = max(here, key=lambda one: one.gain(goal))
    return best if best.gain(goal) >= WORTH else next(p for p in here if p.mode.kind == "off")


def _compared(
    mode: WidthMode, concurrency: int, plain: Replayed, run: Replayed
) -> SettingPrediction:
    return SettingPrediction(
        mode=mode,
        concurrency=concurrency,
        tokens_per_second=run.tokens_per_second,
        latency_seconds=run.latency_seconds,
        speedup=plain.seconds / run.seconds,
        latency_speedup=plain.latency_seconds / run.latency_seconds,
    )

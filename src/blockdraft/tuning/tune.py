"""`tune`: measure a little, predict all settings, measure the best ones beside plain decoding.

It prints nothing. What was found so far is handed out after each stage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from blockdraft.decoding import AcceptanceStats
from blockdraft.engine import WidthMode
from blockdraft.errors import ConfigError
from blockdraft.evaluation.bootstrap import Interval, tau_interval
from blockdraft.tuning.fit import fit_costs
from blockdraft.tuning.measure import Bench
from blockdraft.tuning.observed import Observed
from blockdraft.tuning.replay import PairCosts
from blockdraft.tuning.search import (
    OFF,
    Choice,
    Goal,
    Knowledge,
    SettingPrediction,
    all_modes,
    choose,
    predict_settings,
)
from blockdraft.tuning.survival import Survival
from blockdraft.tuning.verify import Verdict, Verified, verify_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOrder:
    """`levels` are numbers of requests at a time. `num_finalists` settings are verified."""

    levels: tuple[int, ...]
    goal: Goal = "latency"
    num_repeats: int = 3
    num_finalists: int = 2

    def __post_init__(self) -> None:
        if not self.levels or min(self.levels) < 1 or self.num_repeats < 1:
            raise ConfigError("give at least one --concurrency and one of --repeats, each above 0")
        if len(set(self.levels)) < len(self.levels):
            raise ConfigError("--concurrency names a level twice; give each once")
        object.__setattr__(self, "levels", tuple(sorted(self.levels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What is known so far; None or empty where a stage is still to come.

    `tau` is of the widest block over all its verifications, with an interval over answers.
    """

    block_size: int
    goal: Goal
    num_repeats: int
    is_complete: bool = False
    tau: float | None = None
    interval: Interval | None = None
    num_steps: int = 0
    known: Knowledge | None = None
    predictions: tuple[SettingPrediction, ...] = ()
    choice: Choice | None = None
    verified: tuple[Verified, ...] = ()

    @property
    def best(self) -> Verified | None:
        """The verified setting that gained most."""
        return max(self.verified, key=lambda one: one.gain(self.goal), default=None)

    @property
    def verdict(self) -> Verdict | None:
        """None before anything was decided."""
        if self.choice is None:
            return None
        if not self.choice.finalists:
            return "off"
        return None if self.best is None else self.best.verdict(self.goal)

    @property
    def chosen(self) -> WidthMode:
        """What to set: off unless a gain was measured."""
        best = self.best
        return OFF if best is None or self.verdict != "speculate" else best.mode


OnStage = Callable[[Tuned], None]


def tune(bench: Bench, order: TuneOrder, on_stage: OnStage) -> Tuned:
    """Run all stages; `on_stage` gets what is known after each. Raises what decoding raises, and
    ConfigError for a drafter that drafts nothing."""
    block_size = bench.drafter.block_size
    if block_size < 2:
        raise ConfigError("this drafter drafts nothing, so there is nothing to tune; give another")
    tuned = Tuned(block_size=block_size, goal=order.goal, num_repeats=order.num_repeats)
    believed = bench.passes(order.levels[-1])
    plain, widest = measure_for_fit(bench, order.levels)
    num_prompts = len(bench.jobs)
    known = know(believed, block_size, plain, widest, num_prompts)
    predictions = predict_settings(known, all_modes(block_size), order.levels)
    tuned = replace(
        tuned,
        tau=pooled_tau(widest),
        interval=tau_interval(by_prompt(widest, num_prompts)),
        num_steps=sum(sum(run.steps) for run in widest),
        known=known,
        predictions=tuple(predictions),
        choice=choose(predictions, order.goal),
    )
    on_stage(tuned)
    assert tuned.choice is not None
    finalists = tuned.choice.finalists[: order.num_finalists]
    verified = verify_settings(bench, finalists, order.num_repeats)
    tuned = replace(tuned, verified=tuple(verified), is_complete=True)
    on_stage(tuned)
    return tuned


def measure_for_fit(bench: Bench, levels: Sequence[int]) -> tuple[list[Observed], list[Observed]]:
    """Plain decoding at the fewest and the most requests at a time, the widest block at the fewest
    and halfway: what the predictions are fitted to."""
    few, many = levels[0], levels[-1]
    widest = WidthMode("fixed", bench.drafter.block_size)
    halfway = max(few, many // 2)
    plain = [bench.run(OFF, level) for level in dict.fromkeys((few, many))]
    drafted = [bench.run(widest, level) for level in dict.fromkeys((few, halfway))]
    return plain, drafted


def know(
    believed: PairCosts,
    block_size: int,
    plain: Sequence[Observed],
    widest: Sequence[Observed],
    num_prompts: int,
) -> Knowledge:
    """Costs and acceptance from runs of plain decoding and of the widest block.

    `believed` is a table of passes.
    Runs ask `num_prompts` prompts, in turn where they have more requests.
    """
    return Knowledge(
        block_size=block_size,
        survival=Survival.of_counts({block_size: pooled_counts(widest)}),
        costs=fit_costs(believed, [run.samples for run in (*plain, *widest)]),
        requests=plain[0].requests[:num_prompts],
    )


def pooled_counts(runs: Sequence[Observed]) -> tuple[list[int], list[int]]:
    """Steps that drafted, and that accepted, each position."""
    num = max(len(run.drafted) for run in runs)
    drafted, accepted = [0] * num, [0] * num
    for run in runs:
        for k, (tried, kept) in enumerate(zip(run.drafted, run.accepted, strict=True)):
            drafted[k] += tried
            accepted[k] += kept
    return drafted, accepted


def by_prompt(runs: Sequence[Observed], num_prompts: int) -> list[AcceptanceStats]:
    """All answers to a prompt as one, since they are not independent of each other."""
    pooled = [AcceptanceStats()] * num_prompts
    for run in runs:
        for number, answer in enumerate(run.answers):
            pooled[number % num_prompts] = pooled[number % num_prompts].merge(answer)
    return pooled


def pooled_tau(runs: Sequence[Observed]) -> float | None:
    steps = sum(sum(run.steps) for run in runs)
    tokens = sum(run.tokens - len(run.requests) for run in runs)
    return tokens / steps if steps else None

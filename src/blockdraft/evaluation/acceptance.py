"""How many tokens a drafter gains a target a verification, over a set of prompts.

Every figure pools counts of all steps (docs/evaluation.md); none is a mean of means. Time is
`speed.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockdraft.decoding import AcceptanceStats, Drafter, SamplingParams, TargetModel
from blockdraft.decoding.stats import Counts
from blockdraft.errors import ConfigError
from blockdraft.evaluation.answer import (
    AnswerCount,
    DecodeSettings,
    Lane,
    add_counts,
    decode_answer,
    naming_prompt,
)
from blockdraft.evaluation.bootstrap import Interval, tau_interval

Progress = Callable[[AnswerCount], None]
"""Called with each finished answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceResult:
    """Acceptance over a set of answers, in the terms of `AcceptanceStats`.

    `tau` pools all answers, `tau_ended` those that ended by themselves (None when none did), and
    `tau_interval` is the 95% bootstrap interval of `tau` over prompts (None for fewer than two).
    `acceptance_by_position[k]` is unconditional: steps that accepted slot k, and so all before it,
    over steps that drafted it. `conditional_acceptance[k]` divides by the steps that accepted all
    slots before k instead; None where no step did. `committed_histogram[n]` counts steps that
    committed n tokens, so that its mean is tau.
    """

    tau: float | None
    tau_ended: float | None
    tau_interval: Interval | None
    acceptance_by_position: tuple[float, ...]
    conditional_acceptance: tuple[float | None, ...]
    committed_histogram: Counts
    num_ended: int
    stats: AcceptanceStats
    answers: tuple[AnswerCount, ...]

    @property
    def mean_accepted(self) -> float | None:
        """Drafts accepted for each step that had a draft, without the target's own token."""
        histogram = self.stats.histogram
        total = sum(num * count for num, count in enumerate(histogram))
        return total / sum(histogram) if histogram else None


def measure_acceptance(
    target: TargetModel,
    drafter: Drafter,
    prompts: Sequence[tuple[int, ...]],
    params: SamplingParams,
    *,
    block_size: int | None = None,
    progress: Progress | None = None,
) -> AcceptanceResult:
    """Decode every prompt (token ids) with the reference loop, one at a time, and count.

    Raises ConfigError without prompts, and what `decode` raises with the number of the prompt
    (from 1) in front.
    """
    lane = Lane(name="drafter", drafter=drafter, block_size=block_size)
    return measure_lane(target, lane, prompts, DecodeSettings(params=params), progress=progress)


def measure_lane(
    target: TargetModel,
    lane: Lane,
    prompts: Sequence[tuple[int, ...]],
    settings: DecodeSettings,
    *,
    progress: Progress | None = None,
) -> AcceptanceResult:
    """`measure_acceptance` with the settings spelled out."""
    check_prompts(prompts)
    answers: list[AnswerCount] = []
    for number, prompt_ids in enumerate(prompts, start=1):
        with naming_prompt(number):
            answers.append(decode_answer(target, lane, prompt_ids, settings))
        if progress is not None:
            progress(answers[-1])
    return pool_answers(answers)


def check_prompts(prompts: Sequence[tuple[int, ...]]) -> None:
    """Raise ConfigError for an empty set of prompts, over which nothing is defined."""
    if not prompts:
        raise ConfigError("an evaluation without prompts has no figures; give at least one prompt")


def pool_answers(answers: Sequence[AnswerCount]) -> AcceptanceResult:
    """All steps of all answers as one; how answers are grouped changes nothing."""
    stats = pool_stats(answers)
    ended = [answer for answer in answers if answer.has_ended]
    reached = add_counts(answer.reached for answer in answers)
    return AcceptanceResult(
        tau=stats.tau,
        tau_ended=pool_stats(ended).tau,
        tau_interval=tau_interval([answer.stats for answer in answers]),
        acceptance_by_position=stats.acceptance_by_position,
        conditional_acceptance=tuple(
            accepted / slots if slots else None
            for accepted, slots in zip(stats.accepted, reached, strict=True)
        ),
        committed_histogram=add_counts(answer.committed for answer in answers),
        num_ended=len(ended),
        stats=stats,
        answers=tuple(answers),
    )


def pool_stats(answers: Sequence[AnswerCount]) -> AcceptanceStats:
    """The counts of `answers`, merged."""
    stats = AcceptanceStats()
    for answer in answers:
        stats = stats.merge(answer.stats)
    return stats

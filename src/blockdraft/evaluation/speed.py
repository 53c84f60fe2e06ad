"""Several ways to decode the same prompts, timed side by side so that all meet the same machine.

It measures seconds of whole answers, prefills inside; acceptance is `acceptance.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple, TypeVar

from blockdraft.decoding import TargetModel
from blockdraft.errors import ConfigError
from blockdraft.evaluation.acceptance import Progress, check_prompts
from blockdraft.evaluation.answer import (
    AnswerCount,
    DecodeSettings,
    Lane,
    decode_answer,
    naming_prompt,
)

WARM_UP_TOKENS = 12

T = TypeVar("T")

LaneAnswers = Mapping[str, tuple[AnswerCount, ...]]
"""For each lane by name the answers in the order of the prompts; seconds are medians."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOptions:
    """How often every prompt is timed on every lane, and how long a warm-up answer may get."""

    num_repeats: int = 1
    warm_up_tokens: int = WARM_UP_TOKENS

    def __post_init__(self) -> None:
        if self.num_repeats < 1 or self.warm_up_tokens < 1:
            raise ConfigError(
                f"num_repeats is {self.num_repeats} and warm_up_tokens {self.warm_up_tokens}; "
                "both must be at least 1"
            )


class LaneTime(NamedTuple):
    """What a lane's answers took together; `seconds` include `prefill_seconds`."""

    seconds: float
    prefill_seconds: float
    tokens: int

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None


def measure_speed(
    target: TargetModel,
    lanes: Sequence[Lane],
    prompts: Sequence[tuple[int, ...]],
    settings: DecodeSettings,
    *,
    options: SpeedOptions | None = None,
    progress: Progress | None = None,
) -> LaneAnswers:
    """Every prompt on every lane in turn, the order of the lanes rotated at each turn.

    Each lane first answers the first prompt, shortened, in nobody's time. `progress` gets the
    first lane's answer when all lanes have answered a prompt. Raises ConfigError without prompts
    or for two lanes of one name, and what `decode` raises.
    """
    options = options or SpeedOptions()
    check_prompts(prompts)
    if not lanes or len({lane.name for lane in lanes}) < len(lanes):
        raise ConfigError("lanes are told apart by name; give at least one, each its own name")
    _warm_up(target, lanes, prompts[0], settings, options.warm_up_tokens)
    answers: dict[str, list[AnswerCount]] = {lane.name: [] for lane in lanes}
    for prompt_idx, prompt_ids in enumerate(prompts):
        runs: dict[str, list[AnswerCount]] = {lane.name: [] for lane in lanes}
        for repeat in range(options.num_repeats):
            for lane in rotated(lanes, prompt_idx + repeat):
                with naming_prompt(prompt_idx + 1):
                    runs[lane.name].append(decode_answer(target, lane, prompt_ids, settings))
        for name, repeats in runs.items():
            answers[name].append(_typical(repeats))
        if progress is not None:
            progress(answers[lanes[0].name][-1])
    return {name: tuple(found) for name, found in answers.items()}


def rotated(lanes: Sequence[T], turn: int) -> tuple[T, ...]:
    """`lanes`, begun with another one at each turn."""
    first = turn % len(lanes)
    return (*lanes[first:], *lanes[:first])


def time_of(answers: Sequence[AnswerCount]) -> LaneTime:
    """Seconds and tokens of one lane, summed."""
    return LaneTime(
        seconds=sum(answer.stats.seconds for answer in answers),
        prefill_seconds=sum(answer.stats.prefill_seconds for answer in answers),
        tokens=sum(answer.stats.tokens for answer in answers),
    )


def speedup(plain: Sequence[AnswerCount], drafted: Sequence[AnswerCount]) -> float | None:
    """Seconds a token plainly over seconds a token drafted, both pooled over the same prompts.

    Where every text is the same this is plain seconds over drafted seconds. None where a clock
    stood still.
    """
    slow, fast = time_of(plain), time_of(drafted)
    if not (slow.seconds and fast.seconds):
        return None
    return (slow.seconds * fast.tokens) / (fast.seconds * slow.tokens)


def num_identical(plain: Sequence[AnswerCount], drafted: Sequence[AnswerCount]) -> int:
    """How many answers have the same token ids as plain decoding's."""
    pairs = zip(plain, drafted, strict=True)
    return sum(left.token_ids == right.token_ids for left, right in pairs)


def _warm_up(
    target: TargetModel,
    lanes: Sequence[Lane],
    prompt_ids: tuple[int, ...],
    settings: DecodeSettings,
    num_tokens: int,
) -> None:
    params = settings.params
    short = replace(params, max_new_tokens=min(num_tokens, params.max_new_tokens))
    for lane in lanes:
        decode_answer(target, lane, prompt_ids, replace(settings, params=short))


def _typical(repeats: Sequence[AnswerCount]) -> AnswerCount:
    """The first of several runs of one prompt, with the median times of all."""
    stats = repeats[0].stats.with_time(
        seconds=median(run.stats.seconds for run in repeats),
        prefill_seconds=median(run.stats.prefill_seconds for run in repeats),
    )
    return replace(repeats[0], stats=stats)

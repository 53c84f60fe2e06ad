"""The what-if model: seconds of an answer for a width and a concurrency, in closed form.

docs/tuning.md derives it, and its worked example is a test. It measures nothing; lengths that
differ and queues that drain are `replay.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError
from blockdraft.tuning.survival import Survival

BISECTIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers alike: what their prompts take (target, drafter) and their tokens.

    `num_tokens` None is an answer without an end: prompts then weigh nothing.
    """

    prefill_seconds: float = 0.0
    drafter_prefill_seconds: float = 0.0
    num_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.prefill_seconds < 0 or self.drafter_prefill_seconds < 0:
            raise ConfigError("seconds of a prefill can't be negative; give 0 or more")
        if self.num_tokens is not None and self.num_tokens < 1:
            raise ConfigError(f"an answer of {self.num_tokens} tokens is none; give at least 1")
        if self.num_tokens == 1 and not self.prefill_seconds:
            raise ConfigError(
                "an answer of 1 token without a prefill takes no time; give --prefill-ms, or more "
                "--answer-tokens"
            )


class Prediction(NamedTuple):
    """One setting. `width` counts the anchor; 1 = plain decoding.

    `tau` is tokens a verification away from an answer's end. `seconds` are those of one answer with
    `concurrency` at a time (None without an end), and `break_even_tau` the tau at which this width
    is just as fast as plain decoding (None: not even drafts that are all accepted would pay).
    """

    width: int
    concurrency: int
    tau: float
    speedup: float
    tokens_per_second: float
    user_tokens_per_second: float
    seconds: float | None
    break_even_tau: float | None


def predict(
    width: int, concurrency: int, survival: Survival, costs: CostModel, answers: Answers
) -> Prediction:
    """What a setting does. Raises ConfigError for a width or concurrency below 1."""
    if width < 1 or concurrency < 1:
        raise ConfigError(
            f"width {width} at concurrency {concurrency} can't be; both are at least 1"
        )
    plain = wave_seconds(1, concurrency, (), costs, answers)
    accepted = survival.at(width) if width > 1 else ()
    drafted = wave_seconds(width, concurrency, accepted, costs, answers)
    num_tokens = answers.num_tokens or 1
    return Prediction(
        width=width,
        concurrency=concurrency,
        tau=1 + sum(accepted),
        speedup=plain / drafted,
        tokens_per_second=concurrency * num_tokens / drafted,
        user_tokens_per_second=num_tokens / drafted,
        seconds=None if answers.num_tokens is None else drafted,
        break_even_tau=break_even_tau(width, concurrency, costs, answers),
    )


def wave_seconds(
    width: int,
    concurrency: int,
    accepted: Sequence[float],
    costs: CostModel,
    answers: Answers,
) -> float:
    """Seconds until `concurrency` answers that start together are complete; without an end, of one
    token of each.

    `accepted[k]` is P(at least k + 1 drafts are accepted) of a `width`-token block.
    """
    full = step_seconds(width, width, concurrency, costs)
    if answers.num_tokens is None:
        return full / (1 + sum(accepted))
    drafter = answers.drafter_prefill_seconds if width > 1 else 0.0
    prefill = concurrency * (answers.prefill_seconds + drafter)
    return prefill + decoding_seconds(answers.num_tokens - 1, width, concurrency, accepted, costs)


def decoding_seconds(
    num_tokens: int, width: int, concurrency: int, accepted: Sequence[float], costs: CostModel
) -> float:
    """Seconds of the steps that commit `num_tokens` to each of `concurrency` answers.

    T(0) = 0; T(r) = step(min(width, r)) + sum over k of P(k tokens are committed) * T(r - k). The
    last blocks are cut by what an answer may still get, which is where short answers lose.
    """
    exactly = _committed(accepted)
    left = [0.0]
    steps = [step_seconds(width, verified, concurrency, costs) for verified in range(1, width + 1)]
    for remaining in range(1, num_tokens + 1):
        verified = min(width, remaining)
        shares = [*exactly[: verified - 1], 1 - sum(exactly[: verified - 1])]
        later = sum(share * left[remaining - k] for k, share in enumerate(shares, start=1))
        left.append(steps[verified - 1] + later)
    return left[num_tokens]


def _committed(accepted: Sequence[float]) -> list[float]:
    """P(exactly k tokens are committed), k = 1 .. width."""
    at_least = [1.0, *accepted, 0.0]
    return [at_least[k] - at_least[k + 1] for k in range(len(accepted) + 1)]


def step_seconds(width: int, verified: int, concurrency: int, costs: CostModel) -> float:
    """One step: draft `width` for every answer, verify `verified` tokens of each (1 = plain)."""
    drafting = costs.draft_seconds(concurrency, width) if verified > 1 else 0.0
    return costs.verify_seconds(concurrency * verified) + drafting + costs.overhead_seconds


def break_even_tau(
    width: int, concurrency: int, costs: CostModel, answers: Answers
) -> float | None:
    """The tau of `width`-token blocks, acceptance alike at all positions, that gains nothing.

    1 for plain decoding; None when full acceptance would not pay.
    """
    if width == 1:
        return 1.0
    plain = wave_seconds(1, concurrency, (), costs, answers)

    def pays(rate: float) -> bool:
        accepted = [rate**k for k in range(1, width)]
        return wave_seconds(width, concurrency, accepted, costs, answers) <= plain

    if not pays(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return 1 + sum(high**k for k in range(1, width))

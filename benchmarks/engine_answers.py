"""Answers of another engine beside ours: where they part, and what was accepted up to there.

It runs no engine and knows none; margins are asked of whoever has the target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Margin = Callable[[Sequence[int], Sequence[int]], float]
"""(prompt ids, ids of the answer so far) -> how far the target's best next token is ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    """One greedy answer, stop token included.

    `accepted` counts the drafts of each verification that were accepted, in order, as the engine
    tells it; None where it does not tell, or decoded without drafts. `num_accepted` is their sum
    where an engine tells only that.
    """

    token_ids: tuple[int, ...]
    seconds: float
    accepted: tuple[int, ...] | None = None
    num_accepted: int | None = None

    @property
    def steps(self) -> int | None:
        """Verifications; each adds one token to its drafts, and the prefill gave the first."""
        if self.accepted is not None:
            return len(self.accepted)
        if self.num_accepted is not None:
            return len(self.token_ids) - 1 - self.num_accepted
        return None


class Prefix(NamedTuple):
    """What was verified while an answer was still the same as another."""

    steps: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first place (0 = first answer token) where two answers to a prompt differ.

    `margin` is how far the target's best token was ahead of its second there, as logits.
    """

    prompt: str
    position: int
    margin: float


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first position that differs; the shorter one's length where only that is different."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def within(accepted: Sequence[int], num_tokens: int) -> Prefix:
    """The verifications whose tokens all lie in the first `num_tokens` of the answer."""
    covered, total = 1, 0
    for steps, count in enumerate(accepted):
        covered += count + 1
        if covered > num_tokens:
            return Prefix(steps, total)
        total += count
    return Prefix(len(accepted), total)


def pooled_tau(answers: Sequence[EngineAnswer]) -> float | None:
    """Tokens a verification over all answers, as Blockdraft counts; None without drafts."""
    steps = [answer.steps for answer in answers]
    known = [count for count in steps if count is not None]
    if len(known) != len(steps) or not sum(known):
        return None
    return sum(len(answer.token_ids) - 1 for answer in answers) / sum(known)


def tokens_per_second(answers: Sequence[EngineAnswer]) -> float:
    """All tokens over all seconds, prefills inside."""
    return sum(len(a.token_ids) for a in answers) / sum(a.seconds for a in answers)


def partings(
    names: Sequence[str],
    prompts: Sequence[Sequence[int]],
    answers: Sequence[EngineAnswer],
    others: Sequence[EngineAnswer],
    margin: Margin,
) -> list[Parting]:
    """Where `answers` part from `others`; a prompt with equal answers has no entry."""
    found: list[Parting] = []
    for name, ids, answer, other in zip(names, prompts, answers, others, strict=True):
        position = first_difference(answer.token_ids, other.token_ids)
        if position is not None:
            known = answer.token_ids[:position]
            found.append(Parting(prompt=name, position=position, margin=margin(ids, known)))
    return found


def common_prefixes(
    answers: Sequence[EngineAnswer], others: Sequence[EngineAnswer], num_tokens: int
) -> tuple[Prefix, Prefix] | None:
    """What both accepted while their answers agreed, over all prompts; None if one can't tell.

    Of each answer only the first `num_tokens` count: Blockdraft narrows a block that has no room
    before the length limit, which changes its drafts, and other engines don't.
    """
    ours, theirs = Prefix(0, 0), Prefix(0, 0)
    for answer, other in zip(answers, others, strict=True):
        if answer.accepted is None or other.accepted is None:
            return None
        position = first_difference(answer.token_ids, other.token_ids)
        end = min(num_tokens, len(answer.token_ids) if position is None else position)
        ours = _add(ours, within(answer.accepted, end))
        theirs = _add(theirs, within(other.accepted, end))
    return ours, theirs


def _add(left: Prefix, right: Prefix) -> Prefix:
    return Prefix(left.steps + right.steps, left.accepted + right.accepted)

"""Plain decoding against decoding with a drafter: where two answers part, and how close it was.

It decodes only what it needs to know a margin; it prints nothing.
"""

from dataclasses import dataclass, replace

from blockdraft.cli.pair import Pair
from blockdraft.decoding import Completion, NoDrafter, SamplingParams, collect, decode
from blockdraft.evaluation.difference import NEAR_TIE, first_unequal

__all__ = ["NEAR_TIE", "Difference", "decode_reference", "find_difference", "first_unequal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where an answer parts from plain decoding's.

    `position` counts output tokens from 0; an id is None where that answer had ended. `margin` is
    how far the target's likeliest token was above the second there, as logits, in plain decoding.
    A near-tie is a margin small enough for rounding to have turned the choice.
    """

    position: int
    plain_id: int | None
    drafted_id: int | None
    margin: float
    is_near_tie: bool


def decode_reference(pair: Pair, prompt_ids: tuple[int, ...], params: SamplingParams) -> Completion:
    """Plain decoding by the reference loop, the specification of every faster path."""
    codec = pair.target.text
    decode_text = None if codec is None else codec.decode
    commits = decode(pair.target, NoDrafter(), prompt_ids, params, decode_text=decode_text)
    return collect(prompt_ids, commits)


def find_difference(
    pair: Pair, plain: Completion, drafted: Completion, params: SamplingParams, epsilon: float
) -> Difference | None:
    """Where `drafted` parts from `plain`; None when ids and finish reason are equal.

    The margin comes from `plain`'s own log-probabilities, or from the reference loop, run up to
    there. Only a greedy choice can be a near-tie: a sampled one also depends on its random number.
    """
    position = first_unequal(plain, drafted)
    if position is None:
        return None
    margin = _margin_at(pair, plain, params, position)
    return Difference(
        position=position,
        plain_id=_id_at(plain, position),
        drafted_id=_id_at(drafted, position),
        margin=margin,
        is_near_tie=params.is_greedy and margin < epsilon,
    )


def _id_at(completion: Completion, position: int) -> int | None:
    ids = completion.token_ids
    return ids[position] if position < len(ids) else None


def _margin_at(pair: Pair, plain: Completion, params: SamplingParams, position: int) -> float:
    entries = plain.logprobs
    position = min(position, len(plain.token_ids) - 1)
    if len(entries) <= position or len(entries[position].top) < 2:
        again = replace(params, logprobs=2, max_new_tokens=position + 1)
        entries = decode_reference(pair, plain.prompt_ids, again).logprobs
    (_, best), (_, second) = entries[position].top[:2]
    return best - second

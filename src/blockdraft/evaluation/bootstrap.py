"""How far a pooled acceptance length would move with other prompts of the same kind.

Percentile bootstrap over prompts (Efron 1979): steps of one answer are not independent of each
other, answers are. It decodes nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch

from blockdraft.decoding import AcceptanceStats

NUM_DRAWS = 2000
SEED = 0
DRAWN_AT_ONCE = 1_000_000


class Interval(NamedTuple):
    """A range that holds the true value in so many of a hundred cases (95 by default)."""

    low: float
    high: float


def tau_interval(
    answers: Sequence[AcceptanceStats],
    *,
    level: float = 0.95,
    num_draws: int = NUM_DRAWS,
    seed: int = SEED,
) -> Interval | None:
    """The interval of tau over redrawn sets of `answers`; the same for the same seed.

    None for fewer than two answers with a verification, which say nothing about others.
    """
    counted = [stats for stats in answers if stats.steps]
    if len(counted) < 2:
        return None
    tokens = torch.tensor([s.tokens - s.requests for s in counted], dtype=torch.float64)
    steps = torch.tensor([s.steps for s in counted], dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    draws: list[torch.Tensor] = []
    at_once = max(1, DRAWN_AT_ONCE // len(counted))
    for start in range(0, num_draws, at_once):
        shape = (min(at_once, num_draws - start), len(counted))
        chosen = torch.randint(len(counted), shape, generator=generator)
        draws.append(tokens[chosen].sum(1) / steps[chosen].sum(1))
    taus = torch.cat(draws)
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = cast(list[float], taus.quantile(ends).tolist())
    return Interval(low, high)

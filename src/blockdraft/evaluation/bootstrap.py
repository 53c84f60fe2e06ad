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
    taus = torch.empty(num_draws, dtype=torch.float64)
    for draw in range(num_draws):
        chosen = torch.randint(len(counted), (len(counted),), generator=generator)
        taus[draw] = tokens[chosen].sum() / steps[chosen].sum()
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = cast(list[float], taus.quantile(ends).tolist())
    return Interval(low, high)

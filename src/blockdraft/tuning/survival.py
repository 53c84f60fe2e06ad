"""`Survival`: how likely each draft position is accepted, by draft width where it is known.

It decodes nothing; counts come from measured runs, or rates from a user.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blockdraft.engine.acceptance import acceptance_from_tau
from blockdraft.errors import ConfigError

Rates = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Survival:
    """Conditional acceptance by position for each measured draft width, narrowest first.

    Entry k of a row is P(draft k + 1 is accepted | all before it were). Between two measured widths
    rows are interpolated in the width, outside the nearest one stands in: a block drafter fills all
    slots of its block together, so that a narrower draft changes each of them.
    """

    rows: tuple[tuple[int, Rates], ...]

    @classmethod
    def of_tau(cls, tau: float, block_size: int) -> "Survival":
        """One conditional acceptance at all positions, so that blocks of `block_size` give `tau`.

        Raises ConfigError for a tau that such blocks can't have.
        """
        if block_size < 2:
            raise ConfigError(f"a block of {block_size} drafts nothing; give at least 2 tokens")
        if not (math.isfinite(tau) and 1 <= tau <= block_size):
            raise ConfigError(
                f"--tau {tau:g} can't be: a step of {block_size}-token blocks commits 1 to "
                f"{block_size} tokens (give the trained block with --block-size)"
            )
        rate = acceptance_from_tau(tau, block_size)
        return cls(((block_size, (rate,) * (block_size - 1)),))

    @classmethod
    def of_positions(cls, accepted: Sequence[float]) -> "Survival":
        """From P(draft k is accepted) of k = 1, 2, ..: shares of all steps, which never rise.

        Raises ConfigError for values that are no such shares.
        """
        if not accepted:
            raise ConfigError("--acceptance is empty; give a share for each draft, like 0.8,0.6")
        before = 1.0
        conditional: list[float] = []
        for position, share in enumerate(accepted, start=1):
            if not 0 <= share <= before:
                what = "no share from 0 to 1" if not 0 <= share <= 1 else "more than the one before"
                raise ConfigError(
                    f"--acceptance: {share:g} at draft {position} is {what}; give the share of "
                    "steps that accepted the draft and all before it"
                )
            conditional.append(share / before if before else 0.0)
            before = share
        return cls(((len(accepted) + 1, tuple(conditional)),))

    @classmethod
    def of_counts(cls, counts: Mapping[int, tuple[Sequence[int], Sequence[int]]]) -> "Survival":
        """From (steps that drafted position k, steps that accepted it) for each draft width.

        A position that no step reached takes after the one before it. Raises ConfigError without
        counts.
        """
        rows = tuple((width, _conditional(width, *counts[width])) for width in sorted(counts))
        if not rows:
            raise ConfigError("no drafts were counted; measure with a drafter")
        return cls(rows)

    @property
    def widest(self) -> int:
        """The widest draft that something is known of."""
        return self.rows[-1][0]

    def conditional(self, width: int) -> Rates:
        """Acceptance of drafts 1 .. width - 1, each given the ones before."""
        widths = [known for known, _ in self.rows]
        right = bisect_left(widths, width)
        if right < len(widths) and widths[right] == width:
            return self.rows[right][1]
        num = width - 1
        if right == 0 or right == len(widths):
            return _padded(self.rows[min(right, len(widths) - 1)][1], num)
        (low, at_low), (high, at_high) = self.rows[right - 1], self.rows[right]
        share = (width - low) / (high - low)
        pairs = zip(_padded(at_low, num), _padded(at_high, num), strict=True)
        return tuple(left + (up - left) * share for left, up in pairs)

    def at(self, width: int) -> Rates:
        """P(at least k drafts are accepted), k = 1 .. width - 1, when `width` is drafted."""
        found: list[float] = []
        reached = 1.0
        for rate in self.conditional(width):
            reached *= rate
            found.append(reached)
        return tuple(found)

    def tau(self, width: int) -> float:
        """Tokens a step of that width commits on average, away from an answer's end."""
        return 1 + sum(self.at(width))


def _conditional(width: int, drafted: Sequence[int], accepted: Sequence[int]) -> Rates:
    found: list[float] = []
    before = 1.0
    for k in range(width - 1):
        num_drafted = drafted[k] if k < len(drafted) else 0
        share = accepted[k] / num_drafted if num_drafted else 0.0
        if num_drafted and before:
            found.append(min(share / before, 1.0))
            before = min(share, before)
        else:
            found.append(found[-1] if found else 0.0)
    return tuple(found)


def _padded(rates: Rates, num: int) -> Rates:
    return (rates + rates[-1:] * num)[:num]

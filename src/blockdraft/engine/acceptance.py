"""A running estimate of how likely each draft position is accepted, by request and pooled.

It decides nothing; `width.py` turns survival probabilities into widths.
"""

from collections.abc import Hashable, Sequence

MILD_ACCEPTANCE = 0.5
PRIOR_WEIGHT = 6.0
EASE_WEIGHT = 5.0
OWN_WEIGHT = 8.0
POOL_KEEP = 0.99
REQUEST_KEEP = 0.97
FAR_WIDTH_WEIGHT = 0.03


def acceptance_from_tau(tau: float, block_size: int) -> float:
    """The constant conditional acceptance p with 1 + p + .. + p^(block_size - 1) = `tau`.

    `tau` outside [1, block_size] is cut to it; block_size below 2 gives 0.
    """
    if block_size < 2 or tau <= 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if sum(middle**k for k in range(block_size)) < tau:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class _Counts:
    """Decayed counts of drafts tried and accepted by position."""

    __slots__ = ("accepted", "tried")

    def __init__(self, num_positions: int) -> None:
        self.accepted = [0.0] * num_positions
        self.tried = [0.0] * num_positions

    def add(self, num_verified: int, num_accepted: int) -> None:
        """Position k is seen only when every position before it was accepted."""
        for k in range(min(num_accepted, num_verified)):
            self.accepted[k] += 1
            self.tried[k] += 1
        if num_accepted < num_verified:
            self.tried[num_accepted] += 1

    def fade(self, keep: float, num_positions: int) -> None:
        for k in range(num_positions):
            self.accepted[k] *= keep
            self.tried[k] *= keep


class _Own(_Counts):
    """A request's counts as if all were made at `width`, and its ease.

    The ease is the request's factor on the odds of the pooled acceptance at all positions.
    """

    __slots__ = ("ease", "width")

    def __init__(self, num_positions: int, width: int) -> None:
        super().__init__(num_positions)
        self.width = width
        self.ease = 1.0

    def move(self, width: int, before: Sequence[float], after: Sequence[float]) -> None:
        """Restate the counts for another draft width, given the pooled acceptance at both."""
        self.width = width
        for k, tried in enumerate(self.tried):
            moved = self.accepted[k] + tried * (after[k] - before[k])
            self.accepted[k] = min(max(moved, 0.0), tried)

    def compare(self, pooled: Sequence[float]) -> None:
        """Set the ease from accepted against expected, drawn to 1 by `EASE_WEIGHT` trials each."""
        expected = sum(n * p for n, p in zip(self.tried, pooled, strict=True))
        accepted, tried = sum(self.accepted), sum(self.tried)
        hits = (accepted + EASE_WEIGHT) / (expected + EASE_WEIGHT)
        misses = (tried - accepted + EASE_WEIGHT) / (tried - expected + EASE_WEIGHT)
        self.ease = hits / misses


class AcceptanceEstimate:
    """Conditional acceptance by draft position: prior -> pooled by draft width -> request.

    Pooled counts are kept by draft width, since a narrower draft changes all of its slots; near
    widths count for each other, far ones hardly. A request moves the pooled odds of all positions
    by one factor, its ease (its counts are few, and what they tell is mostly how easy its text
    is); its counts at a position correct that. Counts fade when new ones come, so that a belief
    lasts while nothing is observed.
    """

    def __init__(self, block_size: int, prior: Sequence[float] | None = None) -> None:
        """`prior`: recorded conditional acceptance by position, first draft first (the last value
        stands for any further ones); None = a mild guess. Values are cut to [0, 1]."""
        self._num_positions = max(block_size - 1, 0)
        self._recorded = bool(prior)
        known = [min(max(value, 0.0), 1.0) for value in prior or (MILD_ACCEPTANCE,)]
        self._prior = (known + known[-1:] * self._num_positions)[: self._num_positions]
        self._by_width: dict[int, _Counts] = {}
        self._by_request: dict[Hashable, _Own] = {}
        self._pooled: dict[int, list[float]] = {}
        self.num_observed = 0

    def observe(self, draft_width: int, results: Sequence[tuple[Hashable, int, int]]) -> None:
        """One step: (key, drafts verified, drafts accepted) of each request that had a draft."""
        seen = [(key, min(n, self._num_positions), a) for key, n, a in results if n > 0]
        if not seen or self._num_positions == 0:
            return
        self.num_observed += len(seen)
        pooled = self._by_width.setdefault(draft_width, _Counts(self._num_positions))
        # A step of many requests replaces more of the past than a step of one.
        keep = POOL_KEEP ** (len(seen) ** 0.5)
        reach = max(n for _, n, _ in seen)
        for width, counts in self._by_width.items():
            counts.fade(keep if width == draft_width else keep**0.25, reach)
        for _, num_verified, num_accepted in seen:
            pooled.add(num_verified, num_accepted)
        self._pooled.clear()
        now = self.conditional(draft_width)
        for key, num_verified, num_accepted in seen:
            own = self._by_request.get(key)
            if own is None:
                own = self._by_request[key] = _Own(self._num_positions, draft_width)
            elif own.width != draft_width:
                own.move(draft_width, self.conditional(own.width), now)
            own.fade(REQUEST_KEEP, self._num_positions)
            own.add(num_verified, num_accepted)
            own.compare(now)

    def conditional(self, draft_width: int) -> Sequence[float]:
        """Pooled conditional acceptance by position when a block of `draft_width` is drafted.

        A position that was hardly seen takes after the one before it, else deep positions would
        never look worth a look; a recorded prior has half a say in that.
        """
        found = self._pooled.get(draft_width)
        if found is not None:
            return found
        values: list[float] = []
        near = [(_nearness(draft_width, w), counts) for w, counts in self._by_width.items()]
        for k, prior in enumerate(self._prior):
            parent = prior
            if values:
                parent = (prior + values[-1]) / 2 if self._recorded else values[-1]
            accepted = sum(weight * counts.accepted[k] for weight, counts in near)
            tried = sum(weight * counts.tried[k] for weight, counts in near)
            values.append((accepted + PRIOR_WEIGHT * parent) / (tried + PRIOR_WEIGHT))
        self._pooled[draft_width] = values
        return values

    def survival(self, key: Hashable, width: int) -> tuple[float, ...]:
        """P(at least k drafts are accepted), k = 1 .. width - 1, when `width` is drafted.

        Never rises with k. An unknown request gets the pooled estimate.
        """
        own = self._by_request.get(key)
        pooled = self.conditional(width)
        found: list[float] = []
        reached = 1.0
        if own is None:
            for prob in pooled[: width - 1]:
                reached *= prob
                found.append(reached)
            return tuple(found)
        counted_at = self.conditional(own.width)
        accepted, tried, ease = own.accepted, own.tried, own.ease
        for k, prob in enumerate(pooled[: width - 1]):
            num = tried[k]
            hits = accepted[k] + num * (prob - counted_at[k])
            eased = ease * prob / (1 - prob + ease * prob)
            reached *= min(max((hits + OWN_WEIGHT * eased) / (num + OWN_WEIGHT), 0.0), 1.0)
            found.append(reached)
        return tuple(found)

    @property
    def num_requests(self) -> int:
        """Requests remembered."""
        return len(self._by_request)

    def forget(self, key: Hashable) -> None:
        """Drop what is remembered of a request; unknown keys are fine."""
        self._by_request.pop(key, None)


def _nearness(width: int, other: int) -> float:
    """How much a trial at draft width `other` tells about `width`: 1 for itself, 1/16 for half."""
    return max((min(width, other) / max(width, other)) ** 4, FAR_WIDTH_WEIGHT)

"""Running corrections of a cost model by the passes that were really made.

It reads no clock and knows no widths; `width.py` feeds it what the engine measured.
"""

import math

from blockdraft.engine.costs import CostModel


class CostCorrection:
    """Running ratio of measured to predicted seconds by size, so that a stale table heals.

    Knots lie at sizes 1, 2, 4, ..; between them the ratio is linear in log2(size). An observation
    counts as at most `MAX_STEP` times the ratio believed so far (one stall of the machine teaches
    little) and is forgotten with `half_life_seconds` of observed time. A knot without fresh
    observations goes to the ratio of all sizes, since most causes of error (another load, a
    throttled processor) touch all alike.
    """

    MAX_STEP = 2.0
    PULL = 2.0

    def __init__(self, half_life_seconds: float = 30.0) -> None:
        self._half_life = half_life_seconds
        self._weights: list[float] = []
        self._sums: list[float] = []
        self._total_weight = 0.0
        self._total_sum = 0.0

    def observe(self, size: int, *, predicted: float, measured: float) -> None:
        """One pass. Times that are not positive and finite are ignored."""
        if not (0 < predicted < math.inf and 0 < measured < math.inf):
            return
        ratio = measured / predicted
        if self._total_weight > 0:
            believed = self.ratio(size)
            ratio = min(max(ratio, believed / self.MAX_STEP), believed * self.MAX_STEP)
        keep = 0.5 ** (ratio * predicted / self._half_life)
        low, share = self._place(size)
        while len(self._weights) < low + 2:
            self._weights.append(0.0)
            self._sums.append(0.0)
        self._weights = [weight * keep for weight in self._weights]
        self._sums = [total * keep for total in self._sums]
        for knot, weight in ((low, 1 - share), (low + 1, share)):
            self._weights[knot] += weight
            self._sums[knot] += weight * ratio
        self._total_weight = self._total_weight * keep + 1
        self._total_sum = self._total_sum * keep + ratio

    def ratio(self, size: int) -> float:
        """What to multiply a predicted time at `size` with; 1 before any observation."""
        if self._total_weight <= 0:
            return 1.0
        overall = self._total_sum / self._total_weight
        low, share = self._place(size)
        return (1 - share) * self._knot(low, overall) + share * self._knot(low + 1, overall)

    def _knot(self, knot: int, overall: float) -> float:
        """A knot's own ratio, drawn to the ratio of all as by `PULL` observations."""
        if knot >= len(self._weights):
            return overall
        return (self._sums[knot] + self.PULL * overall) / (self._weights[knot] + self.PULL)

    @staticmethod
    def _place(size: int) -> tuple[int, float]:
        position = math.log2(max(size, 1))
        return int(position), position - int(position)


class LiveCosts:
    """A cost model with its corrections: what a pass is believed to cost now.

    Answers are remembered for `REFRESH` observations, which is cheap and steadies decisions.
    """

    REFRESH = 16

    def __init__(self, model: CostModel) -> None:
        self._model = model
        self._target_fix = CostCorrection()
        self._drafter_fix = CostCorrection()
        self._verify: dict[int, float] = {}
        self._draft: dict[tuple[int, int], float] = {}
        self._num_observed = 0

    @property
    def overhead_seconds(self) -> float:
        return self._model.overhead_seconds

    def verify_seconds(self, rows: int) -> float:
        found = self._verify.get(rows)
        if found is None:
            found = self._model.verify_seconds(rows) * self._target_fix.ratio(rows)
            self._verify[rows] = found
        return found

    def draft_seconds(self, num_requests: int, width: int) -> float:
        found = self._draft.get((num_requests, width))
        if found is None:
            found = self._model.draft_seconds(num_requests, width)
            found *= self._drafter_fix.ratio(num_requests * width)
            self._draft[num_requests, width] = found
        return found

    def observe_verify(self, rows: int, seconds: float) -> None:
        """One measured target pass."""
        predicted = self._model.verify_seconds(rows)
        self._target_fix.observe(rows, predicted=predicted, measured=seconds)
        self._count()

    def observe_draft(self, num_requests: int, width: int, seconds: float) -> None:
        """One measured drafter pass."""
        predicted = self._model.draft_seconds(num_requests, width)
        self._drafter_fix.observe(num_requests * width, predicted=predicted, measured=seconds)
        self._count()

    def _count(self) -> None:
        self._num_observed += 1
        if self._num_observed % self.REFRESH == 0 or self._num_observed <= 4:
            self._verify.clear()
            self._draft.clear()

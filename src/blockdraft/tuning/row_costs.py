"""`RowCosts`: what a pass of the target costs, by how many requests share its rows.

It measures nothing (`passes.py` does) and knows no drafter.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from blockdraft.engine.costs import CostCurve

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RowCosts:
    """For each measured number of requests, fewest first: (rows, seconds), fewest rows first.

    Between points it is linear, and may fall: kernels take rows in blocks. Between numbers of
    requests it is linear at as many rows a request; outside, the nearest one stands in. Beyond its
    last point a curve rises as the longest one does, and that by its steeper of last and mean
    slope. A single curve is one by rows alone.
    """

    curves: tuple[tuple[int, Points], ...]

    @classmethod
    def by_rows(cls, curve: CostCurve) -> "RowCosts":
        return cls(((1, curve.points),))

    @classmethod
    def of_shapes(cls, seconds: Mapping[tuple[int, int], float]) -> "RowCosts":
        """From seconds by (requests, rows in all)."""
        curves: dict[int, list[tuple[int, float]]] = {}
        for (requests, rows), taken in sorted(seconds.items()):
            curves.setdefault(requests, []).append((rows, taken))
        return cls(tuple((requests, tuple(points)) for requests, points in curves.items()))

    @property
    def last_rows(self) -> int:
        """The most rows of a measured pass."""
        return self._longest[-1][0]

    @property
    def row_seconds(self) -> float:
        """What another row costs beyond the measured ones."""
        return _outer_slope(self._longest)

    def at(self, requests: int, rows: float) -> float:
        """Seconds of a pass of `rows` rows of `requests` requests; 0 rows cost nothing."""
        if rows <= 0:
            return 0.0
        known = [number for number, _ in self.curves]
        right = bisect_left(known, requests)
        if (right < len(known) and known[right] == requests) or right in (0, len(known)):
            return self._along(self.curves[min(right, len(known) - 1)][1], rows)
        low, high = known[right - 1], known[right]
        left, up = (
            self._along(self.curves[i][1], rows / requests * known[i]) for i in (right - 1, right)
        )
        return left + (up - left) * (requests - low) / (high - low)

    def changed(self, change: Callable[[int, int, float], float]) -> "RowCosts":
        """`change` maps (requests, rows, seconds) to new seconds."""
        return RowCosts(
            tuple(
                (number, tuple((rows, change(number, rows, taken)) for rows, taken in points))
                for number, points in self.curves
            )
        )

    def prolonged(self, row_seconds: float) -> "RowCosts":
        """With `row_seconds` for each row beyond the measured ones."""
        longest, last = self._longest, self.last_rows
        more = tuple(
            (last * factor, longest[-1][1] + (factor - 1) * last * row_seconds)
            for factor in (2, 16)
        )
        curves = [(n, points + more if points is longest else points) for n, points in self.curves]
        return RowCosts(tuple(curves))

    def for_requests(self, requests: int) -> CostCurve:
        """By rows alone, never falling: as the engine's own width control sees it."""
        nearest = min(self.curves, key=lambda curve: abs(curve[0] - requests))
        sizes = {max(round(rows * requests / nearest[0]), 1) for rows, _ in nearest[1]}
        return CostCurve.fit((rows, self.at(requests, rows)) for rows in sorted(sizes))

    @property
    def _longest(self) -> Points:
        return max((points for _, points in self.curves), key=lambda points: points[-1][0])

    def _along(self, points: Points, rows: float) -> float:
        right = bisect_left(points, rows, key=lambda point: point[0])
        if right == len(points):
            last, seconds = points[-1]
            longest = self._longest
            if last < longest[-1][0]:
                return seconds + self._along(longest, rows) - self._along(longest, last)
            return seconds + (rows - last) * _outer_slope(points)
        if right == 0:
            return points[0][1]
        (low, at_low), (high, at_high) = points[right - 1], points[right]
        return at_low + (at_high - at_low) * (rows - low) / (high - low)


def _outer_slope(points: Points) -> float:
    """A single point rises in proportion."""
    (first, at_first), (last, at_last) = points[0], points[-1]
    if first == last:
        return at_last / last
    before, at_before = points[-2]
    return max((at_last - at_before) / (last - before), (at_last - at_first) / (last - first))

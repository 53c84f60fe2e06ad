"""What passes of the target and of the drafter cost, in seconds: a measured table that heals.

It measures nothing and reads no clock; the caller measures, and keeps the JSON of a machine.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from blockdraft.errors import ConfigError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds by size: piecewise linear, never falling, constant below its first point.

    Beyond its last point it goes on with the steeper of its last and its mean slope: where nothing
    was measured, too dear is the safe side. Build it with `fit`.
    """

    points: tuple[tuple[int, float], ...]

    @classmethod
    def fit(cls, points: Iterable[tuple[int, float]], name: str = "cost table") -> "CostCurve":
        """The never-falling curve nearest to `points` (least squares); equal sizes are averaged.

        Raises ConfigError for no point, a size below 1 or seconds that are not positive numbers.
        """
        by_size: dict[int, list[float]] = {}
        for size, seconds in points:
            if size < 1 or not math.isfinite(seconds) or seconds <= 0:
                raise ConfigError(
                    f"{name}: {seconds!r} seconds at size {size} can't be; measure it again"
                )
            by_size.setdefault(size, []).append(seconds)
        if not by_size:
            raise ConfigError(f"{name}: no points; measure it again")
        sizes = sorted(by_size)
        means = [sum(by_size[size]) / len(by_size[size]) for size in sizes]
        return cls(tuple(zip(sizes, _never_falling(means), strict=True)))

    def at(self, size: float) -> float:
        """Seconds at `size`."""
        points = self.points
        if size <= points[0][0] or len(points) == 1:
            return points[0][1] * (max(1.0, size / points[0][0]) if len(points) == 1 else 1.0)
        right = bisect_right(points, size, key=_size_of)
        if right == len(points):
            last_size, last_seconds = points[-1]
            return last_seconds + (size - last_size) * self._outer_slope
        (low, at_low), (high, at_high) = points[right - 1], points[right]
        return at_low + (at_high - at_low) * (size - low) / (high - low)

    @property
    def _outer_slope(self) -> float:
        (first, at_first), (before, at_before) = self.points[0], self.points[-2]
        last, at_last = self.points[-1]
        return max((at_last - at_before) / (last - before), (at_last - at_first) / (last - first))


def _size_of(point: tuple[int, float]) -> int:
    return point[0]


def _never_falling(values: list[float]) -> list[float]:
    """Pool adjacent violators: the non-decreasing list nearest to `values` in least squares."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (right, num_right), (left, num_left) = pools.pop(), pools.pop()
            num = num_left + num_right
            pools.append(((left * num_left + right * num_right) / num, num))
    return [mean for mean, num in pools for _ in range(num)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Predicted seconds of each part of a step.

    `verify` is by rows of one target pass. `draft` holds one curve by requests for each measured
    draft width, narrowest first. `overhead_seconds` is what every step costs besides its passes.
    """

    verify: CostCurve
    draft: tuple[tuple[int, CostCurve], ...]
    overhead_seconds: float = 0.0

    @classmethod
    def fit(
        cls,
        verify: Mapping[int, float],
        draft: Mapping[tuple[int, int], float],
        overhead_seconds: float = 0.0,
    ) -> "CostModel":
        """From seconds by rows and seconds by (requests, draft width); raises ConfigError.

        A drafter measured by rows alone is given as {(rows, 1): seconds}. An empty `draft` means
        that there is no drafter: drafting then costs infinitely much.
        """
        if not math.isfinite(overhead_seconds) or overhead_seconds < 0:
            raise ConfigError(f"cost table: overhead of {overhead_seconds!r} seconds can't be")
        by_width: dict[int, list[tuple[int, float]]] = {}
        for (num_requests, width), seconds in draft.items():
            if width < 1:
                raise ConfigError(f"cost table: draft width {width} can't be; it is 1 or more")
            by_width.setdefault(width, []).append((num_requests, seconds))
        curves = tuple(
            (width, CostCurve.fit(by_width[width], f"cost table, draft width {width}"))
            for width in sorted(by_width)
        )
        target = CostCurve.fit(verify.items(), "cost table, target passes")
        return cls(verify=target, draft=curves, overhead_seconds=overhead_seconds)

    def verify_seconds(self, rows: int) -> float:
        """One target pass of `rows` rows; 0 rows cost nothing."""
        return self.verify.at(rows) if rows > 0 else 0.0

    def draft_seconds(self, num_requests: int, width: int) -> float:
        """One drafter pass for `num_requests` requests at draft width `width`; 0 when none.

        Between measured widths it is interpolated; outside, the nearest measured width stands in
        at an equal number of rows, or at the same number of requests when that costs more.
        """
        if num_requests < 1:
            return 0.0
        if not self.draft:
            return math.inf
        narrower = [pair for pair in self.draft if pair[0] <= width]
        wider = [pair for pair in self.draft if pair[0] >= width]
        if narrower and wider:
            (low, at_low), (high, at_high) = narrower[-1], wider[0]
            left, right = at_low.at(num_requests), at_high.at(num_requests)
            return left if high == low else left + (right - left) * (width - low) / (high - low)
        near, curve = narrower[-1] if narrower else wider[0]
        return curve.at(num_requests * width / near)

    def to_json(self) -> str:
        """One JSON document that `from_json` reads."""
        return json.dumps(
            {
                "format": FORMAT,
                "verify": [list(point) for point in self.verify.points],
                "draft": [
                    [requests, width, seconds]
                    for width, curve in self.draft
                    for requests, seconds in curve.points
                ],
                "overhead_seconds": self.overhead_seconds,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "CostModel":
        """Raises ConfigError for anything that `to_json` would not write."""
        try:
            document: object = json.loads(text)
        except ValueError as error:
            raise ConfigError(
                f"cost table: not JSON ({error}); delete it to measure anew"
            ) from None
        if not isinstance(document, dict):
            raise ConfigError("cost table: not a JSON object; delete it to measure anew")
        fields = cast(dict[str, object], document)
        known = {"format", "verify", "draft", "overhead_seconds"}
        if set(fields) != known or fields["format"] != FORMAT:
            raise ConfigError(
                f"cost table: not of format {FORMAT} (fields {', '.join(sorted(fields))}); "
                "delete it to measure anew"
            )
        verify = {size: s for [size], s in (_split(row, 2) for row in _rows(fields["verify"]))}
        draft = {(n, w): s for [n, w], s in (_split(row, 3) for row in _rows(fields["draft"]))}
        return cls.fit(verify, draft, _number(fields["overhead_seconds"]))


def _rows(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ConfigError("cost table: points are not a list; delete it to measure anew")
    return cast(list[object], value)


def _split(value: object, length: int) -> tuple[list[int], float]:
    row = _rows(value)
    sizes = row[:-1]
    if len(row) != length or not all(type(size) is int for size in sizes):
        raise ConfigError(f"cost table: point {value!r} is malformed; delete it to measure anew")
    return cast(list[int], sizes), _number(row[-1])


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"cost table: {value!r} is not a number; delete it to measure anew")
    return float(value)


def nominal_costs() -> CostModel:
    """The shape of a small model on a CPU, for an engine that has measured nothing yet.

    Its scale is arbitrary and heals with the first observations.
    """
    return CostModel.fit(
        {1: 0.017, 8: 0.020, 16: 0.026, 32: 0.040, 64: 0.070},
        {(1, 8): 0.006, (4, 8): 0.010, (16, 8): 0.026},
    )

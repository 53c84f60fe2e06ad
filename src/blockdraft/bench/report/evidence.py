"""What answers are decided on: estimates with their noise, step costs, and the crossing point.

Values in, values out; the sentences are in `answers.py`. docs/report.md states every rule.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from blockdraft.bench.report.document import BenchDocument, Figures, Lane, Load, Range
from blockdraft.bench.report.noise import FEW_ANSWERS, speedup_noise

LEAST_NOISE = 0.02
"""No ratio of times is taken to be surer than this, however well a few repeats agree."""
ASSUMED_TAU_NOISE = 0.10
"""At least, of a tau that comes without an interval or from few answers."""


class Estimate(NamedTuple):
    """A figure, and the range that it may as well have been."""

    value: float
    low: float
    high: float

    def side_of(self, line: float) -> Literal["above", "below", "covers"]:
        """Where the whole range lies; a range that holds the line, its ends included, covers it."""
        if self.low > line:
            return "above"
        return "below" if self.high < line else "covers"

    @property
    def range(self) -> list[float]:
        return [self.low, self.high]


class StepCost(NamedTuple):
    """What a drafted step costs in plain steps: the tau at which drafting breaks even."""

    ratio: float
    source: Literal["step times", "costs of passes", "speed-up"]


def noisy(value: float, spread: Range | None, repeats: int, once: float) -> Estimate:
    """A ratio of times with the spread of its repeats, widened to what is believable.

    `once` is the share either way that is assumed where it was measured once.
    """
    # A part of a run may have one ratio of several repeats.
    is_once = spread is None or repeats < 2 or spread[0] == spread[1]
    noise = once if is_once else LEAST_NOISE
    low, high = value * max(0.0, 1 - noise), value * (1 + noise)
    if spread is not None:
        low, high = min(low, spread[0]), max(high, spread[1])
    return Estimate(value, low, high)


def speedup_of(document: BenchDocument, figures: Figures | None) -> Estimate | None:
    """Of throughput: total tokens a second over plain decoding's. `figures` are the document's."""
    if figures is None or figures.speedup is None:
        return None
    once = speedup_noise(document).share
    return noisy(figures.speedup, figures.speedup_spread, figures.repeats, once)


def latency_speedup_of(document: BenchDocument, figures: Figures | None) -> Estimate | None:
    """Of end-to-end latency; its relative noise is taken to be that of the throughput."""
    overall = speedup_of(document, figures)
    if figures is None or figures.latency_speedup is None:
        return overall
    value = figures.latency_speedup
    if overall is None or overall.value <= 0:
        return noisy(value, None, figures.repeats, speedup_noise(document).share)
    scale = value / overall.value
    return Estimate(value, overall.low * scale, overall.high * scale)


def tau_of(figures: Figures | None) -> Estimate | None:
    """With its interval; widened, or assumed, where few answers or none stand behind one."""
    if figures is None or figures.tau is None:
        return None
    interval = figures.tau_interval
    assumed = (figures.tau * (1 - ASSUMED_TAU_NOISE), figures.tau * (1 + ASSUMED_TAU_NOISE))
    if interval is None:
        return Estimate(figures.tau, *assumed)
    if figures.answers is not None and figures.answers < FEW_ANSWERS:
        interval = (min(interval[0], assumed[0]), max(interval[1], assumed[1]))
    return Estimate(figures.tau, *interval)


def drafted_lanes(document: BenchDocument) -> list[Lane]:
    """Lanes that may draft and of which there are figures, in the order of the document."""
    known = {figures.lane for figures in document.figures}
    return [lane for lane in document.lanes if not lane.is_plain and lane.name in known]


def plain_lane(document: BenchDocument) -> Lane | None:
    known = {figures.lane for figures in document.figures}
    return next((lane for lane in document.lanes if lane.is_plain and lane.name in known), None)


def lightest_load(document: BenchDocument) -> Load | None:
    """One request at a time where that was measured."""
    return next(iter(document.loads), None)


def best_lane(document: BenchDocument, lanes: Sequence[Lane], loads: Sequence[Load]) -> Lane | None:
    """The lane with the highest speed-up (geometric mean over `loads`); by tau without any.

    In a part of a run, lanes that were measured under more of `loads` go before others.
    """

    def merit(lane: Lane) -> tuple[int, float]:
        found = [document.find(lane.name, load) for load in loads]
        gains = [f.speedup for f in found if f is not None and f.speedup is not None]
        if gains and min(gains) > 0:
            return len(gains), math.exp(math.fsum(math.log(gain) for gain in gains) / len(gains))
        taus = [f.tau for f in found if f is not None and f.tau is not None]
        return 0, max(taus, default=0.0)

    measured = [lane for lane in lanes if any(document.find(lane.name, load) for load in loads)]
    return max(measured, key=merit, default=None)


def main_lanes(document: BenchDocument) -> list[Lane]:
    """Lanes of drafters; those of prompt lookup only where there is no other."""
    drafted = drafted_lanes(document)
    return [lane for lane in drafted if lane.kind != "lookup"] or drafted


def step_cost(document: BenchDocument, lane: Lane, load: Load) -> StepCost | None:
    """Measured step times first; then the passes' costs; then tau over the speed-up, which holds
    the prefill too.

    Step times are compared where both lanes have as many requests in a step: not where requests
    come at a rate, since the slower lane has more of them at a time then.
    """
    plain = plain_lane(document)
    if plain is not None and load.concurrency is not None:
        own, base = _step_seconds(document, lane, load), _step_seconds(document, plain, load)
        if own is not None and base:
            return StepCost(own / base, "step times")
    ratio = _ratio_of_passes(document, lane)
    if ratio is not None:
        return StepCost(ratio, "costs of passes")
    figures = document.find(lane.name, load)
    if figures is not None and figures.tau is not None and figures.speedup:
        return StepCost(figures.tau / figures.speedup, "speed-up")
    return None


def crossing_point(points: Sequence[tuple[float, float]]) -> float | None:
    """The load at which the speed-up first falls to 1, of (load, speed-up) in order of load.

    Interpolated on the line between two loads in their logarithms, as the plot draws it. None
    where it stays above 1, or is not above 1 at the lightest load.
    """
    if not points or points[0][1] < 1:
        return None
    for (left, before), (right, after) in pairwise(points):
        if before >= 1 > after:
            share = (before - 1) / (before - after)
            return math.exp(math.log(left) + share * (math.log(right) - math.log(left)))
    return None


def speedup_points(document: BenchDocument, lane: Lane) -> list[tuple[float, float]]:
    """Concurrency and speed-up of one lane, the lowest first."""
    return [
        (load.amount, figures.speedup)
        for load in document.loads
        if load.concurrency is not None
        and (figures := document.find(lane.name, load)) is not None
        and figures.speedup is not None
    ]


def _step_seconds(document: BenchDocument, lane: Lane, load: Load) -> float | None:
    """Mean over all steps of the lane's levels."""
    times = [
        level.step_time
        for level in document.levels
        if level.lane == lane.name and level.load == load and level.step_time is not None
    ]
    steps = sum(time.steps for time in times)
    return sum(t.draft + t.verify + t.other for t in times) / steps if steps else None


def _ratio_of_passes(document: BenchDocument, lane: Lane) -> float | None:
    """Of a lane of fixed width: draft, verify and overhead against a pass over one row."""
    costs, width = document.costs, lane.fixed_width
    if costs is None or width is None:
        return None
    verify = {cost.rows: cost.seconds for cost in costs.verify}
    draft = {
        cost.tokens: cost.seconds
        for cost in costs.draft
        if cost.weights == "trained" and cost.kind == lane.kind
    }
    if 1 not in verify or width not in verify or width - 1 not in draft:
        return None
    overhead = costs.step_overhead or 0.0
    return (draft[width - 1] + verify[width] + overhead) / (verify[1] + overhead)

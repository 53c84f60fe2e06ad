"""Question 3: does throughput still gain as concurrency grows, and where does the gain end?

The crossing point is where the speed-up falls to 1.
"""

from collections.abc import Sequence

from blockdraft.bench.report.document import BenchDocument, Lane, Load, Verdict
from blockdraft.bench.report.evidence import (
    Estimate,
    best_lane,
    crossing_point,
    main_lanes,
    plain_lane,
    speedup_of,
    speedup_points,
)
from blockdraft.bench.report.latency_answer import NO_BASELINE
from blockdraft.bench.report.reply import Reply, no_drafts, noise_remark, times

ONE_LOAD = Reply(
    verdict="unknown",
    sentence="Only one load was measured; run `blockdraft bench` again with --concurrency 1 2 4 8.",
    figures={},
)


def answer_throughput(document: BenchDocument) -> Reply:
    lanes = main_lanes(document)
    if not lanes:
        return no_drafts(document)
    if plain_lane(document) is None:
        return NO_BASELINE
    loads = [load for load in document.loads if load.concurrency is not None]
    lane = best_lane(document, lanes, loads)
    if lane is None:
        return ONE_LOAD
    gains = _gains(document, lane, loads)
    if len(gains) < 2:
        return NO_BASELINE if not gains else ONE_LOAD
    crossings = {one.name: crossing_point(speedup_points(document, one)) for one in lanes}
    heaviest = max(gains, key=lambda load: load.amount)
    at = crossings[lane.name]
    return Reply(
        verdict=judge_gains(list(gains.values())),
        headline=f"{gains[heaviest].value:.2f}x at {heaviest.concurrency}",
        sentence=f"{_course(lane, gains, at)} {_beside(document, lane, lanes, crossings)}".strip(),
        detail=f"Total tokens a second over plain decoding's under the same load, of the lane that "
        f"does best over all loads. {noise_remark(document, list(gains))}",
        figures={
            "lane": lane.name,
            "speedups": {load.title: gain.value for load, gain in gains.items()},
            "crossing": at,
            "crossings": crossings,
        },
    )


def judge_gains(gains: Sequence[Estimate]) -> Verdict:
    """Of speed-ups in order of load: the first is question 2's, growth is about the others."""
    sides = [gain.side_of(1.0) for gain in gains[1:]]
    if all(side == "above" for side in sides):
        return "yes"
    return "no" if sides[-1] == "below" and "above" not in sides else "mixed"


def _gains(document: BenchDocument, lane: Lane, loads: Sequence[Load]) -> dict[Load, Estimate]:
    found = {load: speedup_of(document, document.find(lane.name, load)) for load in loads}
    return {load: gain for load, gain in found.items() if gain is not None}


def _course(lane: Lane, gains: dict[Load, Estimate], crossing: float | None) -> str:
    first, *_, last = gains
    ends = (
        f"{lane.name}: {times(gains[first], has_range=False)} at {first.phrase}, "
        f"{times(gains[last])} at {last.phrase}"
    )
    if crossing is not None:
        return f"{ends}; the gain ends at concurrency {crossing:.1f}."
    sides = {gain.side_of(1.0) for gain in gains.values()}
    if sides == {"below"}:
        return f"{ends}; slower at every load."
    if all(gain.value >= 1 for gain in gains.values()):
        return f"{ends}; the gain does not end before that."
    return f"{ends}; not a sure gain at every load."


def _beside(
    document: BenchDocument,
    lane: Lane,
    lanes: Sequence[Lane],
    crossings: dict[str, float | None],
) -> str:
    """Where the fixed widths lose and what `auto` does there."""
    fixed = [one for one in lanes if one.fixed_width is not None]
    auto = next((one for one in lanes if one.width == "auto"), None)
    ends = {one.name: at for one in fixed if (at := crossings[one.name]) is not None}
    if not ends or auto is None:
        return ""
    name = max(ends, key=lambda one: ends[one])
    at = ends[name]
    beyond = [load for load in document.loads if load.concurrency is not None and load.amount >= at]
    gain = speedup_of(document, document.find(auto.name, beyond[0])) if beyond else None
    if gain is None:
        return ""
    told = f"auto is at {times(gain, has_range=False)} ({beyond[0].phrase})"
    if lane.name == name:
        return f"There {told}."
    return f"The best fixed width, {name}, ends at {at:.1f}; there {told}."

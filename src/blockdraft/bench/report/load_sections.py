"""Sections about load: speed-up against concurrency, the interactivity frontier, latencies.

Values in, values out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockdraft.bench.latency import Spread, quantile
from blockdraft.bench.report.chart import Chart, Mark, Series
from blockdraft.bench.report.document import AnswerTimes, BenchDocument, Figures, Load
from blockdraft.bench.report.evidence import (
    best_lane,
    crossing_point,
    drafted_lanes,
    main_lanes,
    plain_lane,
    speedup_of,
    speedup_points,
)
from blockdraft.bench.report.reply import listed, percent, seconds
from blockdraft.bench.report.section import (
    PANEL_WIDTH,
    Section,
    Table,
    dodged,
    kind_of_loads,
    legend_of,
    load_ticks,
    looks_of,
    told,
    told_ms,
    told_range,
)


def speedup_section(document: BenchDocument) -> Section | None:
    label, loads = kind_of_loads(document)
    looks, lanes = looks_of(document), drafted_lanes(document)
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for idx, lane in enumerate(lanes):
        found = [(load, f) for load in loads if (f := document.find(lane.name, load)) is not None]
        gains = [
            (load, f, gain) for load, f in found if (gain := speedup_of(document, f)) is not None
        ]
        if gains:
            series.append(
                Series(
                    look=looks[lane.name],
                    x=[dodged(load.amount, idx, len(lanes)) for load, _, _ in gains],
                    y=[gain.value for _, _, gain in gains],
                    y_ranges=[(gain.low, gain.high) for _, _, gain in gains],
                )
            )
        rows += [
            (
                f"{lane.name}, {load.title}",
                told(gain.value, unit="x"),
                told_range(gain[1:]),
                told(f.latency_speedup, unit="x"),
                told(f.tau),
                str(f.repeats),
            )
            for load, f, gain in gains
        ]
    if not series:
        return None
    crossings = {
        lane.name: at
        for lane in lanes
        if (at := crossing_point(speedup_points(document, lane))) is not None
    }
    return Section(
        key="speedup",
        title="Speed-up against load",
        reading=_crossings_told(crossings, len(loads)),
        charts=(
            Chart(
                name="speedup",
                x_label=label,
                y_label="speed-up of throughput",
                series=series,
                x_ticks=load_ticks(loads),
                x_is_log=True,
                across=(Mark(1.0, ""),),
                rings=tuple((at, 1.0) for at in crossings.values()),
            ),
        ),
        legend=legend_of([lane.name for lane in lanes], looks),
        table=Table(
            headings=("lane, load", "speed-up", "range", "of latency", "tau", "repeats"),
            rows=tuple(rows),
        ),
    )


def _crossings_told(crossings: dict[str, float], num_loads: int) -> str:
    if num_loads < 2:
        return "Above the dotted line, drafting is faster. One load was measured."
    if not crossings:
        return "Above the dotted line, drafting is faster. No lane falls to it from above."
    ends = listed([f"{at:.1f} ({name})" for name, at in crossings.items()])
    return f"Above the dotted line, drafting is faster. The gain ends at concurrency {ends}."


def frontier_section(document: BenchDocument) -> Section | None:
    label, loads = kind_of_loads(document)
    looks = looks_of(document)
    best = best_lane(document, main_lanes(document), loads)
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for lane in document.lanes:
        found = [
            (load, f.user_tokens_per_second, f.tokens_per_second, f)
            for load in loads
            if (f := document.find(lane.name, load)) is not None
        ]
        known = [
            (load, user, total, f) for load, user, total, f in found if user and total is not None
        ]
        if not known:
            continue
        is_labelled = lane.is_plain or lane is best
        series.append(
            Series(
                look=looks[lane.name],
                x=[user.p50 for _, user, _, _ in known],
                y=[total for _, _, total, _ in known],
                labels=[f"{load.amount:g}" for load, *_ in known] if is_labelled else (),
            )
        )
        rows += [
            (
                f"{lane.name}, {load.title}",
                told(total, 1),
                told_range(f.tokens_per_second_spread, 1),
                told(user.p50, 1),
                told(user.min, 1),
                told(f.user_fairness),
            )
            for load, user, total, f in known
        ]
    if not series:
        return None
    return Section(
        key="frontier",
        title="What one user gets against what all get",
        reading="Further right is faster for one user, higher is more for all. Numbers at points "
        f"are {label}.",
        charts=(
            Chart(
                name="frontier",
                x_label="tokens a second for one user (p50)",
                y_label="tokens a second in total",
                series=series,
            ),
        ),
        legend=legend_of([lane.name for lane in document.lanes], looks),
        table=Table(
            headings=(
                "lane, load",
                "tok/s total",
                "range",
                "a user, p50",
                "slowest",
                "slowest / fastest",
            ),
            rows=tuple(rows),
        ),
    )


LONG = 3.0
"""Seconds from which a plot of times is in seconds."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One of the times of an answer: its spread in the figures, and one answer's own."""

    key: str
    title: str
    spread: Callable[[Figures], Spread | None]
    of: Callable[[AnswerTimes], float | None]


LATENCIES = (
    Latency("first-token", "First token", lambda f: f.first_token, lambda t: t.first_token),
    Latency("inter-token", "Token to token", lambda f: f.inter_token, lambda t: t.inter_token),
    Latency("end-to-end", "Whole answer", lambda f: f.end_to_end, lambda t: t.end_to_end),
)


def latency_section(document: BenchDocument) -> Section | None:
    _, loads = kind_of_loads(document)
    ends = tuple(dict.fromkeys((*loads[:1], *loads[-1:])))
    made = [_distribution(document, load, latency) for load in ends for latency in LATENCIES]
    charts = tuple(chart for chart in made if chart is not None)
    rows = tuple(row for latency in LATENCIES for row in _latency_rows(document, loads, latency))
    if not rows:
        return None
    drawn = (
        "A curve is the share of answers that took no longer; marks are at the median and at 90%. "
    )
    return Section(
        key="latency",
        title="Latencies",
        reading=f"{drawn if charts else ''}{_first_token(document)}".strip()
        or "Times of all answers.",
        charts=charts,
        legend=legend_of([lane.name for lane in document.lanes], looks_of(document)),
        table=Table(headings=("ms", "p50", "p90", "p99", "most"), rows=rows),
    )


def _latency_rows(
    document: BenchDocument, loads: Sequence[Load], latency: Latency
) -> list[tuple[str, ...]]:
    return [
        (
            f"{latency.title}: {lane.name}, {load.title}",
            *(told_ms(value) for value in (s.p50, s.p90, s.p99, s.max)),
        )
        for lane in document.lanes
        for load in loads
        if (f := document.find(lane.name, load)) is not None and (s := latency.spread(f))
    ]


def _distribution(document: BenchDocument, load: Load, latency: Latency) -> Chart | None:
    """Every answer of every lane under one load, as cumulative curves; None without records."""
    looks = looks_of(document)
    found = {lane.name: _times_of(document, lane.name, load, latency) for lane in document.lanes}
    known = {name: values for name, values in found.items() if values}
    if not known:
        return None
    is_long = max(quantile(values, 0.9) for values in known.values()) >= LONG
    factor = 1.0 if is_long else 1000.0
    series: list[Series] = []
    for name, values in known.items():
        x, y = _stairs([factor * value for value in values])
        series.append(Series(look=looks[name], x=x, y=y, kind="stairs"))
        at = [factor * quantile(values, share) for share in MARKED]
        series.append(Series(look=looks[name], x=at, y=MARKED, kind="points"))
    return Chart(
        name=f"{latency.key}-{load.amount:g}",
        title=f"{latency.title}, {load.title}",
        x_label="s" if is_long else "ms",
        y_label="share of answers",
        series=series,
        y_most=1.03,
        x_from_zero=True,
        width=PANEL_WIDTH,
        height=2.5,
    )


MARKED = (0.5, 0.9)
MOST_STAIRS = 200


def _times_of(document: BenchDocument, lane: str, load: Load, latency: Latency) -> list[float]:
    """Of all answers of all complete repeats, in order of size."""
    values = [
        latency.of(times)
        for level in document.levels
        if level.lane == lane and level.load == load and level.is_complete
        for times in level.times
    ]
    return sorted(value for value in values if value is not None)


def _stairs(ordered: Sequence[float]) -> tuple[list[float], list[float]]:
    """Values and the share that is no larger; thinned where a picture can't show them all."""
    num = len(ordered)
    every = max(1, num // MOST_STAIRS)
    kept = [*range(every - 1, num - 1, every), num - 1]
    return (
        [ordered[0], *(ordered[idx] for idx in kept)],
        [0.0, *((idx + 1) / num for idx in kept)],
    )


def _first_token(document: BenchDocument) -> str:
    """What drafting does to the time to first token, at the lightest load."""
    _, loads = kind_of_loads(document)
    plain, lane = plain_lane(document), best_lane(document, main_lanes(document), loads[:1])
    base = None if plain is None else document.find(plain.name, loads[0])
    own = None if lane is None else document.find(lane.name, loads[0])
    if base is None or own is None or base.first_token is None or own.first_token is None:
        return ""
    before, after = base.first_token.p50, own.first_token.p50
    if before <= 0:
        return ""
    return (
        f"At {loads[0].phrase} the first token takes {seconds(after)} with {own.lane} and "
        f"{seconds(before)} plainly ({percent(after / before)})."
    )

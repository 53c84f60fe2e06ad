"""Sections about acceptance: by category, by position in the block, by step, along the answer.

All are of the lightest load, since acceptance hardly depends on the load. Values in, values out.
"""

from collections.abc import Callable, Sequence

from blockdraft.bench.report.chart import Chart, Mark, Series, Tick, short_label
from blockdraft.bench.report.document import BenchDocument, Figures, Group, Lane
from blockdraft.bench.report.evidence import (
    best_lane,
    drafted_lanes,
    lightest_load,
    main_lanes,
    step_cost,
)
from blockdraft.bench.report.section import (
    Section,
    Table,
    legend_of,
    looks_of,
    told,
    told_range,
)


def _measured(document: BenchDocument) -> list[tuple[Lane, Figures]]:
    load = lightest_load(document)
    if load is None:
        return []
    found = [(lane, document.find(lane.name, load)) for lane in drafted_lanes(document)]
    return [(lane, figures) for lane, figures in found if figures is not None]


def category_section(document: BenchDocument) -> Section | None:
    measured = [(lane, f) for lane, f in _measured(document) if f.groups.get("category")]
    names = list(dict.fromkeys(g.title for _, f in measured for g in f.groups["category"]))
    if not names:
        return None
    looks = looks_of(document)
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for idx, (lane, figures) in enumerate(measured):
        groups = [g for g in figures.groups["category"] if g.tau is not None]
        shift = 0.6 * ((idx + 0.5) / len(measured) - 0.5)
        series.append(
            Series(
                look=looks[lane.name],
                x=[group.tau or 0.0 for group in groups],
                y=[names.index(group.title) + shift for group in groups],
                x_ranges=[g.tau_interval or (g.tau or 0.0, g.tau or 0.0) for g in groups],
                kind="points",
            )
        )
        rows += [
            (
                f"{group.title}: {lane.name}",
                told(group.tau),
                told_range(group.tau_interval),
                told(group.speedup, unit="x"),
                "" if group.answers is None else str(group.answers),
            )
            for group in figures.groups["category"]
        ]
    marks, remark = _break_even(document)
    return Section(
        key="category",
        title="Acceptance by category of prompt",
        reading=f"Bars are 95% intervals over prompts. {remark}",
        charts=(
            Chart(
                name="category",
                x_label="tau (tokens a step)",
                y_label="",
                series=series,
                y_ticks=[Tick(idx, short_label(name)) for idx, name in enumerate(names)],
                upright=marks,
                height=max(2.7, 0.9 + len(names) * (0.22 + 0.09 * len(measured))),
            ),
        ),
        legend=legend_of([lane.name for lane, _ in measured], looks),
        table=Table(
            headings=("category, lane", "tau", "95% interval", "speed-up", "answers"),
            rows=tuple(rows),
        ),
    )


def _break_even(document: BenchDocument) -> tuple[tuple[Mark, ...], str]:
    load = lightest_load(document)
    lane = None if load is None else best_lane(document, main_lanes(document), [load])
    cost = None if load is None or lane is None else step_cost(document, lane, load)
    if lane is None or cost is None:
        return (), "What a drafted step costs is not known, so neither is the break-even."
    return (
        (Mark(cost.ratio, f"break-even {cost.ratio:.2f}"),),
        f"Right of the dotted line, drafting pays with {lane.name}.",
    )


def position_section(document: BenchDocument) -> Section | None:
    measured = [(lane, f) for lane, f in _measured(document) if f.by_position]
    if not measured:
        return None
    looks = looks_of(document)
    charts = tuple(
        Chart(
            name=f"position-{key}",
            title=title,
            x_label="draft position in the block",
            y_label="share accepted",
            series=[
                Series(look=looks[lane.name], x=range(1, len(rates) + 1), y=rates)
                for lane, f in measured
                if (rates := pick(f))
            ],
            x_ticks=_position_ticks(max(len(f.by_position) for _, f in measured)),
            y_most=1.02,
        )
        for key, title, pick in POSITIONS
        if any(pick(f) for _, f in measured)
    )
    load = lightest_load(document)
    best = None if load is None else best_lane(document, main_lanes(document), [load])
    lane, figures = next((one for one in measured if one[0] is best), measured[0])
    rates = figures.by_position
    return Section(
        key="position",
        title="Acceptance by position in the block",
        reading=f"{lane.name}: the first draft is accepted in {rates[0]:.0%} of the steps, the "
        f"last ({len(rates)}) in {rates[-1]:.0%}.",
        charts=charts,
        legend=legend_of([lane.name for lane, _ in measured], looks),
        table=Table(
            headings=("lane, position", "of all steps", "once reached"),
            rows=tuple(
                (
                    f"{lane.name}, {idx + 1}",
                    told(rate, 3),
                    told(f.conditional[idx] if idx < len(f.conditional) else None, 3),
                )
                for lane, f in measured
                for idx, rate in enumerate(f.by_position)
            ),
        ),
    )


POSITIONS: tuple[tuple[str, str, Callable[[Figures], Sequence[float]]], ...] = (
    ("all", "Of all steps", lambda figures: figures.by_position),
    ("reached", "Where all before it were accepted", lambda figures: figures.conditional),
)


def _position_ticks(num: int) -> list[Tick]:
    every = 1 if num <= 10 else 2 if num <= 20 else 5
    return [Tick(at, str(at)) for at in range(1, num + 1, every)]


def histogram_section(document: BenchDocument) -> Section | None:
    shown = [(lane, f) for lane, f in _measured(document) if sum(f.histogram) > 0]
    if not shown:
        return None
    looks, width = looks_of(document), 0.8 / len(shown)
    shares = {lane.name: [n / sum(f.histogram) for n in f.histogram] for lane, f in shown}
    most = max(len(share) for share in shares.values())
    load = lightest_load(document)
    best = None if load is None else best_lane(document, main_lanes(document), [load])
    told_name = best.name if best is not None and best.name in shares else next(iter(shares))
    share = shares[told_name]
    return Section(
        key="histogram",
        title="Tokens that a step commits",
        reading=f"{told_name}: {sum(share[:2]):.0%} of the steps commit one token, as plain "
        f"decoding does; {sum(share[4:]):.0%} commit four or more.",
        charts=(
            Chart(
                name="histogram",
                x_label="tokens committed in a step",
                y_label="share of steps",
                series=[
                    Series(
                        look=looks[name],
                        x=[k + width * (idx + 0.5) - 0.4 for k in range(1, len(part))],
                        y=part[1:],
                        kind="bars",
                        bar_width=width * 0.92,
                    )
                    for idx, (name, part) in enumerate(shares.items())
                ],
                x_ticks=_position_ticks(most - 1),
            ),
        ),
        legend=legend_of(list(shares), looks),
        table=Table(
            headings=("lane", *(str(k) for k in range(1, most))),
            rows=tuple(
                (lane.name, *(f"{n:g}" for n in f.histogram[1:]), *[""] * (most - len(f.histogram)))
                for lane, f in shown
            ),
        ),
    )


GROUPINGS = (
    ("answer_position", "Along the answer", "position in the answer (tokens)"),
    ("context_len", "By length of the context", "context length (tokens)"),
    ("output_len", "By length of the answer", "answer length (tokens)"),
)


def stretch_sections(document: BenchDocument) -> list[Section]:
    """Tau and speed along the answer, by context length and by output length."""
    found = [_stretch_section(document, *grouping) for grouping in GROUPINGS]
    return [section for section in found if section is not None]


def _stretch_section(document: BenchDocument, kind: str, title: str, label: str) -> Section | None:
    load = lightest_load(document)
    if load is None:
        return None
    everything = [(lane, document.find(lane.name, load)) for lane in document.lanes]
    grouped = [(lane, f.groups.get(kind, ())) for lane, f in everything if f is not None]
    grouped = [(lane, groups) for lane, groups in grouped if groups]
    names = list(dict.fromkeys(group.title for _, groups in grouped for group in groups))
    if len(names) < 2:
        return None
    ticks = [Tick(idx, short_label(name)) for idx, name in enumerate(names)]
    looks = looks_of(document)
    charts: list[Chart] = []
    for key, y_label, pick in MEASURES:
        series: list[Series] = []
        for lane, groups in grouped:
            known = [(group, value) for group in groups if (value := pick(group)) is not None]
            if known and not (key == "tau" and lane.is_plain):
                series.append(
                    Series(
                        look=looks[lane.name],
                        x=[names.index(group.title) for group, _ in known],
                        y=[value for _, value in known],
                        y_ranges=[group.tau_interval or (tau, tau) for group, tau in known]
                        if key == "tau" and any(group.tau_interval for group, _ in known)
                        else (),
                    )
                )
        if series:
            charts.append(
                Chart(
                    name=f"{kind}-{key}",
                    x_label=label,
                    y_label=y_label,
                    series=series,
                    x_ticks=ticks,
                )
            )
    if not charts:
        return None
    return Section(
        key=kind,
        title=title,
        reading=_slope_told(document, grouped),
        charts=tuple(charts),
        legend=legend_of([lane.name for lane, _ in grouped], looks),
        table=Table(
            headings=("tokens, lane", "tau", "95% interval", "tok/s", "speed-up", "answers"),
            rows=tuple(
                (
                    f"{group.title}: {lane.name}",
                    told(group.tau),
                    told_range(group.tau_interval),
                    told(group.tokens_per_second, 1),
                    told(group.speedup, unit="x"),
                    "" if group.answers is None else str(group.answers),
                )
                for lane, groups in grouped
                for group in groups
            ),
        ),
    )


MEASURES: tuple[tuple[str, str, Callable[[Group], float | None]], ...] = (
    ("tau", "tau (tokens a step)", lambda group: group.tau),
    ("speed", "tokens a second", lambda group: group.tokens_per_second),
    ("speedup", "speed-up", lambda group: group.speedup),
)


def _slope_told(document: BenchDocument, grouped: Sequence[tuple[Lane, tuple[Group, ...]]]) -> str:
    """How tau changes from the first stretch to the last, of the best lane."""
    load = lightest_load(document)
    lanes = [lane for lane, _ in grouped if not lane.is_plain]
    best = None if load is None else best_lane(document, lanes, [load])
    for lane, groups in grouped:
        taus = [(group, group.tau) for group in groups if group.tau is not None]
        if lane is best and len(taus) > 1:
            (first, before), (last, after) = taus[0], taus[-1]
            return (
                f"{lane.name}: tau goes from {before:.2f} ({first.title}) to {after:.2f} "
                f"({last.title})."
            )
    return "Every lane at the lightest load."

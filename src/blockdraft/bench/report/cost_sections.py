"""Sections about cost: the sweep of block sizes, and the cost of drafting against its length.

Values in, values out.
"""

from collections.abc import Mapping, Sequence

from blockdraft.bench.report.block_answer import Width, block_sweep, drafter_of_sweep
from blockdraft.bench.report.chart import Chart, Look, Mark, Series, Tick, look_of
from blockdraft.bench.report.document import BenchDocument, DraftCost
from blockdraft.bench.report.evidence import lightest_load
from blockdraft.bench.report.section import (
    PANEL_WIDTH,
    Section,
    Table,
    legend_of,
    looks_of,
    told,
    told_ms,
    told_range,
)


def sweep_section(document: BenchDocument) -> Section | None:
    load = lightest_load(document)
    if load is None:
        return None
    found = block_sweep(document, load, drafter_of_sweep(document, load))
    if len(found) < 2:
        return None
    looks = looks_of(document)
    best = max(found, key=lambda one: one.speedup.value)
    ticks = [Tick(one.width, str(one.width)) for one in found]
    taus = [(one, one.tau) for one in found if one.tau is not None]
    costs = [(one, one.step_cost) for one in found if one.step_cost is not None]
    panels = (
        ("tau", "Acceptance", "tau (tokens a step)", taus),
        ("cost", "Cost of a step", "plain steps", costs),
    )
    charts = [
        Chart(
            name=f"sweep-{key}",
            title=title,
            x_label="width (tokens, with the anchor)",
            y_label=label,
            series=_dotted(points, looks),
            x_ticks=ticks,
            width=PANEL_WIDTH,
            height=2.4,
        )
        for key, title, label, points in panels
        if points
    ]
    charts.append(_speedup_chart(found, looks, ticks))
    return Section(
        key="sweep",
        title="Block size: what it gains and what it costs",
        reading="Wider blocks commit more tokens a step and cost more; the speed-up is about the "
        f"one over the other. Highest here: width {best.width}.",
        charts=tuple(charts),
        legend=legend_of([one.lane.name for one in found], looks),
        table=Table(
            headings=("width", "tau", "step cost", "speed-up", "range"),
            rows=tuple(
                (
                    str(one.width),
                    told(one.tau),
                    told(one.step_cost),
                    told(one.speedup.value, unit="x"),
                    told_range(one.speedup[1:]),
                )
                for one in found
            ),
        ),
    )


def _dotted(points: Sequence[tuple[Width, float]], looks: Mapping[str, Look]) -> list[Series]:
    """Each width in the look of its lane, on a thread that joins them."""
    thread = Series(
        look=Look(0, ""), x=[w.width for w, _ in points], y=[y for _, y in points], kind="thread"
    )
    return [
        thread,
        *(
            Series(look=looks[width.lane.name], x=[width.width], y=[y], kind="points")
            for width, y in points
        ),
    ]


def _speedup_chart(found: list[Width], looks: Mapping[str, Look], ticks: list[Tick]) -> Chart:
    return Chart(
        name="sweep-speedup",
        title="What is left: speed-up",
        x_label="width (tokens, with the anchor)",
        y_label="speed-up of throughput",
        series=[
            *_dotted([(one, one.speedup.value) for one in found], looks)[:1],
            *(
                Series(
                    look=looks[one.lane.name],
                    x=[one.width],
                    y=[one.speedup.value],
                    y_ranges=[(one.speedup.low, one.speedup.high)],
                    kind="points",
                )
                for one in found
            ),
        ],
        x_ticks=ticks,
        across=(Mark(1.0, "plain decoding"),),
        width=PANEL_WIDTH,
        height=2.4,
    )


def draft_cost_section(document: BenchDocument) -> Section | None:
    costs = document.costs
    if costs is None or not costs.draft:
        return None
    named: dict[str, list[DraftCost]] = {}
    for cost in sorted(costs.draft, key=lambda one: one.tokens):
        named.setdefault(_name(cost), []).append(cost)
    lanes = looks_of(document)
    looks = {
        name: lanes.get(costs_of[0].name) or look_of(len(lanes) + idx - 1, is_plain=False)
        for idx, (name, costs_of) in enumerate(named.items())
    }
    plain_row = next((cost.seconds for cost in costs.verify if cost.rows == 1), None)
    context = "" if costs.context_len is None else f" after {costs.context_len} tokens"
    lengths = sorted({cost.tokens for cost in costs.draft})
    charts = [
        Chart(
            name="draft-cost",
            title="Drafting",
            x_label="draft length (tokens)",
            y_label="ms a draft",
            series=[
                Series(
                    look=looks[name],
                    x=[one.tokens for one in points],
                    y=[1000 * one.seconds for one in points],
                )
                for name, points in named.items()
            ],
            x_ticks=[Tick(length, str(length)) for length in lengths] if len(lengths) < 9 else (),
            across=()
            if plain_row is None
            else (Mark(1000 * plain_row, "a plain step of the target"),),
        )
    ]
    if len(costs.verify) > 1:
        charts.append(_verify_chart(document))
    return Section(
        key="draft-cost",
        title="What drafting costs",
        reading=_growth_told(named) + (f" Measured{context}." if context else ""),
        charts=tuple(charts),
        legend=legend_of(list(looks), looks),
        table=Table(
            headings=("pass", "tokens", "ms"),
            rows=tuple(
                (f"draft: {name}", str(one.tokens), told_ms(one.seconds))
                for name, points in named.items()
                for one in points
            )
            + tuple(
                ("target verifies", str(one.rows), told_ms(one.seconds)) for one in costs.verify
            ),
        ),
        notes=(
            ("Random weights draft nothing useful: such a line shows cost only.",)
            if any(cost.weights == "random" for cost in costs.draft)
            else ()
        ),
    )


def _verify_chart(document: BenchDocument) -> Chart:
    verify = sorted(document.costs.verify if document.costs is not None else ())
    return Chart(
        name="verify-cost",
        title="Verifying",
        x_label="rows in the pass (tokens)",
        y_label="ms a pass of the target",
        series=[
            Series(
                look=Look(0, "o"),
                x=[one.rows for one in verify],
                y=[1000 * one.seconds for one in verify],
            )
        ],
    )


def _name(cost: DraftCost) -> str:
    kind = "a token at a time" if cost.kind == "autoregressive" else "block at once"
    random = "; random weights: cost only" if cost.weights == "random" else ""
    return f"{cost.name} ({kind}{random})"


def _growth_told(named: dict[str, list[DraftCost]]) -> str:
    """How each line grows from its shortest draft to its longest."""
    told_of: list[str] = []
    for name, points in named.items():
        first, last = points[0], points[-1]
        if last.tokens > first.tokens and first.seconds > 0:
            told_of.append(
                f"{name}: {last.tokens} tokens take {last.seconds / first.seconds:.1f} times as "
                f"long as {first.tokens}"
            )
    return ". ".join(told_of) + "." if told_of else "One draft length was measured."

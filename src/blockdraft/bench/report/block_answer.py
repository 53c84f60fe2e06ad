"""Question 4: which block size balances acceptance and the drafter's cost?

Widths count the anchor, as in `--width fixed:8`. Decided at the lightest load that was measured.
"""

from typing import NamedTuple

from blockdraft.bench.report.document import BenchDocument, Lane, Load
from blockdraft.bench.report.evidence import (
    Estimate,
    best_lane,
    lightest_load,
    main_lanes,
    speedup_of,
    step_cost,
    tau_of,
)
from blockdraft.bench.report.reply import Reply, listed, no_drafts, noise_remark, times

ONE_WIDTH = Reply(
    verdict="unknown",
    sentence="Fewer than two fixed widths were measured; run `blockdraft bench` in process with "
    "several, like fixed:4 and fixed:8, or `blockdraft tune`.",
    figures={},
)


class Width(NamedTuple):
    """One fixed width's figures."""

    lane: Lane
    width: int
    tau: float | None
    step_cost: float | None
    speedup: Estimate


def answer_block_size(document: BenchDocument) -> Reply:
    load = lightest_load(document)
    if load is None or not main_lanes(document):
        return no_drafts(document)
    found = block_sweep(document, load, drafter_of_sweep(document, load))
    if len(found) < 2:
        return ONE_WIDTH
    ranked = sorted(found, key=lambda one: -one.speedup.value)
    best, second = ranked[0], ranked[1]
    if all(one.speedup.side_of(1.0) == "below" for one in ranked):
        verdict, sentence = "no", _no_width_wins(ranked)
    elif best.speedup.low > second.speedup.high and best.speedup.side_of(1.0) == "above":
        verdict, sentence = "yes", f"Width {_told(best)} wins, {_lead(ranked)}."
    else:
        level = [one for one in ranked if one.speedup.high >= best.speedup.low]
        verdict, sentence = "mixed", _tied(best, level)
    return Reply(
        verdict=verdict,
        headline="plain" if verdict == "no" else f"width {best.width}",
        sentence=sentence + _auto(document, load, best),
        detail="A width counts the anchor: width 8 drafts 7 tokens. The speed-up is about tau over "
        f"the cost of a step in plain steps. {noise_remark(document, [load])}",
        figures={
            "best": best.width,
            "load": load.title,
            "drafter": best.lane.drafter,
            "widths": [_numbers(one) for one in found],
        },
    )


def drafter_of_sweep(document: BenchDocument, load: Load) -> str | None:
    """The drafter of the best lane of a fixed width."""
    fixed = [lane for lane in main_lanes(document) if lane.fixed_width is not None]
    best = best_lane(document, fixed, [load])
    return None if best is None else best.drafter


def block_sweep(document: BenchDocument, load: Load, drafter: str | None) -> list[Width]:
    """The fixed widths of one drafter that have a speed-up, the narrowest first."""
    found: list[Width] = []
    for lane in main_lanes(document):
        figures = document.find(lane.name, load)
        gain, width, tau = speedup_of(document, figures), lane.fixed_width, tau_of(figures)
        if gain is None or width is None or lane.drafter != drafter:
            continue
        cost = step_cost(document, lane, load)
        found.append(
            Width(
                lane,
                width,
                None if tau is None else tau.value,
                None if cost is None else cost.ratio,
                gain,
            )
        )
    return sorted(found, key=lambda one: one.width)


def _told(one: Width) -> str:
    parts = [times(one.speedup, has_range=False)]
    if one.tau is not None:
        parts.append(f"tau {one.tau:.2f}")
    if one.step_cost is not None:
        parts.append(f"a step costs {one.step_cost:.2f}")
    return f"{one.width} ({', '.join(parts)})"


def _lead(ranked: list[Width]) -> str:
    best, others = ranked[0], ranked[1:3]
    return listed(
        [f"{best.speedup.value / one.speedup.value - 1:.0%} over {_told(one)}" for one in others]
    )


def _tied(best: Width, level: list[Width]) -> str:
    if len(level) == 1:
        return f"Width {_told(best)} is ahead of the others, but not surely of plain decoding."
    names = listed([_told(one) for one in level[:3]])
    return f"Widths {names} can't be told apart."


def _no_width_wins(ranked: list[Width]) -> str:
    return f"None: plain decoding wins over every width; closest is {_told(ranked[0])}."


def _auto(document: BenchDocument, load: Load, best: Width) -> str:
    autos = [
        lane
        for lane in main_lanes(document)
        if lane.width == "auto" and lane.drafter == best.lane.drafter
    ]
    gain = speedup_of(document, document.find(autos[0].name, load)) if autos else None
    return "" if gain is None else f" Auto reaches {times(gain, has_range=False)}."


def _numbers(one: Width) -> dict[str, object]:
    return {
        "lane": one.lane.name,
        "width": one.width,
        "tau": one.tau,
        "step_cost": one.step_cost,
        "speedup": one.speedup.value,
        "speedup_range": one.speedup.range,
    }

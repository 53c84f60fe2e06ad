"""Question 1: is the mean acceptance length (tau) long enough to pay for drafting here?

It compares tau with the break-even tau, the cost of a drafted step in plain steps.
"""

from collections.abc import Mapping
from typing import NamedTuple

from blockdraft.bench.report.document import BenchDocument, Lane, Load, Verdict
from blockdraft.bench.report.evidence import (
    Estimate,
    StepCost,
    best_lane,
    lightest_load,
    main_lanes,
    step_cost,
    tau_of,
)
from blockdraft.bench.report.noise import FEW_ANSWERS
from blockdraft.bench.report.reply import Reply, no_drafts

VERDICTS: Mapping[str, Verdict] = {"above": "yes", "below": "no", "covers": "mixed"}
SOURCES = {
    "step times": "the mean time of its steps over that of plain steps, in the same run",
    "costs of passes": "the measured passes (draft, verify, the rest) over a plain step",
    "speed-up": "tau over the measured speed-up, which counts the prefill too",
}
NO_COST = (
    "What a step costs is not known without plain decoding beside it; measure it with a baseline "
    "(`--baseline URL`, or in process)."
)


class Acceptance(NamedTuple):
    """One drafter's best lane."""

    lane: Lane
    tau: Estimate
    cost: StepCost | None
    answers: int | None

    @property
    def verdict(self) -> Verdict:
        return "unknown" if self.cost is None else VERDICTS[self.tau.side_of(self.cost.ratio)]


def answer_acceptance(document: BenchDocument) -> Reply:
    load = lightest_load(document)
    if load is None:
        return no_drafts(document)
    found = best_of_each_drafter(document, load)
    if not found:
        return no_drafts(document)
    best = best_lane(document, [one.lane for one in found], [load])
    main = next((one for one in found if one.lane is best), found[0])
    others = [one for one in found if one is not main]
    detail = [_how(main)] + [f"{_sentence(one)} {_how(one)}" for one in others]
    return Reply(
        verdict=main.verdict,
        headline=f"tau {main.tau.value:.2f}",
        sentence=_sentence(main),
        detail=" ".join(detail),
        figures=_figures(main) | {"load": load.title, "others": [_figures(one) for one in others]},
    )


def best_of_each_drafter(document: BenchDocument, load: Load) -> list[Acceptance]:
    """Those with a tau under `load`."""
    drafters: dict[str | None, list[Lane]] = {}
    for lane in main_lanes(document):
        drafters.setdefault(lane.drafter, []).append(lane)
    found: list[Acceptance] = []
    for lanes in drafters.values():
        told = [lane for lane in lanes if tau_of(document.find(lane.name, load)) is not None]
        lane = best_lane(document, told, [load])
        figures = None if lane is None else document.find(lane.name, load)
        tau = tau_of(figures)
        if lane is not None and figures is not None and tau is not None:
            cost = step_cost(document, lane, load)
            found.append(Acceptance(lane, tau, cost, figures.answers))
    return found


def _sentence(one: Acceptance) -> str:
    tau = f"tau is {one.tau.value:.2f} ({one.tau.low:.2f} to {one.tau.high:.2f}, {one.lane.name})"
    if one.cost is None:
        return f"{tau}: {one.tau.value:.2f} tokens a step, but what a step costs is not known."
    ratio = f"{one.cost.ratio:.2f}"
    pays = {
        "yes": "which it passes",
        "no": "which it does not reach",
        "mixed": "which is within its range",
        "unknown": "",
    }[one.verdict]
    return f"{tau}. A drafted step costs {ratio} plain ones here, so it must pass {ratio}, {pays}."


def _how(one: Acceptance) -> str:
    if one.cost is None:
        return NO_COST
    told = f"The break-even tau of {one.lane.name} is {SOURCES[one.cost.source]}."
    if one.cost.source == "speed-up":
        return f"{told} Its range of tau decides."
    if one.answers is not None and one.answers < FEW_ANSWERS:
        return f"{told} The range is of {one.answers} answers only, and at least 10% either way."
    return f"{told} The range is a 95% interval over prompts, or 10% where there is none."


def _figures(one: Acceptance) -> dict[str, object]:
    return {
        "lane": one.lane.name,
        "drafter": one.lane.drafter,
        "verdict": one.verdict,
        "tau": one.tau.value,
        "tau_interval": one.tau.range,
        "break_even": None if one.cost is None else one.cost.ratio,
        "break_even_source": None if one.cost is None else one.cost.source,
    }

"""What passes cost on the engines of a bench: verification by rows, drafting by draft length.

Measured before any request: on the engines' own memory by `engine/calibrate.py`, and by draft
length in `draft_costs.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from blockdraft.bench.in_process.draft_costs import DraftCost, measure_lengths
from blockdraft.bench.in_process.lanes import BenchTarget, OpenLane
from blockdraft.decoding import Drafter
from blockdraft.engine.build import Report, clock_for, pass_rows
from blockdraft.engine.calibrate import CONTEXT_LEN, Limits, measure_costs
from blockdraft.engine.costs import CostModel

TRAINED = ("block", "autoregressive")


class PassCosts(NamedTuple):
    """`verify` are (rows, seconds) of target passes; `step_overhead_seconds` comes later.

    `draft` was measured on the engines, for one and for several requests; `lengths` is the cost by
    draft length for one request (`draft_costs.py`).
    """

    context_len: int
    verify: tuple[tuple[int, float], ...]
    draft: tuple[DraftCost, ...]
    lengths: tuple[DraftCost, ...]


def measure_pass_costs(
    target: BenchTarget,
    lanes: Sequence[tuple[OpenLane, Drafter]],
    report: Report | None = None,
) -> PassCosts | None:
    """Of the target, and of each trained drafter once, on the lane with its widest block.

    None where no lane is open. `report` gets a line for a drafter that fails.
    """
    if not lanes:
        return None
    widest: dict[int, tuple[OpenLane, Drafter]] = {}
    for lane, drafter in lanes:
        known = widest.get(id(drafter))
        if known is None or (lane.info.block_size or 0) > (known[0].info.block_size or 0):
            widest[id(drafter)] = (lane, drafter)
    by_kind = sorted(widest.values(), key=lambda pair: pair[0].info.kind != "plain")
    verify: tuple[tuple[int, float], ...] = ()
    draft: list[DraftCost] = []
    for lane, drafter in by_kind:
        if verify and lane.info.kind not in TRAINED:
            continue
        try:
            costs = _measure(target, lane, drafter)
        except Exception as error:  # noqa: BLE001  a drafter may be anything; the run goes on
            _forget(lane)
            if report is not None:
                report(f"what {lane.info.drafter} costs can't be measured: {error}")
            continue
        verify = verify or costs.verify.points
        draft += _draft_costs(lane, costs) if lane.info.kind in TRAINED else ()
    context_len = min(CONTEXT_LEN, lanes[0][0].built.capacity.max_context // 2)
    trained = [
        (lane.info.drafter or lane.info.name, drafter)
        for lane, drafter in by_kind
        if lane.info.kind in TRAINED
    ]
    lengths = _lengths(target, trained, context_len, report)
    known = {one.name for one in lengths}
    others = tuple(one for one in draft if one.requests == 1 and one.name not in known)
    return PassCosts(context_len, verify, tuple(draft), lengths + others)


def _lengths(
    target: BenchTarget,
    drafters: Sequence[tuple[str, Drafter]],
    context_len: int,
    report: Report | None,
) -> tuple[DraftCost, ...]:
    try:
        return measure_lengths(target, drafters, context_len)
    except Exception as error:  # noqa: BLE001  a drafter may be anything; the run goes on
        if report is not None:
            report(f"what drafts of each length cost can't be measured: {error}")
        return ()


def _measure(target: BenchTarget, lane: OpenLane, drafter: Drafter) -> CostModel:
    capacity, sides = lane.built.capacity, lane.built.sides
    return measure_costs(
        sides.target,
        sides.drafts,
        Limits(
            num_slots=capacity.slots,
            num_rows=capacity.num_rows,
            max_context=capacity.max_context,
            pass_rows=pass_rows(target),
        ),
        feature_size=len(drafter.taps) * target.spec.hidden_size,
        dtype=target.dtype,
        clock=clock_for(target.device),
    )


def _forget(lane: OpenLane) -> None:
    """Drop what a measurement that broke off has left."""
    sides = lane.built.sides
    for key in range(lane.built.capacity.slots):
        sides.target.forget(key)
        if sides.drafts is not None:
            sides.drafts.forget(key)


def _draft_costs(lane: OpenLane, costs: CostModel) -> list[DraftCost]:
    info = lane.info
    return [
        DraftCost(info.drafter or info.name, info.kind, "trained", requests, width - 1, seconds)
        for width, curve in costs.draft
        for requests, seconds in curve.points
    ]


def costs_document(costs: PassCosts, overhead: float | None) -> dict[str, object]:
    """The part "costs" of the document: `draft` by length, and for several requests beside it."""
    return {
        "context_len": costs.context_len,
        "verify": [{"rows": rows, "seconds": seconds} for rows, seconds in costs.verify],
        "draft": [
            {
                "name": one.name,
                "kind": one.kind,
                "weights": one.weights,
                "tokens": one.tokens,
                "seconds": one.seconds,
            }
            for one in costs.lengths
        ],
        "draft_by_requests": [
            {
                "name": one.name,
                "requests": one.requests,
                "tokens": one.tokens,
                "seconds": one.seconds,
            }
            for one in costs.draft
        ],
        "step_overhead_seconds": overhead,
    }

"""`Policy`: the widths of a step by what its requests may still emit, as the engine sets them.

Fixed widths, plain decoding, and an idealized `auto` that knows the costs and the acceptance; the
engine's own `auto` learns both while it runs (`engine/width.py`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from blockdraft.engine import WidthMode
from blockdraft.engine.cost_correction import LiveCosts
from blockdraft.engine.costs import CostModel
from blockdraft.engine.width import MARGIN, candidate_widths
from blockdraft.engine.width_plan import Load, best_plan, plain_plan
from blockdraft.tuning.survival import Survival


class StepWidths(NamedTuple):
    """`draft` 1 = no drafter pass; `verify` has an entry a request, anchors counted."""

    draft: int
    verify: tuple[int, ...]


Policy = Callable[[Sequence[int]], StepWidths]
"""From the tokens that each decoding request may still emit."""


def policy_of(mode: WidthMode, block_size: int, survival: Survival, costs: CostModel) -> Policy:
    """The policy of `--width mode` with blocks of at most `block_size`."""
    if mode.kind == "off" or block_size < 2:
        return plain_policy
    if mode.width is not None:
        return fixed_policy(min(mode.width, block_size))
    return auto_policy(block_size, survival, costs)


def plain_policy(remaining: Sequence[int]) -> StepWidths:
    return StepWidths(1, (1,) * len(remaining))


def fixed_policy(width: int) -> Policy:
    def widths(remaining: Sequence[int]) -> StepWidths:
        verify = tuple(min(width, left) for left in remaining)
        return StepWidths(width if max(verify) > 1 else 1, verify)

    return widths


def auto_policy(block_size: int, survival: Survival, costs: CostModel) -> Policy:
    """The plan with the highest rate for so many requests, where it beats plain by the margin."""
    live = LiveCosts(costs)
    candidates = candidate_widths(block_size)
    plans: dict[int, StepWidths | None] = {}

    def plan_for(num_requests: int) -> StepWidths | None:
        load = Load((block_size,) * num_requests)
        plan = best_plan(load, candidates, lambda _, width: survival.at(width), live)
        if plan is None or plan.rate <= (1 + MARGIN) * plain_plan(load, live).rate:
            return None
        return StepWidths(plan.draft_width, plan.verify)

    def widths(remaining: Sequence[int]) -> StepWidths:
        num = len(remaining)
        if num not in plans:
            plans[num] = plan_for(num)
        plan = plans[num]
        if plan is None:
            return plain_policy(remaining)
        verify = tuple(min(v, left) for v, left in zip(plan.verify, remaining, strict=True))
        return StepWidths(plan.draft if max(verify) > 1 else 1, verify)

    return widths
